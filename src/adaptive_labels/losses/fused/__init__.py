"""The compiled kernel of AdaptiveLabelLoss for the CPU: its C source, how it is built, and how it is called."""

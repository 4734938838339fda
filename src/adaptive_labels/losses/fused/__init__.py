"""The fused path of AdaptiveLabelLoss: the compiled kernel, the same in torch's operations, and the choice of path."""

"""The fused path of the adaptive loss: the compiled kernel, the same step in torch operations, and the choice."""

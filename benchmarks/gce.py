"""Generalised cross entropy, a usual remedy for wrong labels, as a method of a plugin: `--plugin benchmarks/gce.py`.

(1 − p_y^q) / q is cross entropy for q → 0 and the absolute error for q = 1, which a wrong label pulls least.

Reference: Zhang and Sabuncu 2018, equation 6.
"""

from torch import Tensor
from torch.nn import functional as F

from adaptive_labels.losses import register_method


@register_method("gce", "between cross entropy and absolute error", main_option="power", search=(0.1, 1.0))
def gce(logits: Tensor, target: Tensor, power: float = 0.7) -> Tensor:
    """Generalised cross entropy of logits (N, K) and target (N,): (N,)."""
    negative_log = F.cross_entropy(logits, target, reduction="none")
    return (1 - (-power * negative_log).exp()) / power

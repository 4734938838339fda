"""DisturbLabel: in each step, some labels are replaced by random ones."""

from typing import Any, final

import torch
from torch import Tensor

from adaptive_labels.losses.arguments import check_number
from adaptive_labels.losses.base import Criterion, Terms
from adaptive_labels.losses.batch import Batch
from adaptive_labels.losses.registry import register_method
from adaptive_labels.losses.targets import as_probabilities, cross_entropy, is_index


def disturb_labels(
    target: Tensor, num_classes: int, disturbance: float, generator: torch.Generator | None = None
) -> Tensor:
    r"""DisturbLabel: replace each label, with probability α, by one drawn uniformly from all K classes.

    .. math:: P(\tilde y = y) = 1 - α (K-1)/K, \qquad P(\tilde y = i) = α/K \text{ for } i ≠ y

    Args:
        target: class indices (N,) or probabilities (N, K); a disturbed row becomes one-hot.
        num_classes: K.
        disturbance: α in [0, 1].
        generator: the source of randomness (torch's global one by default).

    Returns:
        New targets of the same form; ``target`` itself is untouched.

    >>> y = torch.zeros(10_000, dtype=torch.long)
    >>> changed = disturb_labels(y, 10, 0.2, torch.Generator().manual_seed(0)) != y
    >>> round(changed.float().mean().item(), 2)   # 0.2 · 9/10
    0.18

    Reference: Xie et al. 2016, equation 1.
    """
    count, device = target.shape[0], target.device
    drawn = torch.randint(num_classes, (count,), generator=generator, device=device)
    disturbed = torch.rand(count, generator=generator, device=device) < disturbance
    if is_index(target):
        return torch.where(disturbed, drawn, target)
    return torch.where(disturbed.unsqueeze(1), as_probabilities(drawn, num_classes, target.dtype), target)


@register_method(
    "disturb-label", "a share of the labels drawn at random in each step", main_option="disturbance", search=(0.02, 0.5)
)
@final
class DisturbLabel(Criterion):
    """DisturbLabel: a share of the labels is drawn anew in each step; see :func:`disturb_labels`.

    It draws from torch's global generator, as dropout does. A class weight stays that of the original label.

    Args:
        disturbance: α in [0, 1].
    """

    def __init__(self, num_classes: int, disturbance: float = 0.1, **common: Any) -> None:
        super().__init__(num_classes, **common)
        self.disturbance = check_number("disturbance", disturbance, 0, 1)

    def _terms(self, batch: Batch, world: int) -> Terms:
        hard = cross_entropy(batch.logits, disturb_labels(batch.target, self.num_classes, self.disturbance))
        return Terms(hard, parts={"hard": hard})

"""Confidence penalty: confident predictions, with low entropy, are penalised."""

from typing import Any, final

import torch.nn.functional as F
from torch import Tensor

from adaptive_labels.losses.arguments import check_number
from adaptive_labels.losses.base import Criterion, Terms
from adaptive_labels.losses.batch import Batch
from adaptive_labels.losses.registry import register_method
from adaptive_labels.losses.targets import cross_entropy


def confidence_penalty(logits: Tensor) -> Tensor:
    r"""The negative entropy of the prediction, :math:`\sum_i p_i \log p_i`: to be added with a weight β.

    Returns:
        (N,), from −log K (uniform) to 0 (certain).

    >>> confidence_penalty(torch.tensor([[0.0, 0.0], [50.0, 0.0]]))
    tensor([-6.9315e-01, -9.6437e-21])

    Reference: Pereyra et al. 2017, section 3.1.
    """
    log_p = F.log_softmax(logits, dim=1)
    return (log_p.exp() * log_p).sum(1)


@register_method("confidence-penalty", "confident predictions penalised", main_option="strength", search=(0.02, 1.0))
@final
class ConfidencePenalty(Criterion):
    """Cross entropy minus β times the entropy of the prediction; see :func:`confidence_penalty`.

    Args:
        strength: β ≥ 0.
    """

    def __init__(self, num_classes: int, strength: float = 0.1, **common: Any) -> None:
        super().__init__(num_classes, **common)
        self.strength = check_number("strength", strength, 0)

    def _terms(self, batch: Batch, world: int) -> Terms:
        hard = cross_entropy(batch.logits, batch.target)
        penalty = confidence_penalty(batch.logits)
        return Terms(hard + self.strength * penalty, parts={"hard": hard, "penalty": penalty})

"""Complement objective training: the entropy over the wrong classes is maximised."""

from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptive_labels.losses.arguments import check_number
from adaptive_labels.losses.base import Criterion, Terms
from adaptive_labels.losses.batch import Batch
from adaptive_labels.losses.registry import register_method
from adaptive_labels.losses.targets import cross_entropy, erase, is_index, logsumexp_without_each


def complement_entropy(logits: Tensor, target: Tensor) -> Tensor:
    r"""The entropy of the prediction over the wrong classes, :math:`-\sum_{i≠y} p^{res}_i \log p^{res}_i`.

    Complement objective training maximises it, divided by K−1, beside the cross entropy.

    Args:
        logits: (N, K).
        target: class indices (N,), or class probabilities (N, K) taken as a mixture of labels.

    Returns:
        (N,), from 0 to log(K−1).

    >>> complement_entropy(torch.tensor([[5.0, 0.0, 0.0]]), torch.tensor([0]))
    tensor([0.6931])

    Reference: Chen et al. 2019 (Complement objective training), equation 2.
    """
    if is_index(target):
        log_p = F.log_softmax(erase(logits, target), dim=1)
        return -(log_p.exp() * log_p).sum(1)
    # Had the label been k: H_k = lse_k − Σ_{i≠k} p_res_i z_i.
    shifted = logits - logits.detach().amax(1, keepdim=True)
    without = logsumexp_without_each(shifted)  # (N, K)
    top = shifted.argmax(1, keepdim=True)
    p = F.softmax(shifted, dim=1)
    weighted = p * shifted  # (N, K)
    # For k other than the predicted class 1 − p_k ≥ 1/2; for the predicted one the mean is taken afresh.
    mean = (weighted.sum(1, keepdim=True) - weighted) / (1 - p.scatter(1, top, 0.0))
    rest = erase(shifted, top.squeeze(1))
    mean = mean.scatter(1, top, (F.softmax(rest, dim=1) * rest).sum(1, keepdim=True))
    return (target * (without - mean)).sum(1)


@register_method(
    "complement-entropy", "entropy over the wrong classes maximised", main_option="strength", search=(0.1, 10.0)
)
@final
class ComplementEntropy(Criterion):
    """Complement objective training: cross entropy, and the entropy over the wrong classes maximised.

    In one step, CE − β·H(p_res)/(K−1).

    Args:
        strength: β ≥ 0.
        alternate: make every second forward the complement's. The original takes a step of the one, then a step of the
            other on the same batch: call it twice per batch, with an optimizer's step after each.
    """

    turn: Tensor

    def __init__(self, num_classes: int, strength: float = 1.0, *, alternate: bool = False, **common: Any) -> None:
        super().__init__(num_classes, **common)
        self.strength = check_number("strength", strength, 0)
        self.alternate = alternate
        self.register_buffer("turn", torch.zeros((), dtype=torch.long))

    def _terms(self, batch: Batch, world: int) -> Terms:
        hard = cross_entropy(batch.logits, batch.target)
        entropy = complement_entropy(batch.logits, batch.target)
        complement = -self.strength / (self.num_classes - 1) * entropy
        parts = {"hard": hard, "complement_entropy": entropy}
        if not self.alternate:
            return Terms(hard + complement, parts=parts)
        turn = self.turn

        def trained_on() -> None:
            self.turn = 1 - turn

        return Terms(torch.where(turn == 0, hard, complement), parts=parts, afterwards=trained_on)

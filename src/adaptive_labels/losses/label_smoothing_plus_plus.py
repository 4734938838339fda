"""Label Smoothing++: the other classes get a fixed probability mass, and learn how to share it."""

import math
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adaptive_labels.losses.arguments import check_number
from adaptive_labels.losses.base import Criterion, Terms
from adaptive_labels.losses.batch import Batch, wide_dtype
from adaptive_labels.losses.registry import register_method
from adaptive_labels.losses.residual import residual_labels
from adaptive_labels.losses.targets import is_index, restore


def label_smoothing_plus_plus_losses(
    logits: Tensor, target: Tensor, residual_logits: Tensor, mass: float = 0.1
) -> tuple[Tensor, Tensor]:
    r"""Label Smoothing++: the other classes get a fixed mass α, and learn how to share it.

    .. math:: u = (1-α)\,\text{onehot}(y) + α\,\text{softmax}(C_y) \text{ elsewhere}, \qquad
        L_{net} = -\sum_i \text{stop}(u_i) \log p_i, \qquad L_C = -\sum_i \text{stop}(p_i) \log u_i

    Args:
        logits: (N, K).
        target: class indices (N,) or class probabilities (N, K), taken as a mixture of labels.
        residual_logits: C (K, K−1), own column erased.
        mass: α in (0, 1).

    Returns:
        L_net, which moves the network, and L_C, which moves C; each (N,).

    >>> z, y = torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0])
    >>> net, own = label_smoothing_plus_plus_losses(z, y, torch.zeros(3, 2))
    >>> net, own
    (tensor([0.4395]), tensor([0.7210]))

    The authors' code halves the sum of the two, which amounts to half the learning rate; here neither is halved.

    Reference: Chhabra et al. 2024, section 3.
    """
    log_p = F.log_softmax(logits, dim=1)
    labels = target if is_index(target) else torch.arange(logits.shape[1], device=logits.device)
    log_rows = F.log_softmax(residual_logits[labels], dim=1) + math.log(mass)  # (N or K, K−1)
    log_u = restore(log_rows, labels, fill=math.log(1 - mass))  # (N or K, K)
    if is_index(target):
        return -(log_u.detach().exp() * log_p).sum(1), -(log_p.detach().exp() * log_u).sum(1)
    network = -((target @ log_u.detach().exp()) * log_p).sum(1)
    return network, -(target * (log_p.detach().exp() @ log_u.T)).sum(1)


@register_method("ls++", "Label Smoothing++: a fixed mass, divided as learned", main_option="mass", search=(0.02, 0.5))
@final
class LabelSmoothingPlusPlus(Criterion):
    """Label Smoothing++: the other classes get a fixed probability mass; the optimizer learns how they share it.

    See :func:`label_smoothing_plus_plus_losses`. Give its parameter to the optimizer. As in the original, it has the
    same rate and weight decay as the network's parameters.

    Args:
        mass: α in (0, 1).
    """

    shares_batches = True
    like_network = True

    def __init__(self, num_classes: int, mass: float = 0.1, **common: Any) -> None:
        super().__init__(num_classes, **common)
        # With all of the mass on the others, the label itself would get nothing.
        self.mass = check_number("mass", mass, 0, 1, open_low=True, open_high=True)
        self.residual_logits = nn.Parameter(torch.zeros(num_classes, num_classes - 1, dtype=wide_dtype()))

    def _terms(self, batch: Batch, world: int) -> Terms:
        rows = self.residual_logits.to(batch.logits.dtype)
        network, own = label_smoothing_plus_plus_losses(batch.logits, batch.target, rows, self.mass)
        return Terms(network, own, parts={"hard": network, "update": own})

    def residual_labels(self) -> Tensor:
        """The learned division of the mass as probabilities, (K, K) with a zero diagonal."""
        return residual_labels(self.residual_logits.detach())

"""Online label smoothing: soft labels are the mean correct predictions of the last epoch."""

from __future__ import annotations

from typing import Any, final

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from adaptive_labels.losses.arguments import check_number
from adaptive_labels.losses.base import Criterion, Terms
from adaptive_labels.losses.batch import Batch, over
from adaptive_labels.losses.registry import register_method
from adaptive_labels.losses.targets import cross_entropy, hits, is_index


def online_label_smoothing_loss(logits: Tensor, target: Tensor, table: Tensor, hard_share: float = 0.5) -> Tensor:
    r"""Online label smoothing: cross entropy with the label and with the class's soft label of the last epoch.

    .. math:: L = α\,CE(z, t) + (1-α) \sum_k t_k \sum_i -T_{ki} \log p_i

    Args:
        logits: (N, K).
        target: class indices (N,) or class probabilities (N, K).
        table: T (K, K), row k the soft label of class k (its rows sum to 1).
        hard_share: α in [0, 1].

    Returns:
        (N,).

    >>> z, y = torch.tensor([[2.0, 0.0]]), torch.tensor([0])
    >>> online_label_smoothing_loss(z, y, torch.tensor([[0.9, 0.1], [0.5, 0.5]]))
    tensor([0.2269])

    Reference: Zhang et al. 2021 (Delving deep into label smoothing), equations 4 to 6.
    """
    soft = table[target] if is_index(target) else target @ table
    return hard_share * cross_entropy(logits, target) + (1 - hard_share) * cross_entropy(logits, soft)


def correct_prediction_sums(logits: Tensor, target: Tensor, weights: Tensor | float = 1.0) -> tuple[Tensor, Tensor]:
    """What online label smoothing gathers for its next table: sums of correct predictions by class.

    Args:
        logits: (N, K).
        target: class indices (N,) or class probabilities (N, K); with a mixture a prediction counts for class k as far
            as it is right about k.
        weights: (N,), how much each sample counts (0 where it is ignored); or one number for all.

    Returns:
        Sums of the predicted probabilities (K, K), and how many each row is made of (K,).

    >>> z, y = torch.tensor([[9.0, 0.0], [0.0, 9.0]]), torch.tensor([0, 0])
    >>> correct_prediction_sums(z, y, torch.ones(2))[1]     # the second one is wrong
    tensor([1., 0.])
    """
    shares = weights * hits(logits, target)  # (N,)
    predicted, p = logits.argmax(1), F.softmax(logits, dim=1)
    sums = p.new_zeros(p.shape[1], p.shape[1]).index_add(0, predicted, shares.unsqueeze(1) * p)
    return sums, p.new_zeros(p.shape[1]).index_add(0, predicted, shares)


@register_method("ols", "online label smoothing: mean correct predictions", main_option="hard_share", search=(0.1, 0.9))
@final
class OnlineLabelSmoothing(Criterion):
    """Online label smoothing: each epoch's soft labels are the mean correct predictions of the epoch before.

    The table starts uniform, and changes at :meth:`epoch_end`; a class without a correct prediction keeps its row. See
    :func:`online_label_smoothing_loss`.

    Args:
        num_classes: K.
        hard_share: α in [0, 1], the weight of the plain cross entropy.
        **common: see :class:`Criterion`.
    """

    stateful = True
    table: Tensor
    sums: Tensor
    counts: Tensor
    own_sums: Tensor
    own_counts: Tensor

    def __init__(self, num_classes: int, hard_share: float = 0.5, **common: Any) -> None:
        super().__init__(num_classes, **common)
        self.hard_share = check_number("hard_share", hard_share, 0, 1)
        self.register_buffer("table", torch.full((num_classes, num_classes), 1.0 / num_classes))
        self.register_buffer("sums", torch.zeros(num_classes, num_classes))
        self.register_buffer("counts", torch.zeros(num_classes))
        # What this process has gathered and not yet shared with others.
        self.register_buffer("own_sums", torch.zeros(num_classes, num_classes))
        self.register_buffer("own_counts", torch.zeros(num_classes))

    def _terms(self, batch: Batch, world: int) -> Terms:
        table = self.table.to(batch.logits.dtype)
        loss = online_label_smoothing_loss(batch.logits, batch.target, table, self.hard_share)
        with torch.no_grad():
            sums, counts = correct_prediction_sums(batch.logits, batch.target, batch.sample_weight)
            if world > 1:
                self.sums += self._all_reduce(sums, world).to(self.sums.dtype)
                self.counts += self._all_reduce(counts, world).to(self.counts.dtype)
            else:
                self.own_sums += sums.to(self.sums.dtype)
                self.own_counts += counts.to(self.counts.dtype)
        hard = cross_entropy(batch.logits.detach(), batch.target)
        return Terms(loss, parts={"hard": hard, "total": loss})

    @torch.no_grad()
    def epoch_end(self) -> None:
        """Make the next epoch's table of this epoch's correct predictions."""
        self._take_own()
        seen = (self.counts > 0).unsqueeze(1)
        self.table.copy_(torch.where(seen, over(self.sums, self.counts.unsqueeze(1)), self.table))
        self.sums.zero_()
        self.counts.zero_()

    @torch.no_grad()
    def sync(self, group: dist.ProcessGroup | None = None) -> None:
        """Add up what the processes of ``group`` have gathered; any time before :meth:`epoch_end`."""
        dist.all_reduce(self.own_sums, group=group)
        dist.all_reduce(self.own_counts, group=group)
        self._take_own()

    def _take_own(self) -> None:
        self.sums += self.own_sums
        self.counts += self.own_counts
        self.own_sums.zero_()
        self.own_counts.zero_()

"""The other methods that learn what a class is mistaken for: online label smoothing and Label Smoothing++."""

from __future__ import annotations

from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from adaptive_labels import functional as AF
from adaptive_labels.losses.arguments import check_number
from adaptive_labels.losses.base import Criterion, Terms, over
from adaptive_labels.losses.batch import Batch


@final
class OnlineLabelSmoothing(Criterion):
    """Online label smoothing: each epoch's soft labels are the mean correct predictions of the epoch before.

    The table starts uniform, and changes at :meth:`epoch_end`; a class without a correct prediction keeps its row. See
    :func:`functional.online_label_smoothing_loss`.

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
        loss = AF.online_label_smoothing_loss(batch.logits, batch.target, table, self.hard_share)
        with torch.no_grad():
            sums, counts = AF.correct_prediction_sums(batch.logits, batch.target, batch.sample_weight)
            if world > 1:
                self.sums += self._all_reduce(sums, world).to(self.sums.dtype)
                self.counts += self._all_reduce(counts, world).to(self.counts.dtype)
            else:
                self.own_sums += sums.to(self.sums.dtype)
                self.own_counts += counts.to(self.counts.dtype)
        hard = AF.cross_entropy(batch.logits.detach(), batch.target)
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

    def _own_repr(self) -> list[str]:
        return [f"hard_share={self.hard_share}"]


@final
class LabelSmoothingPlusPlus(Criterion):
    """Label Smoothing++: a fixed mass on the other classes, its division among them learned by the optimizer.

    See :func:`functional.label_smoothing_plus_plus_losses`. The parameter must be given to the optimizer; as in the
    original, the optimizer treats it like the network's parameters: the same rate, the same weight decay.

    Args:
        num_classes: K.
        mass: α in (0, 1).
        **common: see :class:`Criterion`.
    """

    stateful = True
    like_network = True

    def __init__(self, num_classes: int, mass: float = 0.1, **common: Any) -> None:
        super().__init__(num_classes, **common)
        self.mass = check_number("mass", mass, 0, 1, open_low=True)
        if self.mass == 1:
            raise ValueError("mass must be in (0, 1), got 1: the label itself would get nothing")
        self.residual_logits = nn.Parameter(torch.zeros(num_classes, num_classes - 1))
        self._samples = 0.0
        self._shared = False

    def _terms(self, batch: Batch, world: int) -> Terms:
        rows = self.residual_logits.to(batch.logits.dtype)
        network, own = AF.label_smoothing_plus_plus_losses(batch.logits, batch.target, rows, self.mass)
        if dist.is_available() and dist.is_initialized():  # what sync() weighs the gradients by
            self._samples, self._shared = float(batch.sample_weight.sum()), world > 1
        return Terms(network, own, parts={"hard": network, "update": own})

    def residual_labels(self) -> Tensor:
        """The learned division of the mass as probabilities, (K, K) with a zero diagonal."""
        return AF.residual_labels(self.residual_logits.detach())

    @torch.no_grad()
    def sync(self, group: dist.ProcessGroup | None = None) -> None:
        """Make the table's gradient that of the whole batch; after ``backward()``, before the optimizer's step."""
        gradient = self.residual_logits.grad
        if gradient is None:
            return
        share = torch.tensor(self._samples, device=gradient.device)
        total = share.clone()
        dist.all_reduce(total, group=group)
        weighed = not self._shared and self.reduction == "mean"
        gradient.mul_(over(share, total) if weighed else 1.0 / dist.get_world_size(group))
        dist.all_reduce(gradient, group=group)

    def _own_repr(self) -> list[str]:
        return [f"mass={self.mass}"]

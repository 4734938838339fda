"""LowRankAdaptiveLabelLoss: ALR for very many classes, whose S is a product of two small matrices."""

from collections.abc import Iterator, Sequence
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from adaptive_labels.losses.adaptive import AdaptiveLabelLoss
from adaptive_labels.losses.batch import Batch, numbers, over, wide_dtype
from adaptive_labels.losses.closed_form import (
    RowGradients,
    Rows,
    Step,
    Weights,
    closed_form,
    stable_softmax,
    sums_of_probabilities,
    update_of_rows,
    without_bad_rows,
)
from adaptive_labels.losses.targets import Labels, erase, put_own, restore

BLOCK = 2**20  # entries of S that are computed at once, if the logits are not more


class _Samples(NamedTuple):
    """What moves S, where its rows do not fit: logits (M, K), class probabilities, how much each sample counts."""

    logits: Tensor
    target: Tensor
    own: Tensor | float


class LowRankAdaptiveLabelLoss(AdaptiveLabelLoss):
    """:class:`AdaptiveLabelLoss` for very many classes: S = U Vᵀ, with U and V (K, rank), and without its diagonal.

    Memory is of the order K·rank + N·K with any target: S itself is never held, and no more of its rows than the batch
    needs are computed at once. With class probabilities that name more than a few classes, time grows as K²·rank.

    Args:
        num_classes: K.
        rank: columns of U and V.
        label_smoothing: ε of L_hard.
        **options: the other arguments of :class:`AdaptiveLabelLoss` except ``initial_labels``.

    Attributes:
        residual_left, residual_right: U and V; buffers, or parameters with ``update="optimizer"``.

    >>> criterion = LowRankAdaptiveLabelLoss(50_000, 16)
    >>> criterion.residual_labels([7, 9]).shape
    torch.Size([2, 50000])
    """

    residual_left: Tensor
    residual_right: Tensor

    def __init__(self, num_classes: int, rank: int, label_smoothing: float = 0.0, **options: Any) -> None:
        if "initial_labels" in options:
            raise TypeError("initial_labels needs the dense S of AdaptiveLabelLoss")
        self.rank = rank
        super().__init__(num_classes, label_smoothing, **options)

    def _create_table(self, initial_labels: Tensor | None) -> None:
        classes, rank = self.num_classes, self.rank
        if isinstance(rank, bool) or not isinstance(rank, Integral) or not 1 <= rank <= classes:
            raise ValueError(f"rank must be an int in [1, num_classes = {classes}], got {rank!r}")
        self.rank = rank = int(rank)
        # In full coordinates, since erased columns of different rows would not line up. U = 0 starts uniform; V is
        # scaled so that a step of U moves S = U Vᵀ as far as a step of a dense S would, on average.
        self._hold("residual_left", torch.zeros(classes, rank, dtype=wide_dtype()))
        self._hold("residual_right", torch.randn(classes, rank).to(wide_dtype()) / rank**0.5)

    def _rows_of(self, labels: Tensor | None) -> Tensor:
        left, right = self.residual_left.detach(), self.residual_right.detach()
        return put_own((left if labels is None else left[labels]) @ right.T, labels, 0.0)

    def _wide_rows(self, dtype: torch.dtype, labels: Tensor | None) -> Tensor:
        return self._rows_of(labels).to(dtype)

    def _step(self, z: Tensor, target: Labels | Tensor, weights: Weights) -> Step:
        rows_of = partial(self._wide_rows, z.dtype)
        return closed_form(z, target, rows_of, weights, self.label_smoothing, self.attraction, _blocks(z, target))

    def _told(self, step: Step, z: Tensor, batch: Batch) -> RowGradients | _Samples:
        return step.rows or _Samples(z.detach(), batch.target, batch.sample_weight)

    def _share(self, counts: tuple[Any, ...], rows: Any, later: bool) -> tuple[Sequence[Any], Any]:
        return numbers(_summed(torch.stack([torch.as_tensor(count, dtype=torch.float64) for count in counts]))), rows

    def _gradients(self, rows: RowGradients | _Samples, count: Any) -> tuple[Tensor, ...]:
        found = self._of_factors([rows], self.residual_left.new_full((self.num_classes,), count, dtype=torch.float64))
        return tuple(_summed(part) for part in found) if self.world() > 1 else found

    def _keep(self, pending: list[Any], rows: RowGradients | _Samples) -> None:
        pending.append(rows)

    def _move(self, told: list[Any], world: int) -> None:
        world = self.world()  # what a process tells is its own
        counts = self.residual_left.new_zeros(self.num_classes, dtype=torch.float64)
        for batch in told:
            if isinstance(batch, _Samples):
                own = without_bad_rows(batch.logits, Weights(1.0, batch.own, 0.0))[1].own
                counts += (batch.target * (own.unsqueeze(1) if isinstance(own, Tensor) else own)).sum(0)
            else:
                counts[_places(batch.labels)] += batch.counts
        if world > 1:
            counts = _summed(counts)
        found = self._of_factors(told, counts)
        for factor, gradient in zip((self.residual_left, self.residual_right), found, strict=True):
            factor.sub_(_summed(gradient) if world > 1 else gradient, alpha=self.residual_lr)

    def _of_factors(self, told: list[Any], counts: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of L_upd by U and V, those of the rows of S divided by ``counts`` (K,)."""
        left, right = self.residual_left.detach(), self.residual_right.detach()
        of_left, of_right = torch.zeros_like(left), torch.zeros_like(right)
        for batch in told:
            for labels, rows in self._row_gradients(batch):
                where = _places(labels)
                scaled = over(rows, counts[where].unsqueeze(1).to(rows.dtype)).to(left.dtype)  # (R, K)
                of_left[where] += scaled @ right
                of_right += scaled.T @ left[where]
        return of_left, of_right

    def _row_gradients(self, told: RowGradients | _Samples) -> Iterator[tuple[Tensor | None, Tensor]]:
        """Σ own (q − p_res) of some rows of S after the other, in full coordinates."""
        if isinstance(told, RowGradients):
            rows = torch.arange(self.num_classes, device=told.rows.device) if told.labels is None else told.labels
            yield told.labels, restore(told.rows, rows)
            return
        z, weights, _ = without_bad_rows(told.logits, Weights(1.0, told.own, 0.0))
        blocks = (Rows.read(labels, partial(self._wide_rows, z.dtype)) for labels in _blocks(z, told.target))
        for sums in sums_of_probabilities(told.target, stable_softmax(z), blocks, weights.own):
            yield sums.rows.labels, update_of_rows(sums)[0]

    def _told_plainly(self, z: Tensor, target: Tensor, own: Tensor) -> _Samples:
        return _Samples(z, target, own)

    def _plain_table(self) -> Tensor:
        classes = torch.arange(self.num_classes, device=self.residual_left.device)
        return erase(self.residual_left @ self.residual_right.T, classes)


def _blocks(z: Tensor, target: Labels | Tensor) -> list[Tensor | None]:
    """The classes, in pieces whose rows of S take no more memory than the logits do, or little."""
    samples, classes = z.shape
    if isinstance(target, Labels) or classes * classes <= max(samples * classes, BLOCK):
        return [None]
    return list(torch.arange(classes, device=z.device).split(max(samples, BLOCK // classes, 1)))  # type: ignore[no-untyped-call]


def _places(labels: Tensor | None) -> Any:
    return slice(None) if labels is None else labels


def _summed(values: Tensor) -> Tensor:
    """The sum over the processes."""
    values = values.clone()
    dist.all_reduce(values)
    return values

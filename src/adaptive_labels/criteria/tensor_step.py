"""A fused step by torch's own operations: where there is no compiled kernel, and on other devices than the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from adaptive_labels import functional as AF
from adaptive_labels.criteria.base import over
from adaptive_labels.criteria.batch import check_labels
from adaptive_labels.criteria.step import Spread, Step, low_rank_outcome, spread_rows
from adaptive_labels.functional.onepass import Factors, Losses, losses_and_gradients

if TYPE_CHECKING:
    from adaptive_labels.criteria.adaptive import AdaptiveLabelLoss

AT_ONCE = 2**18  # logits on the CPU
LEAST_ROWS = 32  # of a low-rank S: matrix products of fewer are slow


class Weights(NamedTuple):
    """How the samples count.

    ``y`` (M,): the labels, 0 where left out; ``kept`` (M,): the samples' weights, 0 where left out, None if all are 1;
    ``samples``: their sum. Then each sample's share, (M,) or one number for all: ``prediction``, in what trains the
    network; ``own``, in the gradient of S; ``own_loss``, in the value of L_upd.
    """

    y: Tensor
    kept: Tensor | None
    samples: float | Tensor
    prediction: float | Tensor
    own: float | Tensor
    own_loss: float | Tensor


class Means(Mapping[str, Tensor]):
    """The parts of a loss: scalars, and means over the samples that are taken when someone looks."""

    def __init__(self, parts: dict[str, Tensor | float], like: Tensor, weights: Weights) -> None:
        self.parts, self.kept, self.samples = parts, weights.kept, weights.samples
        self.dtype, self.device = like.dtype, like.device

    def __getitem__(self, name: str) -> Tensor:
        part = self.parts[name]
        if not isinstance(part, Tensor) or part.dim() == 0:
            return torch.as_tensor(part, dtype=self.dtype, device=self.device)
        return part.mean() if self.kept is None else torch.as_tensor(_over(part[:, 0] @ self.kept, self.samples))

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)


def tensor_step(
    criterion: AdaptiveLabelLoss, z: Tensor, y: Tensor, sample_weight: Tensor | None, shape: torch.Size
) -> Step:
    """A step by torch's operations, with what it changes: S with ``update="self"``, and the accuracy."""
    hard_factor, factor = criterion.factors()
    weights = _weights(criterion, z, y, sample_weight, shape)
    a, count_later = _residual_weight(criterion, z, weights)
    factors = Factors(
        smoothing=AF.smoothing_share(criterion.label_smoothing, criterion.smooth_over, criterion.num_classes),
        attraction=criterion.attraction,
        hard=hard_factor,
        residual=a * factor,
        weight=_column(weights.prediction),
        own=_column(weights.own * factor),
    )
    dz = torch.empty_like(z, memory_format=torch.contiguous_format)
    losses, rows, spread = (_dense if criterion.rank is None else _low_rank)(criterion, z, weights.y, factors, dz)
    hard, residual, update = losses.hard, losses.residual, losses.update
    accuracy = count_later(losses.lead)
    loss = hard_factor * _total(hard, weights.prediction) + factors.residual * _total(residual, weights.prediction)
    parts: dict[str, Tensor | float] = {"hard": hard, "residual": residual, "weight": a, "accuracy": accuracy}
    if update is not None:
        loss = loss + factor * _total(update, weights.own_loss)
        parts["update"] = update
    scalar = loss if isinstance(loss, Tensor) else torch.tensor(loss, dtype=z.dtype, device=z.device)
    return Step(scalar, dz, rows, spread, Means(parts, z, weights))


def _dense(
    criterion: AdaptiveLabelLoss, z: Tensor, y: Tensor, factors: Factors, dz: Tensor
) -> tuple[Losses, tuple[Tensor, ...], Spread | None]:
    """The step with a dense S."""
    s = criterion.residual_parameters()[0].detach()
    count, width = len(z), len(s) - 1
    at_once = _samples_at_once(z, 1)
    # One allocation: of several large ones the C library gives most back to the system after every step.
    sizes = [count * width, 4 * at_once * len(s), at_once * width + 2]
    of_rows, rooms, ends = z.new_empty(sum(sizes)).split(sizes)  # type: ignore[no-untyped-call]
    rows = of_rows.view(count, width)  # for the gradients of the rows of S
    room = rooms.view(4, at_once, len(s))
    own_columns = OwnColumns(s, y, room[2:], ends)
    if not criterion.learns:
        return losses_and_gradients(z, y, own_columns.put_in, factors, dz, None, room[:2]), (), None
    rate = -criterion.residual_lr
    if criterion.update == "self" and not isinstance(factors.own, Tensor):
        # One number for all samples: left to the addition at the end.
        rate, factors = rate * factors.own, factors._replace(own=1.0)

    def take(part: slice, gradient: Tensor) -> None:
        own_columns.take_out(gradient, rows[part])

    losses = losses_and_gradients(z, y, own_columns.put_in, factors, dz, take, room[:2])
    if criterion.update == "self":
        s.index_add_(0, y, rows.to(s.dtype), alpha=rate)
        return losses, (), None
    return losses, (rows.to(s.dtype), y), partial(spread_rows, False, criterion.sparse)


class OwnColumns:
    """The rows of S for slices of the labels, with the own column, which S lacks, put in and taken out again.

    A mask of 0s and 1s in `torch.lerp` takes under half of the time of `torch.where`. It is exact for finite numbers,
    and only rows of S and differences of probabilities pass through it, no logits.

    Args:
        s: (K, K−1).
        y: (M,), the labels.
        room: (2, m, K) to work in, m the greatest length of a slice.
        ends: (m · (K−1) + 2,) to work in.

    >>> s, y = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([2, 0])
    >>> columns, out = OwnColumns(s, y, torch.empty(2, 2, 3), torch.empty(6)), torch.empty(2, 2)
    >>> full = columns.put_in(slice(0, 2))
    >>> full[0, :2].tolist(), full[1, 1:].tolist()
    ([5.0, 6.0], [1.0, 2.0])
    >>> columns.take_out(full, out)
    >>> out.tolist()
    [[5.0, 6.0], [1.0, 2.0]]
    """

    def __init__(self, s: Tensor, y: Tensor, room: Tensor, ends: Tensor) -> None:
        self.s, self.y, self.classes = s, y, len(s)
        self._full, self._before = room  # the rows; 1 in the columns before the own one, of the last slice
        # Rows end to end with a number to spare on either side, so that a row and the same shifted are views of it.
        self._ends = ends.zero_()
        self._windows: Tensor | None = None
        if self.classes >= 256 and ends.device.type == "cpu":
            # Windows into one strip of K ones and K zeros: copying them takes a fifth of the time of comparing.
            strip = (torch.arange(2 * self.classes) < self.classes).to(ends.dtype)
            self._windows = strip.unfold(0, self.classes, 1)  # (K + 1, K)

    def put_in(self, part: slice) -> Tensor:
        """The rows of a slice (m, K), with any number in the own column; the next slice overwrites them."""
        y = self.y[part]
        count, width = len(y), self.classes - 1
        rows = self._ends[1 : 1 + count * width].view(count, width)
        if self.s.dtype == rows.dtype:
            torch.index_select(self.s, 0, y, out=rows)
        else:
            rows.copy_(self.s[y])
        before = self._before[:count]
        if self._windows is None:
            torch.lt(torch.arange(self.classes, device=y.device), y.unsqueeze(1), out=before)
        else:
            torch.index_select(self._windows, 0, self.classes - y, out=before)
        shifted, straight = (self._ends.as_strided((count, self.classes), (width, 1), at) for at in self._starts())
        return torch.lerp(shifted, straight, before, out=self._full[:count])

    def _starts(self) -> tuple[int, int]:
        start = int(self._ends.storage_offset())  # of a view, `as_strided` counts from the beginning of its storage
        return start, start + 1

    def take_out(self, full: Tensor, out: Tensor) -> None:
        """Write (m, K) without the own column to ``out`` (m, K−1), for the slice that was put in last."""
        torch.lerp(full[:, 1:], full[:, :-1], self._before[: len(full), :-1], out=out)


def _low_rank(
    criterion: AdaptiveLabelLoss, z: Tensor, y: Tensor, factors: Factors, dz: Tensor
) -> tuple[Losses, tuple[Tensor, ...], Spread | None]:
    """The step with S = U Vᵀ: the rows of some samples at a time, never the whole S."""
    left, right = (parameter.detach().to(z.dtype) for parameter in criterion.residual_parameters())
    left_rows = left[y]
    of_left, of_right = torch.zeros_like(left_rows), torch.zeros_like(right)

    def rows_of(part: slice) -> Tensor:
        return left_rows[part] @ right.T

    def take(part: slice, gradient: Tensor) -> None:
        torch.mm(gradient, right, out=of_left[part])
        of_right.addmm_(gradient.T, left_rows[part])

    learns = criterion.learns
    room = z.new_empty(2, _samples_at_once(z, LEAST_ROWS), z.shape[1])
    losses = losses_and_gradients(z, y, rows_of, factors, dz, take if learns else None, room)
    if not learns:
        return losses, (), None
    rows, spread = low_rank_outcome(criterion, of_left, of_right, y)
    return losses, rows, spread


def _samples_at_once(z: Tensor, least: int) -> int:
    if z.device.type != "cpu":
        return len(z)
    return min(len(z), max(least, AT_ONCE // z.shape[1]))


def _weights(
    criterion: AdaptiveLabelLoss, z: Tensor, y: Tensor, sample_weight: Tensor | None, shape: torch.Size
) -> Weights:
    classes, count = criterion.num_classes, len(y)
    kept: Tensor | None = None
    if sample_weight is not None or not _all_count(y, classes, criterion.ignore_index):
        mask = y != criterion.ignore_index
        if y.device.type == "cpu" if criterion.check_inputs is None else criterion.check_inputs:
            check_labels(y, mask, classes, criterion.ignore_index, shape)
        y = torch.where(mask, y, 0)
        kept = mask.to(z.dtype) if sample_weight is None else mask * sample_weight
    one: float | Tensor = 1.0 if kept is None else kept
    samples = float(count) if kept is None else _number(kept.sum())
    mean = criterion.reduction == "mean"
    prediction, total = one, samples
    if criterion.weight is not None:
        weighted = one * criterion.weight.to(z.dtype)[y]
        prediction, total = weighted, _number(weighted.sum())
    if mean:
        prediction = _over(prediction, total)
    own = one
    if criterion.residual_reduction == "class" and (mean or criterion.update == "self"):
        totals = torch.bincount(y, kept, minlength=classes)[y].to(z.dtype)
        own = totals.reciprocal_() if kept is None else _over(one, totals)
    elif mean or criterion.update == "self":
        own = _over(one, samples)
    return Weights(y, kept, samples, prediction, own, own if mean else one)


def _all_count(y: Tensor, classes: int, ignore_index: int) -> bool:
    """Whether every label is a class and none is left out; not asked for on a device that would have to wait."""
    if y.device.type != "cpu" or len(y) == 0 or 0 <= ignore_index < classes:
        return False
    least, most = torch.aminmax(y)
    return least.item() >= 0 and most.item() < classes


def _residual_weight(
    criterion: AdaptiveLabelLoss, z: Tensor, weights: Weights
) -> tuple[float | Tensor, Callable[[Tensor], float | Tensor]]:
    """The weight of L_res, and a function that counts the hits from the leads (M, 1) and gives the accuracy."""
    accuracy, y, kept, samples = criterion.accuracy, weights.y, weights.kept, weights.samples
    if isinstance(samples, Tensor) or z.device.type != "cpu":
        right = AF.hits(z, y)
        hits = right.sum() if kept is None else right @ kept
        counts = torch.stack([hits, torch.as_tensor(samples, device=z.device, dtype=z.dtype)])
        a = accuracy.weight(counts, shared=False).to(z.dtype)
        return a, lambda lead: over(counts[0], counts[1])

    def hits_of(right: Tensor) -> float:
        return float((right.sum() if kept is None else right.to(z.dtype) @ kept).item())

    of_batch = None
    if accuracy.residual_weight == "batch":
        of_batch = hits_of(AF.hits(z, y)) / (samples or 1.0)

    def count(lead: Tensor) -> float:
        right = lead.squeeze(1) < 0
        if (lead == 0).any():  # equal logits: the first of them is the prediction
            right = AF.hits(z, y)
        hits = hits_of(right)
        accuracy.count(hits, samples)
        return hits / (samples or 1.0)

    return accuracy.weight_as_number(of_batch), count


def _number(x: Tensor) -> float | Tensor:
    """A scalar as a number, where that does not make the device wait."""
    return x.item() if x.device.type == "cpu" else x


def _over(x: float | Tensor, count: float | Tensor) -> Any:
    if isinstance(count, Tensor):
        return x / torch.where(count > 0, count, 1.0)
    return x / (count or 1.0)


def _total(each: Tensor, weight: float | Tensor) -> float | Tensor:
    """The weighted sum of a loss (M, 1)."""
    if isinstance(weight, Tensor):
        return _number(each[:, 0] @ weight)
    return _number(each.sum()) * weight


def _column(x: float | Tensor) -> float | Tensor:
    return x.unsqueeze(1) if isinstance(x, Tensor) else x

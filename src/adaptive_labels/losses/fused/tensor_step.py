"""A fused step by torch's own operations: where there is no compiled kernel, and on other devices than the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptive_labels import functional as AF
from adaptive_labels.losses.base import over
from adaptive_labels.losses.batch import all_are_classes, check_labels
from adaptive_labels.losses.fused.onepass import Factors, Losses, before_own, losses_and_gradients, put_back
from adaptive_labels.losses.fused.step import Spread, Step, low_rank_outcome, spread_rows

if TYPE_CHECKING:
    from adaptive_labels.losses.adaptive import AdaptiveLabelLoss

AT_ONCE = 2**19  # logits on the CPU
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
    at_once = _samples_at_once(z, 1)
    if not criterion.learns:
        losses = losses_and_gradients(z, y, lambda part: s[y[part]].to(z.dtype), factors, dz, None, at_once)
        return losses, (), None
    rows = z.new_empty(len(z), z.shape[1] - 1)  # the rows of S, which become their gradients

    def rows_of(part: slice) -> Tensor:
        here = rows[part]
        if s.dtype == here.dtype:
            return torch.index_select(s, 0, y[part], out=here)
        return here.copy_(s[y[part]])

    losses = losses_and_gradients(z, y, rows_of, factors, dz, lambda part, gradient: None, at_once)
    if criterion.update == "self":
        s.index_add_(0, y, rows.to(s.dtype), alpha=-criterion.residual_lr)
        return losses, (), None
    return losses, (rows.to(s.dtype), y), partial(spread_rows, False, criterion.sparse)


def _low_rank(
    criterion: AdaptiveLabelLoss, z: Tensor, y: Tensor, factors: Factors, dz: Tensor
) -> tuple[Losses, tuple[Tensor, ...], Spread | None]:
    """The step with S = U Vᵀ: the rows of some samples at a time, never the whole S."""
    left, right = (parameter.detach().to(z.dtype) for parameter in criterion.residual_parameters())
    left_rows = left[y]
    of_left, of_right = torch.zeros_like(left_rows), torch.zeros_like(right)
    columns_before = before_own(z.shape[1], z.device)

    def rows_of(part: slice) -> Tensor:
        return AF.erase(left_rows[part] @ right.T, y[part])

    def take(part: slice, gradient: Tensor) -> None:
        here = y[part]
        full = z.new_empty(len(here), z.shape[1])
        put_back(F.pad(gradient, (1, 1)), columns_before(here), here.unsqueeze(1), 0.0, full)
        torch.mm(full, right, out=of_left[part])
        of_right.addmm_(full.T, left_rows[part])

    learns = criterion.learns
    at_once = _samples_at_once(z, LEAST_ROWS)
    losses = losses_and_gradients(z, y, rows_of, factors, dz, take if learns else None, at_once)
    if not learns:
        return losses, (), None
    rows, spread = low_rank_outcome(criterion, of_left, of_right, y)
    return losses, rows, spread


def _samples_at_once(z: Tensor, least: int) -> int:
    if z.device.type != "cpu":
        return max(1, len(z))
    return max(least, AT_ONCE // z.shape[1])


def _weights(
    criterion: AdaptiveLabelLoss, z: Tensor, y: Tensor, sample_weight: Tensor | None, shape: torch.Size
) -> Weights:
    classes, count = criterion.num_classes, len(y)
    kept: Tensor | None = None
    # Not asked on a device that would have to wait for the answer.
    all_count = y.device.type == "cpu" and all_are_classes(y, classes, criterion.ignore_index)
    if sample_weight is not None or not all_count:
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

"""The fused path of AdaptiveLabelLoss: the loss and all its gradients in one pass, which ``backward`` only scales.

Two engines compute the same step: the compiled kernel for tensors on the CPU, and torch's own operations where there is
no kernel. The plain path, which autograd differentiates, is for everything else.

Shapes: M rows of K logits; S (K, K−1), or its factors U and V (K, rank).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from adaptive_labels.losses.base import Criterion
from adaptive_labels.losses.batch import Batch, number, numbers, over
from adaptive_labels.losses.fused import kernel as kernels
from adaptive_labels.losses.fused.tensors import Factors, Step, tensor_step
from adaptive_labels.losses.label_smoothing import smoothing_share
from adaptive_labels.losses.targets import hits, is_index

if TYPE_CHECKING:
    from adaptive_labels.losses.adaptive import AdaptiveLabelLoss

TWICE = (
    "AdaptiveLabelLoss: the fused path has no second derivative; construct the criterion with fused=False to "
    "differentiate its gradient (create_graph=True)"
)
Engine = Callable[["AdaptiveLabelLoss", Tensor, Tensor, Factors, bool], Step]
_PLAIN_TYPES = (Tensor, nn.Parameter)


def against_fusing(criterion: AdaptiveLabelLoss, batch: Batch, world: int) -> str:
    """Why this call takes the plain path, or nothing."""
    z = batch.logits
    if criterion.fused is False:
        return "fused=False"
    if not is_index(batch.target):
        return "targets of class probabilities take the plain path; the fused one is for class indices"
    if criterion.reduction == "none":
        return "reduction='none' takes the plain path; the fused one is for 'mean' and 'sum'"
    if type(z) not in _PLAIN_TYPES or type(batch.target) is not Tensor:
        return f"a {type(z).__name__} takes the plain path; the fused one is for ordinary tensors"
    if world > 1:
        return "several processes that share a batch take the plain path"
    if z.device.type != "cpu" and not criterion.fused:
        return f"on {z.device.type} the plain path is the default; fused=True asks for the fused one"
    return ""


def fused_loss(criterion: AdaptiveLabelLoss, batch: Batch) -> Tensor:
    """The loss by the fused path."""
    z, parameters = batch.logits, criterion.residual_parameters()
    kernel, reason = kernels.find() if z.device.type == "cpu" else (None, f"the kernel is for the CPU, not {z.device}")
    for parameter in parameters if kernel is not None else ():
        like_logits = parameter.dtype == z.dtype and parameter.device == z.device
        if not like_logits or not parameter.is_contiguous() or type(parameter) not in _PLAIN_TYPES:  # a DTensor is at 0
            kernel = None
            reason = f"the kernel needs S contiguous, in the logits' dtype {z.dtype}, on their device, and no subclass"
    used = ("tensors" if kernel is None else "kernel", reason or None)
    if (criterion.fused_path, criterion.fused_reason) != used:
        criterion.fused_path, criterion.fused_reason = used
    engine = tensor_step if kernel is None else partial(kernels.kernel_step, kernel)
    learned = parameters if criterion.update == "optimizer" else ()
    loss: Tensor = FusedLoss.apply(criterion, engine, batch, z, *learned)  # type: ignore[no-untyped-call]
    return loss


def _take_step(criterion: AdaptiveLabelLoss, engine: Engine, batch: Batch) -> tuple[Tensor, Step]:
    """The loss with its gradients. The criterion also counts the predictions, and moves S with ``update="self"``."""
    z, accuracy, learns = batch.logits, criterion.accuracy, criterion.learns
    samples = batch.sum(batch.sample_weight)
    of_batch = None
    if accuracy.residual_weight == "batch":
        of_batch = over(number((hits(z, batch.target) * batch.sample_weight).sum()), samples)
    weight = accuracy.weight(of_batch, fold=not criterion._accumulating)
    hard_factor, factor = criterion.factors()
    summed = criterion.reduction != "mean" and criterion.update == "self"  # S moves along the mean all the same
    # An engine forms the means over classes by itself, unless the totals are those of several micro-batches.
    by_class = criterion.class_mean and criterion._whole is None and (summed or criterion.reduction == "mean")
    prediction, own = Criterion.shares(criterion, batch, 1) if by_class else criterion.shares(batch, 1)
    if by_class:
        own = batch.sample_weight
    elif summed:
        own = criterion.mean_share(batch, 1)[0]
    factors = Factors(
        smoothing=smoothing_share(criterion.label_smoothing, criterion.smooth_over, criterion.num_classes),
        attraction=criterion.attraction,
        hard=hard_factor,
        residual=factor * weight,
        prediction=prediction,
        own=own,
        by_class=by_class,
        own_factor=factor,
    )
    step = engine(criterion, z, batch.target, factors, learns)
    if criterion.update == "self" and step.rows:
        _move(criterion, step.rows)
    totals = _sums(step, batch.sample_weight)
    hard, residual, *_ = _sums(step, prediction)
    loss = hard_factor * hard + factors.residual * residual
    if learns:
        loss = loss + (factor * totals[2] if summed else step.update)
    accuracy.count(totals[3], samples)
    parts = Parts(totals, samples, weight, learns, z)
    object.__setattr__(criterion, "parts", parts)  # Module's own takes ten times as long
    on_cpu = z.device.type == "cpu" and not isinstance(loss, Tensor)
    return torch.scalar_tensor(loss, dtype=z.dtype) if on_cpu else torch.as_tensor(loss).to(z), step


def _sums(step: Step, share: Tensor | float) -> Sequence[Any]:
    """The sums of a step's four values over the samples, weighed by their ``share``."""
    if isinstance(share, Tensor):
        return numbers(share.to(step.values.dtype) @ step.values)
    return step.sums if share == 1.0 else [share * total for total in step.sums]


def _move(criterion: AdaptiveLabelLoss, rows: tuple[Tensor, ...]) -> None:
    """``update="self"``: one step of S along its gradient."""
    first, *rest = (parameter.detach() for parameter in criterion.residual_parameters())
    first.index_add_(0, rows[-1], rows[0].to(first.dtype), alpha=-criterion.residual_lr)
    if rest:
        rest[0].add_(rows[1], alpha=-criterion.residual_lr)


class Parts(Mapping[str, Tensor]):
    """The parts of a loss. They become scalar tensors only when they are read, which is rare in training."""

    def __init__(self, totals: Sequence[Any], samples: Any, weight: Any, learns: bool, like: Tensor) -> None:
        self.totals, self.samples, self.weight = totals, samples, weight
        self.names = ("hard", "residual", "update", "accuracy", "weight")
        self.learns, self.dtype, self.device = learns, like.dtype, like.device

    def __getitem__(self, name: str) -> Tensor:
        if name not in iter(self):
            raise KeyError(name)
        value = self.weight if name == "weight" else over(self.totals[self.names.index(name)], self.samples)
        return torch.as_tensor(value, dtype=self.dtype, device=self.device)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.names if name != "update" or self.learns)

    def __len__(self) -> int:
        return len(list(iter(self)))


class FusedLoss(torch.autograd.Function):
    """A loss whose gradients are computed together with its value."""

    @staticmethod
    def forward(
        ctx: Any, criterion: AdaptiveLabelLoss, engine: Engine, batch: Batch, z: Tensor, *parameters: Tensor
    ) -> Tensor:
        """Take the step and keep its gradients: of ``z``, the batch's logits, and of ``parameters``, a learned S."""
        loss, step = _take_step(criterion, engine, batch)
        ctx.save_for_backward(step.dz, *(step.rows if criterion.update == "optimizer" else ()))
        ctx.criterion, ctx.distinct = criterion, step.distinct
        return loss

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients."""
        (scale,) = upstream
        dz, *rows = ctx.saved_tensors
        criterion: AdaptiveLabelLoss = ctx.criterion
        twice = torch.is_grad_enabled()  # create_graph=True
        of_s: list[Tensor | None] = [None] * (len(ctx.needs_input_grad) - 4)
        with torch.no_grad():
            # On the CPU it costs nothing to look at the factor, and it is almost always 1.
            by = None if scale.device.type == "cpu" and scale.item() == 1.0 else scale
            if rows:
                criterion.watch.notice(rows[0])
                gradients = rows[:-1] or rows
                scaled = gradients if by is None else [row * by for row in gradients]
                of_s = [_spread(criterion, scaled[0], rows[-1], ctx.distinct) if rows[1:] else scaled[0], *scaled[1:]]
            gradient = dz if by is None else dz * by
        if twice:
            gradient = _OnlyOnce.apply(gradient, torch.zeros((), requires_grad=True))  # type: ignore[no-untyped-call]
        return None, None, None, gradient, *of_s


def _spread(criterion: AdaptiveLabelLoss, rows: Tensor, labels: Tensor, distinct: bool) -> Tensor:
    """The gradient of S, or of U, from the gradients of its rows; ``distinct``: each label once, in order."""
    first = criterion.residual_parameters()[0]
    rows = rows.to(first.dtype)
    if criterion.sparse:
        return torch.sparse_coo_tensor(
            labels.unsqueeze(0), rows, first.shape, is_coalesced=distinct, check_invariants=False
        )
    if distinct and len(labels) == len(first):
        return rows
    whole = rows.new_zeros(first.shape)
    return whole.index_copy_(0, labels, rows) if distinct else whole.index_add_(0, labels, rows)


class _OnlyOnce(torch.autograd.Function):
    """A gradient that raises an error when it is differentiated again."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, tracked: Tensor) -> Tensor:
        """The gradient itself; autograd follows it because it follows ``tracked``."""
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Refuse."""
        raise RuntimeError(TWICE)

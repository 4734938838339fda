"""The fused path of AdaptiveLabelLoss: the loss and all its gradients in one pass, which ``backward`` only scales.

Two engines compute the same step: the compiled kernel for tensors on the CPU, and torch's own operations (`onepass`)
where there is no kernel. The plain path, which autograd differentiates, is for everything else.

Shapes: M rows of K logits; S (K, K−1), or its factors U and V (K, rank).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from adaptive_labels.losses.batch import (
    check_finite,
    check_sample_weights,
    check_shapes,
    full_precision,
    to_rows,
    widen,
)
from adaptive_labels.losses.fused import kernel as kernels
from adaptive_labels.losses.fused.kernel_step import kernel_step
from adaptive_labels.losses.fused.step import Step
from adaptive_labels.losses.fused.tensor_step import tensor_step

if TYPE_CHECKING:
    from adaptive_labels.losses.adaptive import AdaptiveLabelLoss

TWICE = (
    "AdaptiveLabelLoss: the fused path has no second derivative; construct the criterion with fused=False to "
    "differentiate its gradient (create_graph=True)"
)
_PLAIN_TYPES = (Tensor, nn.Parameter)


class FusedLoss(torch.autograd.Function):
    """A loss whose gradients are known with its value."""

    @staticmethod
    def forward(ctx: Any, step_of: Callable[[Tensor], Step], z: Tensor, first: Tensor, second: Tensor | None) -> Tensor:
        """Run the step and keep its gradients. ``first`` and ``second`` are the parameters of S."""
        step = step_of(z)
        ctx.save_for_backward(step.dz, *step.rows)
        ctx.spread = step.spread
        return step.loss

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients."""
        (scale,) = upstream
        dz, *rows = ctx.saved_tensors
        twice = torch.is_grad_enabled()  # create_graph=True
        first = second = None
        with torch.no_grad():
            # On the CPU it costs nothing to look at the factor, and it is almost always 1.
            by = None if scale.device.type == "cpu" and scale.item() == 1.0 else scale
            if ctx.spread is not None:
                first, second = ctx.spread(tuple(rows), by)
            gradient = dz if by is None else dz * by
        if twice:
            gradient = _OnlyOnce.apply(gradient, torch.zeros((), requires_grad=True))  # type: ignore[no-untyped-call]
        return None, gradient, first, second


class _OnlyOnce(torch.autograd.Function):
    """A gradient that says, when it is differentiated in its turn, that it cannot be."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, tracked: Tensor) -> Tensor:
        """The gradient itself, as something that autograd follows because ``tracked`` is."""
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Refuse."""
        raise RuntimeError(TWICE)


def fused_loss(
    criterion: AdaptiveLabelLoss, input: Tensor, target: Tensor, sample_weight: Tensor | None
) -> Tensor | None:
    """The loss by the fused path, or None if the plain path must compute it; the criterion then knows the reason."""
    check_shapes(input, target, criterion.num_classes)
    reason = _against_fusing(criterion, input, target)
    if reason:
        if criterion.fused:
            raise ValueError(f"fused=True: {reason}")
        criterion.fused_path, criterion.fused_reason = "plain", reason
        return None
    criterion.watch_gradients()
    z = widen(to_rows(input))
    y = target.reshape(-1).long()
    shape = target.shape
    if criterion.check_finite:
        check_finite(z.detach())
    weight = None
    if sample_weight is not None:
        checked = input.device.type == "cpu" if criterion.check_inputs is None else criterion.check_inputs
        weight = check_sample_weights(sample_weight, shape, checked).to(z.dtype)
    kernel, reason = kernels.find() if z.device.type == "cpu" else (None, f"the kernel is for the CPU, not {z.device}")
    parameters = criterion.residual_parameters()
    if kernel is not None:
        reason = _against_kernel(criterion, z, parameters)
    criterion.fused_path, criterion.fused_reason = "tensors" if reason else "kernel", reason or None

    def step_of(z: Tensor) -> Step:
        if reason or kernel is None:
            step = tensor_step(criterion, z, y, weight, shape)
        else:
            step = kernel_step(criterion, kernel, z, y, weight, shape)
        criterion.parts = step.parts
        return step

    second = parameters[1] if len(parameters) > 1 else None
    with full_precision(input.device.type):
        loss: Tensor = FusedLoss.apply(step_of, z, parameters[0], second)  # type: ignore[no-untyped-call]
    return loss


def _against_fusing(criterion: AdaptiveLabelLoss, input: Tensor, target: Tensor) -> str:
    """Why this call needs the plain path, or nothing."""
    if target.is_floating_point():
        return "targets of class probabilities take the plain path; the fused one is for class indices"
    if criterion.reduction == "none":
        return "reduction='none' takes the plain path; the fused one is for 'mean' and 'sum'"
    if type(input) not in _PLAIN_TYPES or type(target) is not Tensor:
        return f"a {type(input).__name__} takes the plain path; the fused one is for ordinary tensors"
    if dist.is_available() and dist.is_initialized() and criterion.world() > 1:
        return "several processes that share a batch take the plain path"
    return ""


def _against_kernel(criterion: AdaptiveLabelLoss, z: Tensor, parameters: list[nn.Parameter]) -> str:
    """Why this call needs torch's operations rather than the kernel, or nothing."""
    for parameter in parameters:
        if parameter.dtype != z.dtype or parameter.device != z.device or not parameter.is_contiguous():
            return f"the kernel needs S contiguous, in the logits' dtype {z.dtype} and on their device"
    if criterion.accuracy.running.dtype != z.dtype:
        return f"the kernel needs the accuracy's buffers in the logits' dtype {z.dtype}"
    if criterion.weight is not None and criterion.weight.dtype != z.dtype:
        return f"the kernel needs the class weights in the logits' dtype {z.dtype}"
    return ""

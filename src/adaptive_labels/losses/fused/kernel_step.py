"""A fused step by the compiled kernel."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from adaptive_labels import functional as AF
from adaptive_labels.losses.batch import check_labels
from adaptive_labels.losses.fused import kernel as kernels
from adaptive_labels.losses.fused.step import Numbers, Spread, Step, low_rank_outcome, spread_rows

if TYPE_CHECKING:
    from adaptive_labels.losses.adaptive import AdaptiveLabelLoss


def kernel_step(
    criterion: AdaptiveLabelLoss,
    kernel: kernels.Kernel,
    z: Tensor,
    y: Tensor,
    sample_weight: Tensor | None,
    shape: torch.Size,
) -> Step:
    """A step by the kernel, with what it changes: S with ``update="self"``, and the accuracy."""
    z, y, dz = z.contiguous(), y.contiguous(), torch.empty_like(z, memory_format=torch.contiguous_format)
    call = _call(criterion, z, y, sample_weight, dz)
    rows: tuple[Tensor, ...] = ()
    spread: Spread | None = None
    if criterion.rank is not None:
        left, right = (parameter.detach() for parameter in criterion.residual_parameters())
        kept = y != criterion.ignore_index
        check_labels(y, kept, criterion.num_classes, criterion.ignore_index, shape)
        inside = torch.where(kept, y, 0)
        left_rows = left[inside]
        gradient = left_rows @ right.T  # (M, K): the samples' rows of S, which the kernel turns into their gradients
        call.s = gradient.data_ptr()
        _run(kernel, call, criterion, y, shape)
        if call.learns:
            rows, spread = low_rank_outcome(criterion, gradient @ right, gradient.T @ left_rows, inside)
    else:
        s = criterion.residual_parameters()[0]
        call.s = s.data_ptr()
        if call.learns and not call.moves:
            most = min(len(y), criterion.num_classes)
            ds, labels = z.new_empty(most, criterion.num_classes - 1), y.new_empty(most)
            call.ds, call.labels = ds.data_ptr(), labels.data_ptr()
            _run(kernel, call, criterion, y, shape)
            rows, spread = (ds[: call.count], labels[: call.count]), partial(spread_rows, True, criterion.sparse)
        else:
            _run(kernel, call, criterion, y, shape)
            if call.moves and call.learns:
                torch.autograd.graph.increment_version(s)  # autograd cannot see that the kernel has moved it
    loss, hard, residual, update, weight, accuracy = call.values
    numbers = {"hard": hard, "residual": residual, "weight": weight, "accuracy": accuracy}
    if call.learns:
        numbers["update"] = update
    return Step(torch.tensor(loss, dtype=z.dtype, device=z.device), dz, rows, spread, Numbers(numbers, z.dtype))


def _call(criterion: AdaptiveLabelLoss, z: Tensor, y: Tensor, sample_weight: Tensor | None, dz: Tensor) -> kernels.Call:
    """The arguments of the kernel, but for the address of S."""
    accuracy, moves, mean = criterion.accuracy, criterion.update == "self", criterion.reduction == "mean"
    hard_factor, factor = criterion.factors()
    given = accuracy.residual_weight
    return kernels.Call(
        n=len(y),
        k=criterion.num_classes,
        ignore_index=criterion.ignore_index,
        threads=torch.get_num_threads(),
        is_double=z.dtype == torch.float64,
        low_rank=criterion.rank is not None,
        learns=criterion.learns,
        sum=not mean,
        by_class=criterion.residual_reduction == "class" and (mean or moves),
        moves=moves,
        mode=kernels.MODES[given if isinstance(given, str) else "constant"],
        held=accuracy.held,
        smoothing=AF.smoothing_share(criterion.label_smoothing, criterion.smooth_over, criterion.num_classes),
        hard_factor=hard_factor,
        factor=factor,
        attraction=criterion.attraction,
        step=criterion.residual_lr,
        weight=0.0 if isinstance(given, str) else given,
        momentum=accuracy.momentum,
        z=z.data_ptr(),
        y=y.data_ptr(),
        class_weight=None if criterion.weight is None else criterion.weight.data_ptr(),
        sample_weight=None if sample_weight is None else sample_weight.data_ptr(),
        dz=dz.data_ptr(),
        running=accuracy.running.data_ptr(),
        pending=accuracy.pending_counts.data_ptr(),
        epoch=accuracy.epoch_counts.data_ptr(),
        last_epoch=accuracy.last_epoch.data_ptr(),
    )


def _run(
    kernel: kernels.Kernel, call: kernels.Call, criterion: AdaptiveLabelLoss, y: Tensor, shape: torch.Size
) -> None:
    status = kernel(call)
    if status == kernels.BAD_LABEL:
        check_labels(y, y != criterion.ignore_index, criterion.num_classes, criterion.ignore_index, shape)
    if status != kernels.OK:
        raise MemoryError("AdaptiveLabelLoss: no memory for the kernel's rows")
    criterion.accuracy.pending_global = False

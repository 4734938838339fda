"""Turn the caller's tensors into checked rows with weights, the first step of every criterion.

Shapes: the caller's ``input`` is (K,), (N, K) or (N, K, d1, …); inside there are M = N·d1·… rows of K logits.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from adaptive_labels.losses.targets import Labels, is_index

REDUCTIONS = ("mean", "sum", "none")


class Batch(NamedTuple):
    """The caller's tensors as rows, ready for the functions in :mod:`adaptive_labels.functional`.

    ``logits`` (M, K) in float32 or wider; ``target`` (M,) indices, 0 where ignored, (M, K) probabilities, or two labels
    per sample; ``sample_weight`` (M,), 0 where ignored, or 1.0 if every sample counts once; ``weight``, the same times
    the class weights; ``shape``, that of the unreduced loss; ``teacher_logits``, those of other networks, (M, K) each.
    """

    logits: Tensor
    target: Any
    sample_weight: Tensor | float
    weight: Tensor | float
    shape: torch.Size
    teacher_logits: tuple[Tensor, ...] = ()

    def with_probabilities(self) -> "Batch":
        """This batch with class probabilities in the place of two labels per sample."""
        if not isinstance(self.target, Labels):
            return self
        return self._replace(target=self.target.probabilities(self.logits.shape[1], self.logits.dtype))

    def sum(self, each: Tensor | float) -> Tensor | float:
        """The sum over the samples of a weight (M,), or of one that all have."""
        return each.sum() if isinstance(each, Tensor) else each * self.logits.shape[0]

    def vector(self, *values: Tensor | float) -> Tensor:
        """Numbers or scalars as one tensor, of the logits' type and on their device."""
        like = {"dtype": self.logits.dtype, "device": self.logits.device}
        if not any(isinstance(value, Tensor) for value in values):
            return torch.tensor(values, **like)  # type: ignore[arg-type]
        return torch.stack([torch.as_tensor(value, **like) for value in values])  # type: ignore[arg-type]

    def logged(self, part: Tensor | float) -> Tensor | float:
        """A part of the loss, (M,) or a scalar, as a detached scalar: the mean over the samples that count."""
        if not isinstance(part, Tensor):
            return part
        part = part.detach()
        return part if part.dim() == 0 else over((part * self.sample_weight).sum(), self.sum(self.sample_weight))


class WholeStep(NamedTuple):
    """Totals over all micro-batches of a step, on all ``world`` processes.

    ``weight``: the sum of the samples' class weights; ``samples``: their number.
    """

    weight: Tensor | float
    samples: Tensor | float
    world: int


@torch.no_grad()
def count_step(
    targets: Iterable[Tensor],
    num_classes: int,
    ignore_index: int,
    class_weight: Tensor | None,
    device: torch.device,
    world: int,
) -> WholeStep:
    """The totals over the micro-batches with these targets, on all processes if ``world`` is more than one."""
    counts = torch.zeros(num_classes, dtype=torch.float64, device=device)
    for target in targets:
        if not isinstance(target, Tensor):
            raise TypeError(f"targets must hold one torch.Tensor per micro-batch, got {type(target).__name__}")
        if is_index(target):
            rows = target.reshape(-1).long()
            kept = rows != ignore_index
            _check_labels(rows, kept, num_classes, ignore_index, target.shape)
            counts += torch.bincount(rows[kept].to(device), minlength=num_classes)
            continue
        rows = widen(to_rows(target))
        if rows.shape[1] != num_classes:
            raise ValueError(f"targets has class probabilities of {rows.shape[1]} classes, not {num_classes}")
        counts += rows.sum(0).to(device)
    if world > 1:
        dist.all_reduce(counts)
    total = counts if class_weight is None else counts * class_weight
    return WholeStep(number(total.sum()), number(counts.sum()), world)


def every_process() -> int:
    """How many processes there are, whether or not they share a batch."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def over(total: Any, count: Any) -> Any:
    """``total / count``, and 0 where nothing was counted (then the total is 0 as well); of tensors or numbers."""
    return total / (count + (count == 0))


def number(value: Tensor) -> Any:
    """A scalar as a number on the CPU, where that costs less than a tiny tensor; else as it is."""
    return value.item() if value.device.type == "cpu" and not torch.compiler.is_compiling() else value


def numbers(values: Tensor) -> Sequence[Any]:
    """The entries of a vector, each as :func:`number` gives it."""
    on_cpu = values.device.type == "cpu" and not torch.compiler.is_compiling()
    return values.tolist() if on_cpu else values.unbind()


def prepare(
    input: Tensor,
    target: Any,
    sample_weight: Tensor | None,
    teacher_logits: Tensor | Sequence[Tensor] | None,
    shape: torch.Size,
    *,
    class_weight: Tensor | None,
    ignore_index: int,
) -> Batch:
    """Turn the caller's tensors into rows, and check the values of those on the CPU. Nothing of theirs is changed.

    ``shape`` is what :func:`check_shapes` found.
    """
    logits = widen(to_rows(input))
    check_values = input.device.type == "cpu" and not torch.compiler.is_compiling()
    own: Tensor | float = 1.0
    rows: Any
    if isinstance(target, tuple):
        rows, own = _pairs(target, logits, shape, ignore_index, check_values)
    elif is_index(target):
        rows, own = _labels(target, logits, shape, ignore_index, check_values)
    else:
        if ignore_index >= 0:
            raise ValueError(
                f"ignore_index={ignore_index} is for class indices; with class probabilities as targets leave it at "
                "its default, and give the rows to be left out a sample_weight of 0"
            )
        rows = to_rows(target).to(logits.dtype)
        if check_values:
            _check_probabilities(rows, target.dtype)
    if sample_weight is not None:
        own = own * _sample_weights(sample_weight, shape, check_values).to(logits.dtype)
    weight = own
    if class_weight is not None:
        class_weight = class_weight.to(logits.dtype)
        if isinstance(rows, Labels):
            assert rows.shares is not None
            weight = own * (class_weight[rows.classes] * rows.shares).sum(1)
        else:
            weight = own * (class_weight[rows] if is_index(rows) else rows @ class_weight)
    return Batch(logits, rows, own, weight, shape, _teacher_logits(teacher_logits, input))


def _labels(
    target: Tensor, logits: Tensor, shape: torch.Size, ignore_index: int, check_values: bool
) -> tuple[Tensor, Tensor | float]:
    """The labels as a row (M,), 0 where ignored, and 0 or 1 for each, or 1.0 if none is ignored."""
    rows = target if target.dim() == 1 and target.dtype == torch.int64 else target.reshape(-1).long()
    if check_values and are_classes(rows, logits.shape[1], ignore_index):
        return rows, 1.0
    kept = rows != ignore_index
    if check_values:
        _check_labels(rows, kept, logits.shape[1], ignore_index, shape)
    return torch.where(kept, rows, 0), kept.to(logits.dtype)


def _pairs(
    target: tuple[Tensor, Tensor, Any], logits: Tensor, shape: torch.Size, ignore_index: int, check_values: bool
) -> tuple[Labels, Tensor | float]:
    """Two labels per sample with their shares, and as above; a sample is left out if either label is ignored."""
    *both, lam = target
    (first, own), (second, other) = (_labels(labels, logits, shape, ignore_index, check_values) for labels in both)
    share = torch.as_tensor(lam, dtype=logits.dtype, device=logits.device).detach()
    if share.dim() == 1 and len(shape) > 1:
        share = share.reshape(-1, *[1] * (len(shape) - 1))
    share = share.expand(shape).reshape(-1)
    if check_values and not bool(((share >= 0) & (share <= 1)).all()):
        raise ValueError("target: lam in (labels_a, labels_b, lam) must be in [0, 1]")
    return Labels(torch.stack((first, second), 1), torch.stack((share, 1 - share), 1)), own * other


def to_rows(x: Tensor) -> Tensor:
    """(K,), (N, K) or (N, K, d1, …) → (M, K)."""
    if x.dim() == 1:
        return x.unsqueeze(0)
    return x if x.dim() == 2 else x.movedim(1, -1).reshape(-1, x.shape[1])


def widen(x: Tensor) -> Tensor:
    """At least float32: logarithms of half-precision probabilities are too inexact for this loss."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def wide_dtype() -> torch.dtype:
    """The default dtype, or float32 if that is a half-precision type, in which a criterion's state would overflow."""
    default = torch.get_default_dtype()
    return default if default in (torch.float32, torch.float64) else torch.float32


def full_precision(device_type: str) -> AbstractContextManager[None]:
    """A context without autocast, which would compute the matrix products of labels in half precision."""
    if torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()


def check_shapes(input: Tensor, target: Any, num_classes: int) -> torch.Size:
    """Raise unless ``input`` are logits over ``num_classes`` and ``target`` fits them in shape and dtype.

    Returns the shape of the unreduced loss: the input's without its class dimension.
    """
    if isinstance(target, tuple):
        if len(target) != 3 or not all(isinstance(part, Tensor) and is_index(part) for part in target[:2]):
            raise TypeError("a target with two labels per sample must be (labels_a, labels_b, lam), labels as integers")
        lam = torch.as_tensor(target[2])
        shape = check_shapes(input, target[0], num_classes)
        if lam.dim() and lam.shape not in (shape, shape[:1]):
            raise ValueError(f"target: lam must be a number or have shape {tuple(shape[:1])}, got {tuple(lam.shape)}")
        return check_shapes(input, target[1], num_classes)
    if (  # the usual case, in a third of the time
        type(input) is type(target) is Tensor
        and input.is_floating_point()
        and target.dtype == torch.int64
        and target.dim() == 1
        and input.shape == (len(target), num_classes)
    ):
        return target.shape
    for name, value in (("input", input), ("target", target)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    if not input.is_floating_point():
        raise TypeError(f"input must hold floating-point logits, got {input.dtype}")
    if input.dim() == 0:
        raise ValueError("input must have shape (K,), (N, K) or (N, K, d1, …), got a scalar")
    dimension = 0 if input.dim() == 1 else 1
    if input.shape[dimension] != num_classes:
        raise ValueError(
            f"input has {input.shape[dimension]} classes in dimension {dimension} (shape {tuple(input.shape)}), "
            f"but num_classes is {num_classes}"
        )
    if target.dtype == torch.bool or target.is_complex():
        raise TypeError(
            f"target must hold class indices (integers) or class probabilities (floats), got {target.dtype}"
        )
    expected = torch.Size(()) if input.dim() == 1 else input.shape[:1] + input.shape[2:]
    if target.is_floating_point():
        if target.shape != input.shape:
            hint = "; class indices must be integers: target.long()" if target.shape == expected else ""
            raise ValueError(
                f"target of class probabilities must have the shape of input {tuple(input.shape)}, "
                f"got {tuple(target.shape)}{hint}"
            )
    elif target.shape != expected:
        if target.shape == input.shape:
            raise ValueError(
                f"target has integers in the shape of input {tuple(input.shape)}, which reads as multi-label targets. "
                "This loss needs one distribution over the classes per sample, since the residual label is defined by "
                "the one class that is right: pass class indices "
                f"of shape {tuple(expected)}, or class probabilities as floats whose rows sum to 1"
            )
        raise ValueError(
            f"target of class indices must have shape {tuple(expected)} for input {tuple(input.shape)}, "
            f"got {tuple(target.shape)}"
        )
    return expected


def check_class_weight(weight: Tensor | None, num_classes: int) -> Tensor | None:
    """The class weights as a detached copy, or an error that says what is wrong with them."""
    if weight is None:
        return None
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        got = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise TypeError(f"weight must be a floating-point torch.Tensor of shape ({num_classes},), got {got}")
    if weight.shape != (num_classes,):
        raise ValueError(f"weight must have shape ({num_classes},), got {tuple(weight.shape)}")
    if not weight.is_meta and not bool((torch.isfinite(weight) & (weight >= 0)).all()):
        raise ValueError("weight must be finite and at least 0 for every class")
    return weight.detach().clone()


def are_classes(rows: Tensor, num_classes: int, ignore_index: int) -> bool:
    """Whether every label is a class and counts."""
    if 0 <= ignore_index < num_classes or rows.numel() == 0:
        return False
    low, high = rows.aminmax()
    return low.item() >= 0 and high.item() < num_classes


def _check_labels(rows: Tensor, kept: Tensor, num_classes: int, ignore_index: int, shape: torch.Size) -> None:
    """Raise unless the labels that are ``kept`` are classes; ``shape`` is that of the caller's target."""
    wrong = kept & ((rows < 0) | (rows >= num_classes))
    if bool(wrong.any()):
        where = wrong.reshape(shape).nonzero()[0].tolist()
        raise ValueError(
            f"target must be in [0, {num_classes - 1}] or ignore_index ({ignore_index}), "
            f"got {int(rows[wrong][0])} at position {where[0] if len(where) == 1 else tuple(where)} "
            f"({int(wrong.sum()):,} such {'value' if int(wrong.sum()) == 1 else 'values'})"
        )


def _check_probabilities(rows: Tensor, dtype: torch.dtype) -> None:
    """Raise unless the rows are distributions, as far as ``dtype``, that of the caller, can say."""
    totals = rows.sum(1)
    tolerance = max(1e-3, 4 * torch.finfo(dtype).eps) + 1e-5 * rows.shape[1]
    wrong = ~((totals - 1).abs() <= tolerance) | (rows < 0).any(1)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise ValueError(
            f"target row {row} is not a distribution: it sums to {float(totals[row]):.4g} with smallest entry "
            f"{float(rows[row].min()):.4g}; class probabilities must be at least 0 and sum to 1 in each row. "
            "Multi-label targets (several ones in a row) are not supported: the residual label is defined by the one "
            "class that is right"
        )


def _sample_weights(sample_weight: Tensor, shape: torch.Size, check_values: bool) -> Tensor:
    """The weights of the samples as a detached row (M,), or an error that says what is wrong with them."""
    if not isinstance(sample_weight, Tensor):
        raise TypeError(f"sample_weight must be a torch.Tensor, got {type(sample_weight).__name__}")
    if sample_weight.shape != shape:
        if len(shape) > 1 and sample_weight.shape == shape[:1]:  # one weight per image, for all its pixels
            sample_weight = sample_weight.reshape(-1, *[1] * (len(shape) - 1)).expand(shape)
        else:
            raise ValueError(f"sample_weight must have shape {tuple(shape)}, got {tuple(sample_weight.shape)}")
    flat = sample_weight.detach().reshape(-1)
    if check_values and not bool((torch.isfinite(flat) & (flat >= 0)).all()):
        raise ValueError("sample_weight must be finite and at least 0 for every sample")
    return flat


def _teacher_logits(teacher_logits: Tensor | Sequence[Tensor] | None, input: Tensor) -> tuple[Tensor, ...]:
    if teacher_logits is None:
        return ()
    teacher_logits = (teacher_logits,) if isinstance(teacher_logits, Tensor) else tuple(teacher_logits)
    for one in teacher_logits:
        if not isinstance(one, Tensor) or not one.is_floating_point():
            raise TypeError("teacher_logits must hold floating-point logits, as a tensor or a sequence of tensors")
        if one.shape != input.shape:
            raise ValueError(
                f"teacher_logits must have the shape of input {tuple(input.shape)}, got {tuple(one.shape)}"
            )
    return tuple(widen(to_rows(one.detach())) for one in teacher_logits)

"""The compiled kernel of the fused path: used if it was built, called through ctypes, never compiled on its own.

It is built when the package is installed from source with a C compiler present, or later by
``python -m adaptive_labels.losses.fused build``. Without it, torch's operations compute the same.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from adaptive_labels.losses.fused.tensors import Factors, Step

if TYPE_CHECKING:
    from adaptive_labels.losses.adaptive import AdaptiveLabelLoss

FOLDER = Path(__file__).parent
NAME = "_alr"
INTERFACE = 7  # the same number stands in alr.c: a library that was built from other sources is not called
OK, NO_MEMORY, BAD_LABEL = 0, -1, 1
BUILD = "python -m adaptive_labels.losses.fused build"

_integers = "n k threads is_double low_rank by_class"
_numbers = "smoothing attraction hard residual weight own step"
_addresses = "z y weights owns s dz ds labels values"


class Call(ctypes.Structure):
    """The arguments of a call and its results: the same struct as ``Call`` in ``alr.c``, which explains the fields."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in _integers.split()),
        *((name, ctypes.c_double) for name in _numbers.split()),
        *((name, ctypes.c_void_p) for name in _addresses.split()),
        ("sums", ctypes.c_double * 4),
        ("update", ctypes.c_double),
        ("count", ctypes.c_int64),
    )


Kernel = Callable[[Call], int]

_off = False


def find() -> tuple[Kernel | None, str]:
    """The kernel, or None and the reason why there is none."""
    return (None, "the kernel is switched off") if _off else _built()


@contextmanager
def switched_off() -> Iterator[None]:
    """A context without the kernel, in all threads, to compare it with torch's operations."""
    global _off
    before, _off = _off, True
    try:
        yield
    finally:
        _off = before


@cache
def _built() -> tuple[Kernel | None, str]:
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = FOLDER / (NAME + suffix)
        if path.exists():
            try:
                return load(path), ""
            except OSError as error:
                return None, f"the kernel does not load ({error}); build it again with `{BUILD}`"
            except ValueError:
                return None, f"the kernel was built from other sources; build it again with `{BUILD}`"
    return None, f"the kernel has not been built; `{BUILD}` does it where there is a C compiler"


def load(path: Path) -> Kernel:
    """Load the kernel from a library, or raise a ``ValueError`` if its interface differs. It uses torch's threads."""
    library = ctypes.CDLL(str(path))
    found = ctypes.c_int.in_dll(library, "adaptive_labels_interface").value  # a ValueError if there is no such name
    if found != INTERFACE:
        raise ValueError(f"{path} has interface {found}, not {INTERFACE}")
    function = library.adaptive_labels_call
    function.argtypes, function.restype = [ctypes.POINTER(Call)], ctypes.c_int
    return function


def kernel_step(
    kernel: Kernel, criterion: AdaptiveLabelLoss, z: Tensor, y: Tensor, factors: Factors, learns: bool
) -> Step:
    """A step by the kernel. A dense S of ``update="self"`` is moved by it."""
    z, y = z.contiguous(), y.contiguous()
    samples, classes = z.shape
    dz, values = torch.empty_like(z), torch.empty(samples, 4, dtype=torch.float64)
    weights, weight = _array(factors.prediction)
    owns, own = _array(factors.own)
    call = Call(
        n=samples,
        k=classes,
        threads=torch.get_num_threads(),
        is_double=z.dtype == torch.float64,
        low_rank=criterion.rank is not None,
        by_class=factors.by_class,
        smoothing=factors.smoothing,
        attraction=factors.attraction,
        hard=factors.hard,
        residual=factors.residual,
        weight=weight,
        own=own * factors.own_factor,
        z=z.data_ptr(),
        y=y.data_ptr(),
        weights=None if weights is None else weights.data_ptr(),
        owns=None if owns is None else owns.data_ptr(),
        dz=dz.data_ptr(),
        values=values.data_ptr(),
    )
    first, *rest = criterion.residual_parameters()
    rows: tuple[Tensor, ...] = ()
    if rest:
        left_rows = first[y]
        gradient = left_rows @ rest[0].T  # (M, K): the samples' rows of S, which the kernel turns into their gradients
        call.s = gradient.data_ptr()
        _run(kernel, call)
        rows = (gradient @ rest[0], gradient.T @ left_rows, y) if learns else ()
        return Step(values, dz, rows, sums=list(call.sums), update=call.update)
    call.s = first.data_ptr()
    if not learns:
        _run(kernel, call)
    elif criterion.update == "self":
        call.step = criterion.residual_lr
        _run(kernel, call)
        torch.autograd.graph.increment_version(first)  # autograd cannot see that the kernel has moved it
    elif classes <= samples and not criterion.sparse:  # few classes: their rows go where they belong at once
        ds = torch.zeros(classes, classes - 1, dtype=z.dtype)
        call.ds = ds.data_ptr()
        _run(kernel, call)
        rows = (ds,)
    else:
        most = min(samples, classes)
        ds, labels = torch.empty(most, classes - 1, dtype=z.dtype), torch.empty(most, dtype=torch.int64)
        call.ds, call.labels = ds.data_ptr(), labels.data_ptr()
        _run(kernel, call)
        rows = (ds, labels) if call.count == most else (ds[: call.count], labels[: call.count])
    return Step(values, dz, rows, distinct=True, sums=list(call.sums), update=call.update)


def _array(share: Tensor | float) -> tuple[Tensor | None, float]:
    return (share.double().contiguous(), 1.0) if isinstance(share, Tensor) else (None, share)


def _run(kernel: Kernel, call: Call) -> None:
    status = kernel(call)
    if status == BAD_LABEL:
        raise ValueError(f"target must be in [0, {call.k - 1}] or ignore_index; check_inputs=True says where it is not")
    if status != OK:
        raise MemoryError("AdaptiveLabelLoss: no memory for the kernel's rows")

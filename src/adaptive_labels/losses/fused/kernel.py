"""The compiled kernel: used if it was built, called through ctypes, never compiled on its own.

It is built when the package is installed from source with a C compiler present, or later by
``python -m adaptive_labels.losses.fused build``. Without it, torch's operations compute the same.
"""

import ctypes
import importlib.machinery
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from adaptive_labels.losses.closed_form import RowGradients, Step, Weights
from adaptive_labels.losses.targets import Labels

FOLDER = Path(__file__).parent
NAME = "_alr"
INTERFACE = 9  # the same number stands in alr.c: a library that was built from other sources is not called
OK, NO_MEMORY, BAD_LABEL = 0, -1, 1
BUILD = "python -m adaptive_labels.losses.fused build"

_integers = "n k c threads is_double mean"
_numbers = "smoothing attraction residual weight own"
_addresses = "z y shares weights owns s dz ds labels counts values"


class Call(ctypes.Structure):
    """The arguments of a call and its results: the same struct as ``Call`` in ``alr.c``, which explains the fields."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in _integers.split()),
        *((name, ctypes.c_double) for name in _numbers.split()),
        *((name, ctypes.c_void_p) for name in _addresses.split()),
        ("sums", ctypes.c_double * 3),
        ("update", ctypes.c_double),
        ("samples", ctypes.c_double),
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
    kernel: Kernel, z: Tensor, labels: Labels, table: Tensor, weights: Weights, smoothing: float, attraction: float
) -> Step:
    """:func:`adaptive_labels.losses.closed_form.closed_form` by the kernel; ``table`` is S (K, K−1)."""
    z, classes = z.contiguous(), labels.classes.contiguous()
    samples, count = z.shape
    rows = min(classes.numel(), count)
    shares = None if labels.shares is None else labels.shares.double().contiguous()
    each, weight = _array(weights.prediction)
    owns, own = _array(weights.own)
    dz, values = torch.empty_like(z), torch.empty(samples, 3, dtype=torch.float64)
    ds, counts = torch.empty(rows, count - 1, dtype=z.dtype), torch.empty(rows, dtype=torch.float64)
    distinct = torch.empty(rows, dtype=torch.int64)
    call = Call(
        n=samples,
        k=count,
        c=classes.shape[1],
        threads=torch.get_num_threads(),
        is_double=z.dtype == torch.float64,
        mean=weights.mean,
        smoothing=smoothing,
        attraction=attraction,
        residual=weights.residual,
        weight=weight,
        own=own,
        z=z.data_ptr(),
        y=classes.data_ptr(),
        shares=None if shares is None else shares.data_ptr(),
        weights=None if each is None else each.data_ptr(),
        owns=None if owns is None else owns.data_ptr(),
        s=table.data_ptr(),
        dz=dz.data_ptr(),
        ds=ds.data_ptr(),
        labels=distinct.data_ptr(),
        counts=counts.data_ptr(),
        values=values.data_ptr(),
    )
    status = kernel(call)
    if status == BAD_LABEL:
        raise ValueError(f"target must be in [0, {call.k - 1}] or ignore_index")
    if status != OK:
        raise MemoryError("AdaptiveLabelLoss: no memory for the kernel's rows")
    if call.count < rows:
        ds, counts, distinct = ds[: call.count], counts[: call.count], distinct[: call.count]
    gradients = RowGradients(
        None if call.count == count else distinct, ds, None if weights.mean else counts.to(z.dtype)
    )
    return Step(values, dz, gradients, call.update, call.samples, tuple(call.sums))


def _array(share: Tensor | float) -> tuple[Tensor | None, float]:
    return (share.double().contiguous(), 1.0) if isinstance(share, Tensor) else (None, share)

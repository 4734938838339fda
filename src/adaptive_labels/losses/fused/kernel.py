"""The compiled kernel of the fused path: found if it was built, called through ctypes, never compiled unasked.

It is built when the package is installed from source with a C compiler present, or later by
``python -m adaptive_labels.losses.fused build``. Without it the same is computed with torch's own operations.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
NAME = "_alr"
INTERFACE = 2  # the same number stands in alr.c: a library that was built from other sources is not called
OK, NO_MEMORY, BAD_LABEL = 0, -1, 1
MODES = {"constant": 0, "running": 1, "batch": 2, "epoch": 3, "waiting": 4}
BUILD = "python -m adaptive_labels.losses.fused build"

_integers = "n k ignore_index threads is_double low_rank learns sum by_class moves mode held"
_numbers = "smoothing hard_factor factor attraction step weight momentum"
_addresses = "z y class_weight sample_weight s dz ds labels running pending epoch last_epoch"


class Call(ctypes.Structure):
    """The arguments of a call, and what it answers: the twin of ``Call`` in ``alr.c``, which explains the fields."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in _integers.split()),
        *((name, ctypes.c_double) for name in _numbers.split()),
        *((name, ctypes.c_void_p) for name in _addresses.split()),
        ("values", ctypes.c_double * 6),
        ("count", ctypes.c_int64),
    )


Kernel = Callable[[Call], int]


_off = False


def find() -> tuple[Kernel | None, str]:
    """The kernel, or None and the reason why there is none."""
    return (None, "the kernel is switched off") if _off else _built()


@contextmanager
def switched_off() -> Iterator[None]:
    """Do without the kernel within this context, in all threads: to compare what computes the same without it."""
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
    """The kernel in a library, or a ``ValueError`` if it is of another interface.

    torch must have been imported: the library uses its threads.
    """
    import torch  # noqa: F401

    library = ctypes.CDLL(str(path))
    found = ctypes.c_int.in_dll(library, "adaptive_labels_interface").value  # a ValueError if there is no such name
    if found != INTERFACE:
        raise ValueError(f"{path} has interface {found}, not {INTERFACE}")
    function = library.adaptive_labels_call
    function.argtypes, function.restype = [ctypes.POINTER(Call)], ctypes.c_int
    kernel: Kernel = function
    return kernel

"""Arrays that are too large for the memory: each in a file without a name, which is gone when the process ends."""

import mmap
import os
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.lab.files import write_error

LARGEST_HELD = 2**28  # bytes of an array that are held in memory

_MAPPED: "weakref.WeakValueDictionary[int, np.memmap[Any, Any]]" = weakref.WeakValueDictionary()
"""The arrays that are in files and in use, by the address of their first byte."""


def room(rows: int, columns: int, folder: Path | None) -> NDArray[np.float32]:
    """Room for (N, K) numbers: in memory; where they are many and there is a folder, in a file there."""
    size = 4 * rows * columns
    if folder is None or size <= LARGEST_HELD or not hasattr(os, "posix_fallocate"):
        return np.empty((rows, columns), np.float32)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a disk that is full says so here, and not in the middle
            found = np.memmap(file, np.float32, "r+", shape=(rows, columns))
    except OSError as error:
        raise write_error(folder, error) from error
    _MAPPED[_address(found)] = found
    return found


def let_go(values: Any) -> None:
    """Take the pages of an array or tensor out of memory, as far as they are in a file of `room`; nothing is lost.

    The system would do so itself, but only when the memory is full: until then they count as this process's.
    """
    address = _address(values)
    for start, found in list(_MAPPED.items()):
        if start <= address < start + found.nbytes and hasattr(mmap, "MADV_DONTNEED"):
            found._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


def _address(values: Any) -> int:
    address = values.data_ptr() if hasattr(values, "data_ptr") else values.__array_interface__["data"][0]
    return int(address)

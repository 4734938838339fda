"""Results that are computed once and cached on disk: one folder per entry, which is complete or absent.

Everything in it can be made again from the data; it may be deleted at any time, by entry or as a whole.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from adaptive_labels.lab.data.dataset import DataError
from adaptive_labels.lab.files import expanded

CACHE = "ALR_CACHE"  # the environment variable with the folder
_A_DAY = 24 * 3600


def cache_folder() -> Path:
    """Where entries are: $ALR_CACHE, else $XDG_CACHE_HOME/adaptive-labels, else ~/.cache/adaptive-labels."""
    given = os.environ.get(CACHE)
    return expanded(given or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "adaptive-labels"))


def cached(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The entry of this kind and key (a hash of all that it depends on): as it is on disk, or made now.

    ``make`` fills a folder; if it raises, or this process is ended, there is no entry. Its OSErrors are those of
    writing; what cannot be read is a DataError already.
    """
    entry = cache_folder() / kind / key
    if entry.is_dir():
        return entry
    part = entry.with_name(f".{key}.{os.getpid()}.part")
    try:
        for left in entry.parent.glob(f".{key}.*.part"):  # of processes that were killed, if they are a day old
            with suppress(FileNotFoundError):  # another process has just finished it
                if left == part or time.time() - left.stat().st_mtime > _A_DAY:
                    shutil.rmtree(left, ignore_errors=True)
        part.mkdir(parents=True)
        make(part)
        try:
            part.rename(entry)
        except OSError:
            if not entry.is_dir():  # else another process was faster; what it made is the same
                raise
    except OSError as error:
        raise DataError(
            f"{cache_folder()}, the cache, cannot be written: {error.strerror or error}; name another folder by the "
            f"environment variable {CACHE}."
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return entry


def hash_of(depends_on: Any) -> str:
    """A key for an entry: a hash of all that it depends on, given as plain data."""
    content = json.dumps(depends_on, sort_keys=True).encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest()[:32]


def memmap(path: Path, dtype: DTypeLike) -> np.ndarray:
    """The numbers in a file as an array whose pages are read when they are needed, and shared between processes."""
    if path.stat().st_size == 0:
        return np.zeros(0, dtype)
    # Copy-on-write: torch takes an array that is read-only with a warning. And as a plain array: each piece of a memmap
    # is a memmap again, which costs microseconds.
    return np.memmap(path, dtype, mode="c").view(np.ndarray)

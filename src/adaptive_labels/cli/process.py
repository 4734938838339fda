"""What a command sets for its whole process, and for those that it starts, before torch is imported."""

import ctypes
import os
import sys

__all__ = ["prepare_process"]

# Numbers of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# The largest value that glibc takes, and as much free memory as a process may keep.
MMAP_THRESHOLD, TRIM_THRESHOLD = 32 * 2**20, 2**30


def prepare_process() -> None:
    """Make this process and its children a good place for training; a user's own wishes come first."""
    _share_cores()
    _keep_freed_memory()


def _share_cores() -> None:
    """Keep torch's threads from spinning for long while they wait.

    On two cores with other work on them, an epoch of the towns took 8.4 s with the spinning that OpenMP has by
    default, and 1.8 s without. It must be said before torch is imported.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = "1000"


def _keep_freed_memory() -> None:
    """Have large tensors take the memory of those before them, instead of fresh pages from the system in every step.

    A step frees its gradients and activations and the next one asks for as much again. glibc gives much of it back to
    the system in between, depending on what else was allocated. For the 16 MB gradient of fastText's embeddings, the
    page faults were most of what ALR-S seemed to cost (docs/speed.md).
    """
    wishes = {"MALLOC_MMAP_THRESHOLD_": str(MMAP_THRESHOLD), "MALLOC_TRIM_THRESHOLD_": str(TRIM_THRESHOLD)}
    if not sys.platform.startswith("linux") or wishes.keys() & os.environ.keys():
        return
    os.environ |= wishes  # which the processes of a comparison read when they start
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # another C library may lack it
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD)
        mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD)

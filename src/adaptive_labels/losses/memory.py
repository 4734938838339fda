"""Check that a dense S or a table of residual labels fits into the free memory before it is allocated."""

import os
from pathlib import Path

import torch

NOTHING = 2**27  # bytes that need no question


def check_dense_fits(num_classes: int, gradient: bool, free: int | None = None) -> None:
    """Raise if a dense S, and its dense gradient if it gets one, would not fit into the free memory.

    >>> check_dense_fits(100_000, True, free=16 * 10**9)
    Traceback (most recent call last):
    ValueError: num_classes=100000: a dense S of 100000 × 99999 float32 and its gradient take 80.0 GB, and 16.0 GB of
    memory are free. LowRankAdaptiveLabelLoss with rank 32 keeps S as a product of two 100000 × 32 matrices (26 MB)
    """
    size = 4 * num_classes * (num_classes - 1)
    if size < NOTHING or torch.get_default_device().type != "cpu":
        return
    free = free_memory() if free is None else free
    if free is None or size * (1 + gradient) <= free:
        return
    alone = gradient and size <= free
    raise ValueError(
        f"num_classes={num_classes}: a dense S of {num_classes} × {num_classes - 1} float32"
        f"{' and its gradient take' if gradient else ' takes'} {_in_words(size * (1 + gradient))}, and "
        f"{_in_words(free)} of memory are free. LowRankAdaptiveLabelLoss with rank 32 keeps S as a product of two "
        f"{num_classes} × 32 matrices ({_in_words(2 * 4 * 32 * num_classes)})"
        + ("; update='self' needs no gradient" if alone else "")
    )


def check_table_fits(rows: int, columns: int) -> None:
    """Raise if a table of residual labels would not fit into the free memory."""
    size = 3 * 4 * rows * columns  # logits, probabilities, and those in full coordinates
    free = free_memory() if size >= NOTHING else None
    if free is not None and size > free:
        raise ValueError(
            f"residual labels of {rows} × {columns} classes take {_in_words(size)} to compute, and {_in_words(free)} "
            "of memory are free: ask for some rows=…"
        )


def free_memory() -> int | None:
    """Bytes of memory that could be used now, in this container; None if unknown."""
    found = [size for size in (_of_machine(), _of_container()) if size is not None]
    return min(found) if found else None


def _of_machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except (OSError, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _of_container(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    try:
        limit = (folder / "memory.max").read_text(encoding="utf-8").strip()
        used = int((folder / "memory.current").read_text(encoding="utf-8"))
        stat = folder / "memory.stat"
        lines = stat.read_text(encoding="utf-8").splitlines() if stat.exists() else []
        # Files that were read are counted as used, but their memory is given back when it is needed.
        used -= sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
        return None if limit == "max" else max(0, int(limit) - used)
    except (OSError, ValueError):
        return None


def _in_words(size: int) -> str:
    if size >= 1e8:
        return f"{size / 1e9:.1f} GB"
    return f"{size / 1e6:.0f} MB" if size >= 1e6 else f"{size / 1e6:.1f} MB"

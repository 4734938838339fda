"""The usable cores of this machine, and the processes started together with this one."""

import os

from adaptive_labels.errors import UserError


def usable_cores() -> int:
    """How many cores this process may use: containers and job schedulers often give fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def launched() -> tuple[int, int]:
    """The number of this process, and of how many that torchrun or `--devices` started for a command; 0, 1 if alone."""
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= set(os.environ):
        return 0, 1
    try:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except ValueError:
        given = ", ".join(f"{name}={os.environ[name]!r}" for name in ("RANK", "WORLD_SIZE"))
        raise UserError(f"{given}: torchrun sets them to whole numbers; unset them to run one process") from None

"""What this machine has."""

import os


def usable_cores() -> int:
    """How many cores this process may use: containers and job schedulers often give fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

"""The usable cores of this machine, the processes started together with this one, and the time that is left."""

import os
import re
import time
from dataclasses import dataclass, field

from adaptive_labels.errors import UserError


@dataclass(frozen=True)
class TimeBudget:
    """The seconds that a comparison may take from when it began, by a clock that other processes share.

    key: names what the budget led to in a file beside the runs, so that the same command finds its own runs again.
    """

    seconds: float
    began: float = field(default_factory=time.time)
    key: str = ""

    @classmethod
    def parse(cls, text: str) -> "TimeBudget":
        """A budget of 90s, 30m or 1.5h that begins now; a bare number is seconds.

        >>> TimeBudget.parse("1.5h").seconds, TimeBudget.parse("20").seconds
        (5400.0, 20.0)
        """
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|min|h)?\s*", text)
        if match is None or float(match[1]) == 0:
            raise UserError(f"time-budget is {text!r}; write it as 90s, 30m or 2h")
        return cls(float(match[1]) * {"s": 1, "m": 60, "min": 60, "h": 3600}[match[2] or "s"])

    @property
    def left(self) -> float:
        """What is left of it."""
        return self.began + self.seconds - time.time()


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

"""Learning-rate schedules as pure functions: a step's number (from 0) to the factor on the base rate."""

import math
from bisect import bisect_right
from collections.abc import Callable

from adaptive_labels.lab.config import TrainingConfig

Schedule = Callable[[int], float]

# The shape of a one-cycle run: the rise where the configuration gives none, and the factors at its start and end.
RISE = 0.3
START = 1 / 25
END = 1 / 250_000


def make_schedule(config: TrainingConfig, steps_per_epoch: int) -> Schedule:
    """The factor for every step of a run; epochs in the configuration become steps here.

    A warm-up rises as 1/steps, 2/steps, … to 1. After it, cosine and linear fall to 0 over the steps that remain;
    milestones stay where they are.
    """
    assert config.epochs is not None, "the configuration is resolved before training"
    total = config.epochs * steps_per_epoch
    warm = round(config.warmup * steps_per_epoch)
    if config.schedule == "one-cycle":
        rise = min(warm or round(RISE * total), total - 1)
        return lambda step: _one_cycle(step, total, rise)
    remaining = max(total - warm, 1)
    milestones = [round(epoch * steps_per_epoch) for epoch in config.milestones]
    after: dict[str | None, Schedule] = {
        "step": lambda step: config.gamma ** bisect_right(milestones, step),
        "cosine": lambda step: _cosine(max(step - warm, 0), remaining),
        "linear": lambda step: 1.0 - min(max(step - warm, 0), remaining) / remaining,
        "constant": lambda step: 1.0,
    }
    factor = after[config.schedule]
    return lambda step: (min(1.0, (step + 1) / warm) if warm else 1.0) * factor(step)


def _cosine(step: int, total: int) -> float:
    """Half a cosine from 1 at step 0 to 0 at step `total`."""
    return (1.0 + math.cos(math.pi * min(step, total) / total)) / 2.0


def _one_cycle(step: int, total: int, rise: int) -> float:
    """Up from 1/25 to 1 at step `rise`, then down to 1/250,000 at the last step, both along half a cosine."""
    if step < rise:
        return 1.0 - (1.0 - START) * _cosine(step, rise)
    return END + (1.0 - END) * _cosine(step - rise, max(total - 1 - rise, 1))

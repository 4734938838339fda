"""Learning-rate schedules as pure functions: a step's number (from 0) to the factor on the base rate."""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence

from adaptive_labels.config import TrainingConfig

__all__ = ["cosine", "linear", "make_schedule", "milestone_decay", "one_cycle", "warm_up"]

Schedule = Callable[[int], float]

# The shape of a one-cycle run where the configuration does not give the length of its rise.
RISE = 0.3
START_DIVISOR = 25.0
END_DIVISOR = 1e4


def linear(step: int, total: int) -> float:
    """A straight line from 1 at step 0 to 0 at step `total`."""
    return 1.0 - min(step, total) / total


def cosine(step: int, total: int) -> float:
    """Half a cosine from 1 at step 0 to 0 at step `total`."""
    return (1.0 + math.cos(math.pi * min(step, total) / total)) / 2.0


def milestone_decay(step: int, milestones: Sequence[int], gamma: float) -> float:
    """gamma to the power of the number of milestones that are reached: gamma^|{m : m ≤ step}|."""
    return gamma ** bisect_right(milestones, step)


def one_cycle(step: int, total: int, rise: int) -> float:
    """Up from 1/25 to 1 at step `rise`, then down to 1/250,000 at the last step, both along half a cosine."""
    if step < rise:
        return 1.0 - (1.0 - 1.0 / START_DIVISOR) * cosine(step, rise)
    end = 1.0 / (START_DIVISOR * END_DIVISOR)
    return end + (1.0 - end) * cosine(step - rise, max(total - 1 - rise, 1))


def warm_up(step: int, steps: int) -> float:
    """1/steps, 2/steps, … up to 1: the first step already moves."""
    return min(1.0, (step + 1) / steps) if steps else 1.0


def make_schedule(config: TrainingConfig, steps_per_epoch: int) -> Schedule:
    """The factor for every step of a run; epochs in the configuration become steps here.

    After a warm-up, cosine and linear spread over the steps that remain; milestones stay where they are.
    """
    assert config.epochs is not None, "the configuration is resolved before training"
    total = config.epochs * steps_per_epoch
    warm = round(config.warmup * steps_per_epoch)
    remaining = max(total - warm, 1)
    if config.schedule == "one-cycle":
        rise = min(warm or round(RISE * total), total - 1)
        return lambda step: one_cycle(step, total, rise)
    if config.schedule == "step":
        milestones = [round(epoch * steps_per_epoch) for epoch in config.milestones]
        return lambda step: warm_up(step, warm) * milestone_decay(step, milestones, config.gamma)
    if config.schedule == "cosine":
        return lambda step: warm_up(step, warm) * cosine(max(step - warm, 0), remaining)
    if config.schedule == "linear":
        return lambda step: warm_up(step, warm) * linear(max(step - warm, 0), remaining)
    return lambda step: warm_up(step, warm)

"""Times that a busy machine cannot distort much: the variants take turns, and medians are compared."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

WARM_UP = 3
LEAST_REPEATS = 5


class Timing(NamedTuple):
    """Seconds of a step: the median, and what a fifth of the repeats stayed under and over."""

    median: float
    p20: float
    p80: float
    repeats: int


def take_turns(steps: Mapping[str, Callable[[], None]], seconds: float) -> dict[str, Timing]:
    """Run the steps in turns for about so many seconds, each at least five times, after a warm-up."""
    for step in steps.values():
        for _ in range(WARM_UP):
            step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < LEAST_REPEATS or time.perf_counter() < end:
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - began)
        rounds += 1
    return {name: timing(each) for name, each in times.items()}


def timing(times: list[float]) -> Timing:
    """The quantiles of a list of times.

    >>> timing([1.0, 2.0, 3.0, 4.0, 100.0])
    Timing(median=3.0, p20=1.8, p80=23.2, repeats=5)
    """
    fifths = statistics.quantiles(times, n=5, method="inclusive")
    return Timing(statistics.median(times), round(fifths[0], 9), round(fifths[3], 9), len(times))


def peak_memory(step: Callable[[], None]) -> int:
    """The most bytes that torch had allocated at once during a step, beyond what there was before it.

    >>> peak_memory(lambda: (torch.zeros(1000), torch.zeros(500), None)[2])
    6000
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler reports its own beginning and end
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    results = profile.profiler.kineto_results if profile.profiler is not None else None
    if results is None:
        return 0
    changes = sorted((event.start_ns(), event.nbytes()) for event in results.events() if event.name() == "[memory]")
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most

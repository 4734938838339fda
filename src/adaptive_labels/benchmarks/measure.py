"""Times that a busy machine cannot distort much: the variants take turns, and medians are compared."""

from __future__ import annotations

import os
import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
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


class Ratio(NamedTuple):
    """How many times as long one step took as another, round by round: the median, and p20 and p80."""

    median: float
    p20: float
    p80: float


def take_turns(steps: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, Timing]:
    """Run the steps in turns for about so many seconds, each at least five times, after a warm-up."""
    return {name: timing(each) for name, each in turns(steps, seconds).items()}


def turns(
    steps: Mapping[str, Callable[[], object]],
    seconds: float,
    warm_up: int = WARM_UP,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """The seconds of every call, each step once a round; the order turns, so that none is always the first.

    With `time.process_time` for the clock only the time that this process had a processor counts, of all its threads:
    for a busy machine.
    """
    for step in steps.values():
        for _ in range(warm_up):
            step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    order = list(steps)
    end = time.perf_counter() + seconds
    while len(times[order[0]]) < LEAST_REPEATS or time.perf_counter() < end:
        for name in order:
            began = clock()
            steps[name]()
            times[name].append(clock() - began)
        order = [*order[1:], order[0]]
    return times


def ratio(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """The quantiles of the ratios of two steps' times, each of its round, so that slow minutes count for both.

    >>> ratio([2.0, 20.0, 3.0], [1.0, 10.0, 1.0])
    Ratio(median=2.0, p20=2.0, p80=2.6)
    """
    found = timing([one / other for one, other in zip(above, below, strict=True)])
    return Ratio(found.median, found.p20, found.p80)


def timing(times: list[float]) -> Timing:
    """The quantiles of a list of times.

    >>> timing([1.0, 2.0, 3.0, 4.0, 100.0])
    Timing(median=3.0, p20=1.8, p80=23.2, repeats=5)
    """
    fifths = statistics.quantiles(times, n=5, method="inclusive")
    return Timing(statistics.median(times), round(fifths[0], 9), round(fifths[3], 9), len(times))


def peak_memory(step: Callable[[], object]) -> int:
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


def peak_of_all(step: Callable[[], object]) -> int:
    """The peak of torch's tensors plus that of numpy's arrays and Python's objects, during a step.

    What other libraries allocate in C, as Pillow does, is not seen.

    >>> 6_000 <= peak_of_all(lambda: (torch.zeros(1000), bytearray(2000))) < 12_000
    True
    """
    tensors = peak_memory(step)
    tracemalloc.start()
    try:
        step()
        return tensors + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

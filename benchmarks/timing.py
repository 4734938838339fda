"""Shared by the benchmarks: variants that take turns, ratios with their spread, and what they were measured on."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


def take_turns(
    steps: Mapping[str, Callable[[], object]],
    seconds: float,
    warm_up: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """The seconds of every call, each variant once a round and in turning order, so that none is always the first.

    With `time.process_time` for the clock only the time that this process had a processor counts, of all its threads.
    """
    for step in steps.values():
        for _ in range(warm_up):
            step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    order = list(steps)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times[order[0]]) < 3:
        for name in order:
            began = clock()
            steps[name]()
            times[name].append(clock() - began)
        order = order[1:] + order[:1] if len(order) > 2 else order[::-1]
    return times


def ratios(numerator: Sequence[float], denominator: Sequence[float]) -> dict[str, float]:
    """Median, p20 and p80 of the ratio of two variants' times, round by round."""
    each = [above / below for above, below in zip(numerator, denominator, strict=True)]
    tenths = statistics.quantiles(each, n=10)
    return {"ratio": statistics.median(each), "p20": tenths[1], "p80": tenths[7], "rounds": len(each)}


def hardware() -> dict[str, Any]:
    """Processor, threads and versions."""
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "processor": _processor(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()

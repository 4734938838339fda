"""How the cost of the losses grows with the samples, the classes and the threads, and its picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from adaptive_labels.benchmarks.loss import REFERENCE, SELF, TENSORS, result_of, row_of, steps_of
from adaptive_labels.benchmarks.measure import take_turns
from adaptive_labels.machine import usable_cores
from adaptive_labels.report.figures import standalone
from adaptive_labels.report.svg import figure, legend, line, marker, stroke, text

SAMPLES = (16, 64, 256, 1024, 4096)
CLASSES = (10, 100, 1000, 10_000, 100_000)
FIXED_SAMPLES, FIXED_CLASSES = 256, 1000
UNFUSED = "ALR-S, fused=False"
LINES = (REFERENCE, SELF, TENSORS, UNFUSED)
AXES = {
    "n": f"samples (K = {FIXED_CLASSES:,})",
    "k": f"classes (N = {FIXED_SAMPLES}; rank 32 at 100,000)",
    "threads": f"threads (1024 × {FIXED_CLASSES:,})",
}
PANEL, GAP, LEFT, TOP, HEIGHT = 230.0, 60.0, 56.0, 40.0, 230.0


def bench_growth(
    seconds: float = 60.0,
    samples: Sequence[int] = SAMPLES,
    classes: Sequence[int] = CLASSES,
    threads: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Measure along the three axes; rows as those of :func:`bench_loss`, with the axis and the threads."""
    before = torch.get_num_threads()
    if threads is None:
        threads = range(1, usable_cores() + 1)
    points = [("n", n, FIXED_CLASSES, before) for n in samples]
    points += [("k", FIXED_SAMPLES, k, before) for k in classes]
    points += [("threads", 1024, FIXED_CLASSES, count) for count in threads]
    rows = []
    try:
        for axis, n, k, count in points:
            torch.set_num_threads(count)
            steps = {name: step for name, step in steps_of(n, k, {}).items() if name in LINES}
            timings = take_turns(steps, seconds / len(points))
            for name, found in timings.items():
                row = row_of(n, k, name, found, timings[REFERENCE], None)
                rows.append({"axis": axis, "threads": count, **row})
    finally:
        torch.set_num_threads(before)
    return result_of(rows, {})


def draw(result: dict[str, Any]) -> str:
    """The rows of :func:`bench_growth` as an SVG file: milliseconds a step, both scales logarithmic."""
    rows = result["rows"]
    times = [row["microseconds"] / 1e3 for row in rows]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    high = max(high, low + 1)

    def y(milliseconds: float) -> float:
        return TOP + HEIGHT * (1 - (math.log10(milliseconds) - low) / (high - low))

    parts = [text(8, 18, "milliseconds a step, forward + backward")]
    for number, (axis, label) in enumerate(AXES.items()):
        left = LEFT + number * (PANEL + GAP)
        here = [row for row in rows if row["axis"] == axis]
        for power in range(low, high + 1):
            parts.append(line(left, y(10.0**power), left + PANEL, y(10.0**power), "grid"))
            parts.append(text(left - 5, y(10.0**power) + 4, f"{10.0**power:g}", "end"))
        parts.append(_panel(axis, here, left, y))
        parts.append(text(left + PANEL / 2, TOP + HEIGHT + 36, label, "middle"))
    width = LEFT + 3 * PANEL + 2 * GAP + 20
    key, height = legend({name: place for place, name in enumerate(LINES)}, 8, TOP + HEIGHT + 52, width - 16)
    title = "What a step of the losses costs"
    words = f"Along samples, classes and threads, for {', '.join(LINES)}."
    return standalone(figure(title, words, width, TOP + HEIGHT + 58 + height, "".join([*parts, key]), "chart"))


def _panel(axis: str, rows: list[dict[str, Any]], left: float, y: Callable[[float], float]) -> str:
    values = sorted({row[axis] for row in rows})
    if not values:
        return ""
    first, last = math.log(values[0]), math.log(values[-1])

    def x(value: float) -> float:
        return left + 10 + (math.log(value) - first) / ((last - first) or 1.0) * (PANEL - 20)

    parts = [text(x(value), TOP + HEIGHT + 16, f"{value:,}", "middle", 11) for value in values]
    for position, name in enumerate(LINES):
        places = [(x(row[axis]), y(row["microseconds"] / 1e3)) for row in rows if row["loss"] == name]
        if places:
            parts.append(stroke(position, places, name))
            parts += [marker(position, *place) for place in places]
    return "".join(parts)

"""How the cost of the losses grows with the samples, the classes and the threads, and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from adaptive_labels.benchmarks.loss import REFERENCE, SELF, TENSORS, result_of, row_of, steps_of
from adaptive_labels.benchmarks.measure import take_turns
from adaptive_labels.machine import usable_cores
from adaptive_labels.report.charts import Axis, Curve, fitting_range, line_chart, panels
from adaptive_labels.report.figures import standalone

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
    """The rows of :func:`bench_growth` as an SVG file: milliseconds per step, both scales logarithmic."""
    y = Axis("milliseconds per step, forward + backward", log=True)
    drawn: dict[str, dict[str, Curve]] = {}
    for axis in AXES:
        for name in LINES:
            rows = [row for row in result["rows"] if (row["axis"], row["loss"]) == (axis, name)]
            if rows:
                curve = Curve.of([row[axis] for row in rows], [row["microseconds"] / 1e3 for row in rows])
                drawn.setdefault(axis, {})[name] = curve
    ends = fitting_range([curve for curves in drawn.values() for curve in curves.values()], y)
    styles = {name: place for place, name in enumerate(LINES)}
    charts = []
    for axis, curves in drawn.items():
        values = sorted({value for curve in curves.values() for value in curve.x.tolist()})
        x = Axis(AXES[axis], log=True, ticks={value: f"{value:,.0f}" for value in values})
        charts.append(line_chart(curves, AXES[axis], x, y, styles=styles, y_range=ends, with_legend=False))
    words = f"Along samples, classes and threads, for {', '.join(LINES)}."
    return standalone(panels(charts, "What a step of the losses costs", words, width=320.0, names=styles))

"""The report's figures, as inline SVG: lines, differences, reliability and accuracy by class."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.analysis.calibration import Reliability
from adaptive_labels.report.svg import (
    LETTER,
    figure,
    grid,
    labelled,
    legend,
    line,
    marker,
    nice_ticks,
    points,
    shorten,
    stroke,
    text,
    window,
)

WIDTH, LEFT, RIGHT, TOP, PLOT = 420.0, 44.0, 12.0, 28.0, 204.0


@dataclass(frozen=True)
class Curve:
    """A figure that changes along x: its mean, and the ends of a band around it (equal to it for no band)."""

    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """A method's difference from the baseline: one figure a seed, the mean and its interval (None for one seed)."""

    name: str
    by_seed: Sequence[float]
    mean: float
    low: float | None
    high: float | None
    words: str
    best: bool = False


def over_runs(x: NDArray[np.float64], values: NDArray[np.float64]) -> Curve:
    """The mean of ``values`` (runs, points) with a band of one standard deviation to each side."""
    mean = values.mean(axis=0)
    std = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(len(x))
    return Curve(x, mean, mean - std, mean + std)


def line_chart(
    lines: Mapping[str, Curve],
    title: str,
    *,
    x_label: str,
    y_label: str,
    percent: bool,
    skip: int = 0,
    floor: float | None = 0.0,
    styles: Mapping[str, int] | None = None,
) -> str:
    """A line with a band for each name; x is an epoch or, with ``percent`` on both axes, a share.

    The y scale fits the points after the first ``skip``; earlier ones may run off the bottom. ``styles`` gives a name
    the same style in all figures; without it, the order decides.
    """
    place = {name: (styles or {}).get(name, position) for position, name in enumerate(lines)}
    low, high = _range(list(lines.values()), skip, floor, 1.0 if percent else None)
    first, last = (f(float(f(curve.x)) for curve in lines.values()) for f in (min, max))
    right = WIDTH - RIGHT

    def x(value: float) -> float:
        return LEFT + (value - first) / (last - first or 1.0) * (right - LEFT)

    def y(value: float) -> float:
        return TOP + PLOT - (value - low) / (high - low) * PLOT

    scale = 100 if percent else 1
    parts = [grid(nice_ticks(low, high), LEFT, right, y, lambda v, digits: f"{scale * v:.{digits}f}")]
    whole = x_label == "epoch"
    ticks = _epoch_ticks(int(first), int(last)) if whole else nice_ticks(first, last)
    for tick in ticks:
        words = f"{tick:.0f}" if whole else f"{100 * tick:.0f}"
        parts.append(text(x(tick), TOP + PLOT + 16, words, "middle"))
    parts.append(text((LEFT + right) / 2, TOP + PLOT + 32, x_label, "middle"))
    parts.append(text(8, 14, y_label))
    drawn = []
    for name, curve in lines.items():
        position = place[name]
        middle = [(x(e), y(v)) for e, v in zip(curve.x, curve.mean, strict=True)]
        if (curve.high > curve.low).any():
            upper = [(x(e), y(v)) for e, v in zip(curve.x, curve.high, strict=True)]
            lower = [(x(e), y(v)) for e, v in zip(curve.x, curve.low, strict=True)]
            drawn.append(f'<polygon class="band line{position % 7}" points="{points([*upper, *reversed(lower)])}"/>')
        drawn.append(stroke(position, middle, name))
        drawn += [marker(position, *point) for point in middle[position % 3 :: max(1, len(middle) // 7)]]
    parts.append(window(LEFT - 4, TOP - 4, right - LEFT + 8, PLOT + 8, "".join(drawn)))
    key, height = legend(place, 8, TOP + PLOT + 44, WIDTH - 16)
    unit = "%" if percent else ""
    ends = ", ".join(f"{name} {scale * float(c.mean[-1]):.{1 if percent else 3}f}{unit}" for name, c in lines.items())
    return figure(title, f"At the right end: {ends}.", WIDTH, TOP + PLOT + 44 + height, "".join([*parts, key]), "chart")


def difference_chart(rows: Sequence[Difference], title: str, baseline: str) -> str:
    """Each method's difference from the baseline in points: seeds as rings, the mean as a bar, its 95% interval."""
    left = 12 + 13 * LETTER * max(len(shorten(row.name, 24)) for row in rows)
    width, step, top = WIDTH, 40.0, 26.0
    right = width - 14
    values = [value for row in rows for value in (*row.by_seed, row.mean)]
    largest = max(max(abs(value) for value in values), 0.0005)
    reach = max([largest * 1.15, *(min(abs(end), 3 * largest) for row in rows for end in (row.low, row.high) if end)])
    low = min(0.0, *values, *(row.low for row in rows if row.low is not None))
    high = max(0.0, *values, *(row.high for row in rows if row.high is not None))
    low, high = max(low, -reach) - 0.06 * reach, min(high, reach) + 0.06 * reach

    def x(value: float) -> float:
        return left + (value - low) / (high - low) * (right - left)

    bottom = top + step * len(rows)
    ticks = nice_ticks(low, high, 4)
    parts = [line(x(tick), top - 4, x(tick), bottom, "grid") for tick in ticks]
    for tick, words in zip(ticks, labelled(ticks, _signed_points), strict=True):
        parts.append(text(x(tick), bottom + 15, words, "middle"))
    parts.append(line(x(0), top - 8, x(0), bottom, "zero"))
    parts.append(text(x(0), top - 12, baseline, "middle"))
    parts.append(text((left + right) / 2, bottom + 32, "points of test accuracy", "middle"))
    drawn = []
    for i, row in enumerate(rows):
        y = top + step * (i + 0.42)
        parts.append(text(left - 8, y + 4, shorten(row.name, 24), "end", 13, "best" if row.best else ""))
        if row.low is not None and row.high is not None:
            drawn.append(line(x(row.low), y, x(row.high), y, "interval"))
            drawn += [line(x(end), y - 5, x(end), y + 5, "interval") for end in (row.low, row.high)]
        drawn += [f'<circle class="seed" cx="{x(v):.1f}" cy="{y:.1f}" r="4"/>' for v in row.by_seed]
        drawn.append(line(x(row.mean), y - 9, x(row.mean), y + 9, "mean"))
        length = len(row.words) * 11 * LETTER
        place = min(max(x(row.mean) - length / 2, left), right - length)
        drawn.append(text(place, y + 20, row.words, "start", 11, "halo"))
    parts.append(window(left, 0, right - left + 6, bottom, "".join(drawn)))
    description = "; ".join(f"{row.name} {row.words}" for row in rows) + "."
    return figure(title, description, width, bottom + 38, "".join(parts), "chart differences")


def reliability_diagram(before: Reliability, after: Reliability | None, title: str) -> str:
    """Accuracy by confidence, bars before and markers after temperature scaling; on the diagonal it can be believed."""
    left, top, side = 34.0, 24.0, 180.0
    bins = len(before.count)
    most = max(int(before.count.max()), 1)

    def y(value: float) -> float:
        return top + (1 - value) * side

    parts = [grid((0.0, 0.5, 1.0), left, left + side, y, lambda v, digits: f"{100 * v:.{digits}f}")]
    for b in np.flatnonzero(before.count):
        accuracy, share = float(before.accuracy[b]), float(before.count[b]) / most
        words = (
            f"confidence {b / bins:.2f} to {(b + 1) / bins:.2f}: {100 * accuracy:.1f}% right of "
            f"{int(before.count[b])} predictions, mean confidence {100 * float(before.confidence[b]):.1f}%"
        )
        parts.append(
            f'<rect class="bar" x="{left + b / bins * side + 0.5:.1f}" y="{y(accuracy):.1f}" '
            f'width="{side / bins - 1:.1f}" height="{max(top + side - y(accuracy), 0.8):.1f}" '
            f'fill-opacity="{0.25 + 0.75 * share:.2f}"><title>{escape(words)}</title></rect>'
        )
    parts.append(line(left, top + side, left + side, top, "diagonal"))
    description = f"Accuracy by confidence in {bins} bins; the mean gap is {100 * before.ece:.1f} points"
    if after is not None:
        places = [
            (left + float(after.confidence[b]) * side, y(float(after.accuracy[b]))) for b in np.flatnonzero(after.count)
        ]
        parts.append(f'<polyline class="after" points="{points(places)}"/>')
        parts += [f'<circle class="after" cx="{a:.1f}" cy="{b:.1f}" r="2.5"/>' for a, b in places]
        description += f", and {100 * after.ece:.1f} after temperature scaling"
    parts += [text(left + tick * side, top + side + 15, f"{100 * tick:g}", "middle") for tick in (0.0, 0.5, 1.0)]
    parts.append(text(left + side / 2, top + side + 30, "confidence %", "middle"))
    parts.append(text(6, 12, "right %"))
    return figure(title, f"{description}.", left + side + 14, top + side + 36, "".join(parts), "reliability")


def class_chart(
    names: Sequence[str], by_method: Mapping[str, Sequence[float]], title: str, styles: Mapping[str, int] | None = None
) -> str:
    """A row for each class, with each method's accuracy as its marker on a line that ends at 100%."""
    place = {name: (styles or {}).get(name, position) for position, name in enumerate(by_method)}
    left = 12 + 12 * LETTER * max(len(shorten(name)) for name in names)
    right, top, step = WIDTH - 16, 8.0, 17.0
    bottom = top + step * len(names)
    low = min(0.9, float(np.floor(10 * min(min(figures) for figures in by_method.values()))) / 10)

    def x(value: float) -> float:
        return left + (value - low) / (1 - low) * (right - left)

    ticks = nice_ticks(low, 1.0)
    parts = [line(x(tick), top, x(tick), bottom, "grid") for tick in ticks]
    parts += [text(x(tick), bottom + 15, f"{100 * tick:.0f}", "middle") for tick in ticks]
    parts.append(text((left + right) / 2, bottom + 31, "test accuracy %", "middle"))
    for i, name in enumerate(names):
        y = top + step * (i + 0.5)
        values = [figures[i] for figures in by_method.values()]
        parts.append(text(left - 6, y + 4, shorten(name), "end"))
        parts.append(line(x(min(values)), y, x(max(values)), y, "range"))
        parts += [marker(place[method], x(figures[i]), y) for method, figures in by_method.items()]
    key, height = legend(place, 8, bottom + 42, WIDTH - 16)
    worst = f"Lowest: {names[0]} with " + ", ".join(f"{m} {100 * v[0]:.0f}%" for m, v in by_method.items())
    return figure(title, f"{worst}.", WIDTH, bottom + 42 + height, "".join([*parts, key]), "chart")


def zoom_start(epochs: int) -> int:
    """How many first epochs a learning curve lets run off the bottom, so that the later ones can be told apart."""
    return epochs // 4 if epochs >= 8 else 0


def _range(lines: Sequence[Curve], skip: int, floor: float | None, ceiling: float | None) -> tuple[float, float]:
    low = min(float(curve.low[min(skip, len(curve.low) - 1) :].min()) for curve in lines)
    high = max(float(curve.high[min(skip, len(curve.high) - 1) :].max()) for curve in lines)
    space = max(0.05 * (high - low), 0.002 * max(abs(high), 1e-3), 1e-6)
    low, high = low - space, high + space
    low = low if floor is None else max(low, floor - 1e-9)
    high = high if ceiling is None else min(high, ceiling)
    return (low, high) if high > low else (low, low + 0.01)


def _signed_points(value: float, digits: int) -> str:
    words = f"{100 * abs(value):.{digits}f}"
    return words if float(words) == 0 else f"{'−' if value < 0 else '+'}{words}"


def _epoch_ticks(first: int, last: int) -> list[float]:
    if last - first < 8:
        return [float(epoch) for epoch in range(first, last + 1)]
    step = int(np.ceil((last - first) / 6))
    ticks = [float(epoch) for epoch in range(first, last + 1, step)]
    return [*(tick for tick in ticks if last - tick > step // 2), float(last)]

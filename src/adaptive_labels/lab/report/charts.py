"""The charts of the report and of every other figure in the package, as inline SVG."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adaptive_labels.lab.analysis.format import difference
from adaptive_labels.lab.analysis.statistics import PairedDifference
from adaptive_labels.lab.report.svg import (
    LETTER,
    STYLES,
    coordinates,
    legend,
    line,
    marker,
    nice_ticks,
    stroke,
    text,
    tick_labels,
    window,
    wrap_svg,
)
from adaptive_labels.lab.words import shorten
from adaptive_labels.metrics import ReliabilityTable

WIDTH, LEFT, RIGHT, TOP, PLOT = 420.0, 44.0, 12.0, 28.0, 204.0


@dataclass(frozen=True)
class Curve:
    """A value that changes along x, with the ends of an interval around it (equal to it for no interval)."""

    x: NDArray[np.float64]  # (P,) places, rising
    mean: NDArray[np.float64]  # (P,)
    low: NDArray[np.float64]  # (P,)
    high: NDArray[np.float64]  # (P,)

    @classmethod
    def of(cls, x: ArrayLike, mean: ArrayLike, low: ArrayLike | None = None, high: ArrayLike | None = None) -> Self:
        """A curve from any sequences; without ``low`` and ``high`` it has no interval."""
        ends = (mean if low is None else low), (mean if high is None else high)
        return cls(*(np.asarray(values, dtype=np.float64) for values in (x, mean, *ends)))


def over_runs(x: NDArray[np.float64], values: NDArray[np.float64]) -> Curve:
    """The mean of ``values`` (runs, points) with a band of one standard deviation to each side."""
    mean = values.mean(axis=0)
    std = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(len(x))
    return Curve(x, mean, mean - std, mean + std)


@dataclass(frozen=True)
class Axis:
    """How the values along one side of a chart are placed and written."""

    label: str  # what the values are, with their unit
    scale: float = 1.0  # what values are multiplied by when they are written: 100 for percent
    signed: bool = False  # write a sign before positive values
    log: bool = False  # place values by their logarithm; ticks are powers of ten unless given
    whole: bool = False  # write whole numbers only: every one of a few, else about seven with the first and the last
    ticks: Mapping[float, str] | None = None  # the places that are written, with their labels; else round numbers
    low: float | None = None  # the axis never starts below this value
    high: float | None = None  # the axis never ends above this value

    def written(self, value: float, digits: int) -> str:
        """A value as it is written."""
        text = f"{abs(self.scale * value):.{digits}f}"
        if float(text) == 0:
            return text
        return f"{'−' if value < 0 else '+' if self.signed else ''}{text}"


def percent_axis(label: str) -> Axis:
    """An axis of shares, written in percent, that stays between 0 and 100."""
    return Axis(label, scale=100, low=0.0, high=1.0)


EPOCHS = Axis("epoch", whole=True)


class Scale:
    """The values of one axis as places in the drawing."""

    def __init__(self, axis: Axis, low: float, high: float, start: float, end: float) -> None:
        self.axis, self.start, self.end = axis, start, end
        if axis.log:
            low, high = float(np.log10(low)), float(np.log10(high))
            if axis.ticks is None:
                low, high = float(np.floor(low)), float(np.ceil(high))
        self.low, self.high = low, high if high > low else low + 1.0

    def __call__(self, value: float) -> float:
        """The place of a value."""
        position = float(np.log10(value)) if self.axis.log else value
        return self.start + (position - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, about: int = 5) -> dict[float, str]:
        """The places that are written, with their labels."""
        if self.axis.ticks is not None:
            return dict(self.axis.ticks)
        if self.axis.log:
            return {10.0**power: f"{10.0**power:g}" for power in range(int(self.low), int(self.high) + 1)}
        whole = self.axis.whole
        places = _whole_ticks(int(self.low), int(self.high)) if whole else nice_ticks(self.low, self.high, about)
        return dict(zip(places, tick_labels(places, self.axis.written), strict=True))


def _grid(x: Scale, top: float, bottom: float, about: int = 5) -> list[str]:
    """Lines across at the ticks of an x axis, the ticks' labels below them, and the axis's own."""
    ticks = x.ticks(about)
    parts = [line(x(tick), top, x(tick), bottom, "grid") for tick in ticks]
    parts += [text(x(tick), bottom + 15, label, "middle") for tick, label in ticks.items()]
    return [*parts, text((x.start + x.end) / 2, bottom + 32, x.axis.label, "middle")]


def _whole_ticks(first: int, last: int) -> list[float]:
    step = 1 if last - first < 8 else int(np.ceil((last - first) / 6))
    inner = [epoch for epoch in range(first, last + 1, step) if last - epoch > step // 2]
    return [float(epoch) for epoch in [*inner, last]]


def line_chart(
    lines: Mapping[str, Curve],
    title: str,
    x: Axis,
    y: Axis,
    *,
    bars: bool = False,
    skip: int = 0,
    styles: Mapping[str, int] | None = None,
    y_range: tuple[float, float] | None = None,
    with_legend: bool = True,
) -> str:
    """A line for each name, with a band around it or, with ``bars``, an interval at each point.

    The title is for a screen reader. On a signed y axis a line marks 0.

    Args:
        bars: draw intervals as bars, moved apart so that none hides another, and a marker at every point.
        skip: the y range fits the points after the first ``skip``; earlier ones may run off the bottom.
        styles: name → style, to draw a name alike in all charts; the order decides unless given.
        y_range: the ends of the y axis, to give several charts the same; they fit the lines unless given.
        with_legend: name the lines below.
    """
    place = _places(lines, styles)
    right, bottom = WIDTH - RIGHT, TOP + PLOT
    first, last = (f(float(f(curve.x)) for curve in lines.values()) for f in (min, max))
    inner = 14.0 if bars or x.log else 0.0
    across = Scale(x, first, last, LEFT + inner, right - inner)
    up = Scale(y, *(y_range or fitting_range(list(lines.values()), y, skip)), bottom, TOP)
    parts = []
    for tick, label in up.ticks().items():
        parts.append(line(LEFT, up(tick), right, up(tick), "zero" if y.signed and tick == 0 else "grid"))
        parts.append(text(LEFT - 5, up(tick) + 4, label, "end"))
    parts += [text(across(tick), bottom + 16, label, "middle") for tick, label in across.ticks().items()]
    parts.append(text((LEFT + right) / 2, bottom + 32, x.label, "middle"))
    parts.append(text(8, 14, y.label))
    drawn = []
    for number, (name, curve) in enumerate(lines.items()):
        shift = (number - (len(lines) - 1) / 2) * 5 if bars else 0.0
        drawn.append(_drawn_line(curve, place[name], name, [across(value) + shift for value in curve.x], up, bars))
    parts.append(window(LEFT - 4, TOP - 4, right - LEFT + 8, PLOT + 8, "".join(drawn)))
    height = bottom + 40
    if with_legend:
        key, space = legend(place, 8, bottom + 44, WIDTH - 16)
        parts.append(key)
        height = bottom + 44 + space
    unit, digits = ("%", 1) if y.scale == 100 and not y.signed else ("", 3)
    ends = ", ".join(f"{name} {y.written(float(curve.mean[-1]), digits)}{unit}" for name, curve in lines.items())
    return wrap_svg(title, f"At the right end: {ends}.", WIDTH, height, "".join(parts), "chart")


def _places(names: Iterable[str], styles: Mapping[str, int] | None) -> dict[str, int]:
    """Name → style: the given one, else by the order."""
    return {name: (styles or {}).get(name, position) for position, name in enumerate(names)}


def _drawn_line(curve: Curve, style: int, name: str, places: Sequence[float], up: Scale, bars: bool) -> str:
    middle, upper, lower = (
        [(place, up(float(value))) for place, value in zip(places, values, strict=True)]
        for values in (curve.mean, curve.high, curve.low)
    )
    parts, css = [], f"line{style % STYLES}"
    if bars:
        ends = zip(lower, upper, strict=True)
        parts += [line(*low, *high, f"spread {css}") for low, high in ends if low != high]
    elif (curve.high > curve.low).any():
        parts.append(f'<polygon class="band {css}" points="{coordinates([*upper, *reversed(lower)])}"/>')
    parts.append(stroke(style, middle, name))
    marked = middle if bars or len(middle) <= 8 else middle[style % 3 :: max(1, len(middle) // 7)]
    return "".join([*parts, *(marker(style, *point) for point in marked)])


def chart_grid(
    drawings: Sequence[str],
    title: str,
    description: str,
    *,
    columns: int = 3,
    width: float = WIDTH,
    captions: Sequence[str] = (),
    names: Mapping[str, int] | None = None,
) -> str:
    """Figures beside and below one another, in one figure; title and description are for a screen reader.

    Args:
        columns: how many stand beside one another.
        width: of each panel; its height follows.
        captions: a line below each panel.
        names: name → style of the lines that all chart_grid share, named once below all of them.
    """
    boxes = [drawing.split('viewBox="', 1)[1].split('"', 1)[0].split() for drawing in drawings]
    sizes = [(float(natural), float(height)) for _, _, natural, height in boxes]
    tallest = max(width * height / natural for natural, height in sizes) + (24 if captions else 0)
    gap = 16.0
    parts = []
    for number, (drawing, (natural, height)) in enumerate(zip(drawings, sizes, strict=True)):
        left, top = (number % columns) * (width + gap), (number // columns) * (tallest + gap)
        placed = f'<svg x="{left:g}" y="{top:g}" width="{width:g}" height="{width * height / natural:g}" '
        parts.append(drawing.replace("<svg ", placed, 1))
        if captions:
            parts.append(text(left + width / 2, top + tallest - 6, captions[number], "middle", 14))
    whole = min(columns, len(drawings)) * (width + gap) - gap
    height = -(-len(drawings) // columns) * (tallest + gap)
    if names:
        key, space = legend(names, 8, height, whole - 16)
        parts.append(key)
        height += space
    return wrap_svg(title, description, whole, height, "".join(parts))


def fitting_range(lines: Sequence[Curve], y: Axis, skip: int = 0) -> tuple[float, float]:
    """The ends of a y axis that shows ``lines`` with a little room, within the axis's own ends."""
    low = min(float(curve.low[min(skip, len(curve.low) - 1) :].min()) for curve in lines)
    high = max(float(curve.high[min(skip, len(curve.high) - 1) :].max()) for curve in lines)
    if y.signed:
        low, high = min(low, 0.0), max(high, 0.0)
    if y.log:
        return low, high
    space = max(0.05 * (high - low), 0.002 * max(abs(high), 1e-3), 1e-6)
    low, high = low - space, high + space
    low = low if y.low is None else max(low, y.low - 1e-9)
    high = high if y.high is None else min(high, y.high)
    return (low, high) if high > low else (low, low + 0.01)


def difference_chart(
    gains: Mapping[str, PairedDifference],
    by_seed: Mapping[str, Sequence[float]],
    title: str,
    baseline: str,
    best: str | None,
) -> str:
    """Each method's difference from the baseline in points: seeds as rings, the mean as a bar, its 95% interval.

    ``best`` is the method whose name is written bold.
    """
    left = 12 + 13 * LETTER * max(len(shorten(name, 24)) for name in gains)
    right, step, top = WIDTH - 14, 40.0, 26.0
    means = {name: gain.difference or 0.0 for name, gain in gains.items()}
    values = [value for name in gains for value in (*by_seed[name], means[name])]
    ends = [end for gain in gains.values() for end in (gain.low, gain.high) if end is not None]
    largest = max(max(abs(value) for value in values), 0.0005)
    reach = max([largest * 1.15, *(min(abs(end), 3 * largest) for end in ends)])
    low, high = max(min(0.0, *values, *ends), -reach), min(max(0.0, *values, *ends), reach)
    scale = Axis("points of test accuracy", scale=100, signed=True)
    x = Scale(scale, low - 0.06 * reach, high + 0.06 * reach, left, right)
    bottom = top + step * len(gains)
    parts = _grid(x, top - 4, bottom, about=4)
    parts.append(line(x(0), top - 8, x(0), bottom, "zero"))

    def within(center: float, label: str, size: int) -> float:
        """Where a label begins that stands around a place, and not beyond the chart."""
        length = len(label) * size * LETTER
        return min(max(center - length / 2, left), right - length)

    parts.append(text(within(x(0), baseline, 12), top - 12, baseline, "start"))
    drawn = []
    for i, (name, gain) in enumerate(gains.items()):
        y, mean, label = top + step * (i + 0.42), x(means[name]), difference(gain)
        parts.append(text(left - 8, y + 4, shorten(name, 24), "end", 13, "best" if name == best else ""))
        if gain.low is not None and gain.high is not None:
            drawn.append(line(x(gain.low), y, x(gain.high), y, "interval"))
            drawn += [line(x(end), y - 5, x(end), y + 5, "interval") for end in (gain.low, gain.high)]
        drawn += [f'<circle class="seed" cx="{x(value):.1f}" cy="{y:.1f}" r="4"/>' for value in by_seed[name]]
        drawn.append(line(mean, y - 9, mean, y + 9, "mean"))
        drawn.append(text(within(mean, label, 11), y + 20, label, "start", 11, "halo"))
    parts.append(window(left, 0, right - left + 6, bottom, "".join(drawn)))
    description = "; ".join(f"{name} {difference(gain)}" for name, gain in gains.items()) + "."
    return wrap_svg(title, description, WIDTH, bottom + 38, "".join(parts), "chart differences")


def reliability_diagram(before: ReliabilityTable, after: ReliabilityTable | None, title: str) -> str:
    """Accuracy by confidence, as bars before and as markers after temperature scaling; on the diagonal both agree."""
    left, top, side = 34.0, 24.0, 180.0
    bins = len(before.count)
    most = max(int(before.count.max()), 1)

    def y(value: float) -> float:
        return top + (1 - value) * side

    ticks = {0.0: "0", 0.5: "50", 1.0: "100"}
    parts = []
    for tick, label in ticks.items():
        parts += [line(left, y(tick), left + side, y(tick), "grid"), text(left - 5, y(tick) + 4, label, "end")]
    for b in np.flatnonzero(before.count):
        accuracy, share = float(before.accuracy[b]), float(before.count[b]) / most
        label = (
            f"confidence {b / bins:.2f} to {(b + 1) / bins:.2f}: {100 * accuracy:.1f}% right of "
            f"{int(before.count[b])} predictions, mean confidence {100 * float(before.confidence[b]):.1f}%"
        )
        parts.append(
            f'<rect class="bar" x="{left + b / bins * side + 0.5:.1f}" y="{y(accuracy):.1f}" '
            f'width="{side / bins - 1:.1f}" height="{max(top + side - y(accuracy), 0.8):.1f}" '
            f'fill-opacity="{0.25 + 0.75 * share:.2f}"><title>{escape(label)}</title></rect>'
        )
    parts.append(line(left, top + side, left + side, top, "diagonal"))
    description = f"Accuracy by confidence in {bins} bins; the mean gap is {100 * before.ece:.1f} points"
    if after is not None:
        filled = after.count > 0
        means = zip(after.confidence[filled].tolist(), after.accuracy[filled].tolist(), strict=True)
        places = [(left + confidence * side, y(accuracy)) for confidence, accuracy in means]
        parts.append(f'<polyline class="after" points="{coordinates(places)}"/>')
        parts += [f'<circle class="after" cx="{a:.1f}" cy="{b:.1f}" r="2.5"/>' for a, b in places]
        description += f", and {100 * after.ece:.1f} after temperature scaling"
    parts += [text(left + tick * side, top + side + 15, label, "middle") for tick, label in ticks.items()]
    parts.append(text(left + side / 2, top + side + 30, "confidence %", "middle"))
    parts.append(text(6, 12, "right %"))
    return wrap_svg(title, f"{description}.", left + side + 14, top + side + 36, "".join(parts), "reliability")


def class_chart(
    names: Sequence[str], by_method: Mapping[str, Sequence[float]], title: str, styles: Mapping[str, int] | None = None
) -> str:
    """A row for each class, with each method's accuracy as its marker on a line that ends at 100%."""
    place = _places(by_method, styles)
    left = 12 + 12 * LETTER * max(len(shorten(name)) for name in names)
    right, top, step = WIDTH - 16, 8.0, 17.0
    bottom = top + step * len(names)
    low = min(0.9, float(np.floor(10 * min(min(figures) for figures in by_method.values()))) / 10)
    x = Scale(Axis("test accuracy %", scale=100), low, 1.0, left, right)
    parts = _grid(x, top, bottom)
    for i, name in enumerate(names):
        y = top + step * (i + 0.5)
        values = [figures[i] for figures in by_method.values()]
        parts.append(text(left - 6, y + 4, shorten(name), "end"))
        parts.append(line(x(min(values)), y, x(max(values)), y, "range"))
        parts += [marker(place[method], x(figures[i]), y) for method, figures in by_method.items()]
    key, height = legend(place, 8, bottom + 42, WIDTH - 16)
    worst = f"Lowest: {names[0]} with " + ", ".join(f"{m} {100 * v[0]:.0f}%" for m, v in by_method.items())
    return wrap_svg(title, f"{worst}.", WIDTH, bottom + 42 + height, "".join([*parts, key]), "chart")


def zoom_start(epochs: int) -> int:
    """How many first epochs do not decide the scale of a learning curve, so that later ones can be told apart."""
    return epochs // 4 if epochs >= 8 else 0

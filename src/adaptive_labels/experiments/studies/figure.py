"""A study's picture: what an option does on every task, as an SVG that is the same for the same records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from adaptive_labels.analysis.statistics import compare
from adaptive_labels.experiments.studies.records import Record
from adaptive_labels.experiments.studies.study import Figure, Study, Variant

Records = Mapping[tuple[str, str, int], Record]
WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 60, 130, 40, 50
# Colours that stay apart without colour vision, with dashes and marks of their own beside them.
STYLES = (
    ("#0b5394", "", "circle"),
    ("#c05000", "6 3", "square"),
    ("#117733", "2 3", "diamond"),
    ("#6a3d9a", "8 3 2 3", "cross"),
    ("#222222", "12 4", "triangle"),
    ("#a8326e", "4 2", "ring"),
)


@dataclass(frozen=True)
class Point:
    """A difference from the baseline in points, with the ends of its interval (the same as it with one seed)."""

    place: int
    difference: float
    low: float
    high: float


@dataclass(frozen=True)
class Line:
    """One task: its points, by the place of the option's value."""

    task: str
    points: tuple[Point, ...]


def lines_of(study: Study, figure: Figure, records: Records) -> list[Line]:
    """The differences of test accuracy from the baseline, by task and value of the option that the study asks for."""
    lines = []
    for task in study.tasks:
        wanted = {variant.key for variant in study.variants_on(task)}
        baseline = _accuracies(records, task, Variant("baseline", "baseline"), study)
        points = []
        for place, value in enumerate(figure.values):
            variant = Variant("", figure.method, {} if value == figure.default else {figure.option: value})
            if variant.key not in wanted:
                continue
            found = compare(_accuracies(records, task, variant, study), baseline)
            if found.difference is not None:
                ends = [100 * (found.difference if end is None else end) for end in (found.low, found.high)]
                points.append(Point(place, 100 * found.difference, *ends))
        if len(points) > 1:
            lines.append(Line(task, tuple(points)))
    return lines


def _accuracies(records: Records, task: str, variant: Variant, study: Study) -> dict[int, float]:
    found = {seed: records.get((task, variant.key, seed), {}) for seed in study.seeds_for(task)}
    tests = {seed: record.get("metrics", {}).get("test") for seed, record in found.items()}
    return {seed: float(test["top1"]) for seed, test in tests.items() if test}


@dataclass(frozen=True)
class Frame:
    """Where the picture's values lie: points of accuracy up, the option's values along."""

    low: float
    high: float
    values: tuple[float, ...]

    def x(self, place: float) -> float:
        """From the left, for a value by its place."""
        return LEFT + place * (WIDTH - LEFT - RIGHT) / max(len(self.values) - 1, 1)

    def y(self, points: float) -> float:
        """From the top, for points of accuracy."""
        return TOP + (self.high - points) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)


def draw(figure: Figure, lines: Sequence[Line]) -> str:
    """The SVG: points of accuracy over the baseline against the option's values, with 95% intervals over seeds."""
    ends = [0.0, *(end for line in lines for point in line.points for end in (point.low, point.high))]
    margin = 0.08 * ((max(ends) - min(ends)) or 1.0)
    frame = Frame(min(ends) - margin, max(ends) + margin, figure.values)
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" font-family="sans-serif" font-size="12"><title>{escape(figure.title)}</title>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="20" font-size="13">{escape(figure.title)}</text>',
        f'<text x="{middle:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(figure.label)}</text>',
    ]
    for tick in ticks(frame.low, frame.high):
        stroke = ' stroke-width="1.5" stroke="#555"' if tick == 0 else ' stroke="#ddd"'
        y = frame.y(tick)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"{stroke}/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_signed(tick)}</text>')
    for place, value in enumerate(figure.values):
        word = f"{value:g}".replace("-", "−")
        parts.append(f'<text x="{frame.x(place):.1f}" y="{HEIGHT - 28}" text-anchor="middle">{word}</text>')
    heights = _apart([frame.y(line.points[-1].difference) + 4 for line in lines])
    for number, line in enumerate(lines):
        # Beside each other, so that intervals do not hide one another.
        parts += _draw_line(line, frame, STYLES[number % len(STYLES)], (number - (len(lines) - 1) / 2) * 5)
        colour = STYLES[number % len(STYLES)][0]
        parts.append(
            f'<text x="{WIDTH - RIGHT + 16}" y="{heights[number]:.1f}" fill="{colour}">{escape(line.task)}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def _draw_line(line: Line, frame: Frame, style: tuple[str, str, str], shift: float) -> list[str]:
    colour, dashes, mark = style
    places = [(frame.x(point.place) + shift, point) for point in line.points]
    path = " ".join(f"{x:.1f},{frame.y(point.difference):.1f}" for x, point in places)
    parts = [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-dasharray="{dashes}"/>'
    ]
    for x, point in places:
        ends = f'y1="{frame.y(point.low):.1f}" y2="{frame.y(point.high):.1f}"'
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" {ends} stroke="{colour}" stroke-opacity="0.5"/>')
        parts.append(_mark(mark, x, frame.y(point.difference), colour))
    return parts


def _apart(heights: Sequence[float], least: float = 14.0) -> list[float]:
    """Heights of names moved so far apart that they can be read, in the same order.

    >>> _apart([10.0, 12.0, 50.0])
    [10.0, 24.0, 50.0]
    """
    moved: dict[int, float] = {}
    last = float("-inf")
    for number in sorted(range(len(heights)), key=lambda i: heights[i]):
        last = moved[number] = max(heights[number], last + least)
    return [moved[number] for number in range(len(heights))]


def _mark(mark: str, x: float, y: float, colour: str) -> str:
    if mark == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'
    if mark == "square":
        return f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" fill="{colour}"/>'
    if mark == "diamond":
        return f'<path d="M{x:.1f} {y - 4.5:.1f}l4.5 4.5-4.5 4.5-4.5-4.5z" fill="{colour}"/>'
    if mark == "triangle":
        return f'<path d="M{x:.1f} {y - 4.5:.1f}l4.5 8h-9z" fill="{colour}"/>'
    if mark == "ring":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="#fff" stroke="{colour}" stroke-width="1.8"/>'
    return f'<path d="M{x - 4:.1f} {y - 4:.1f}l8 8m0-8l-8 8" stroke="{colour}" stroke-width="2"/>'


def ticks(low: float, high: float) -> list[float]:
    """Round numbers between two ends, at most nine.

    >>> ticks(-0.4, 1.7)
    [0.0, 0.5, 1.0, 1.5]
    """
    step = next(size for size in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0) if (high - low) / size <= 8)
    return [round(i * step, 6) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _signed(points: float) -> str:
    return f"{points:+g}".replace("-", "−") if points else "0"

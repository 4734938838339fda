"""The report's figures as inline SVG: no script, no colour that the page's style does not set.

Colours are classes (``line0`` … ``line6``), so that the style can change them in dark mode and in print; each line also
has a dash pattern and a marker of its own, for readers who do not see the colours.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from .calibration import Reliability

STYLES = 7
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "", "5 2", "1 2")


@dataclass(frozen=True)
class Curve:
    """One method's figure over the epochs, mean and spread over seeds."""

    epochs: NDArray[np.int64]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]


def figure(title: str, description: str, width: float, height: float, body: str, css: str = "") -> str:
    """Wrap drawing commands in an accessible ``<svg>``."""
    return (
        f'<svg class="{css}" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>{body}</svg>"
    )


def curves(lines: Mapping[str, Curve], title: str, number: int = 0) -> str:
    """Learning curves in percent, with a band of one standard deviation; ``number`` keeps a page's figures apart."""
    width, height, left, right, top, bottom = 480.0, 300.0, 40.0, 10.0, 12.0, 38.0
    low, high = _range(list(lines.values()))
    first = min(int(line.epochs[0]) for line in lines.values())
    last = max(int(line.epochs[-1]) for line in lines.values())

    def x(epoch: float) -> float:
        return left + (epoch - first) / max(last - first, 1) * (width - left - right)

    def y(value: float) -> float:
        return height - bottom - (value - low) / (high - low) * (height - top - bottom)

    parts = [_grid(low, high, left, width - right, y)]
    parts += [_text(x(tick), height - bottom + 16, f"{tick:g}", "middle") for tick in _epoch_ticks(first, last)]
    parts.append(_text((left + width - right) / 2, height - 4, "epoch", "middle"))
    clip = (
        f'<clipPath id="plot{number}"><rect x="{left}" y="{top}" width="{width - left - right}" '
        f'height="{height - top - bottom}"/></clipPath>'
    )
    drawn = []
    for position, (name, line) in enumerate(lines.items()):
        style = f"line{position % STYLES}"
        upper = [(x(e), y(v)) for e, v in zip(line.epochs, line.mean + line.std, strict=True)]
        lower = [(x(e), y(v)) for e, v in zip(line.epochs, line.mean - line.std, strict=True)]
        middle = [(x(e), y(v)) for e, v in zip(line.epochs, line.mean, strict=True)]
        if line.std.any():
            drawn.append(f'<polygon class="band {style}" points="{_points([*upper, *reversed(lower)])}"/>')
        dash = _DASHES[position % STYLES]
        drawn.append(
            f'<polyline class="curve {style}" stroke-dasharray="{dash}" points="{_points(middle)}">'
            f"<title>{escape(name)}</title></polyline>"
        )
        drawn += [marker(position, *point) for point in middle[:: max(1, len(middle) // 8)]]
    ends = ", ".join(f"{name} {100 * float(line.mean[-1]):.1f}%" for name, line in lines.items())
    parts.append(f'{clip}<g clip-path="url(#plot{number})">{"".join(drawn)}</g>')
    return figure(title, f"At the last epoch: {ends}.", width, height, "".join(parts), "curves")


def legend(names: Sequence[str]) -> str:
    """The key of `curves`: a piece of each line with its marker, and the name."""
    items = []
    for position, name in enumerate(names):
        line = (
            f'<line class="curve line{position % STYLES}" stroke-dasharray="{_DASHES[position % STYLES]}" '
            f'x1="1" y1="8" x2="39" y2="8"/>{marker(position, 20, 8)}'
        )
        items.append(f'<li><svg viewBox="0 0 40 16" aria-hidden="true">{line}</svg>{escape(name)}</li>')
    return f'<ul class="legend">{"".join(items)}</ul>'


def marker(position: int, x: float, y: float) -> str:
    """A small shape that tells lines apart without colour."""
    style = f"marker line{position % STYLES}"
    shape = position % 4
    if shape == 0:
        return f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
    if shape == 1:
        return f'<rect class="{style}" x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6"/>'
    corners = [(x, y - 4), (x + 4, y + 3), (x - 4, y + 3)]
    if shape == 3:
        corners = [(x, y - 4), (x + 4, y), (x, y + 4), (x - 4, y)]
    return f'<polygon class="{style}" points="{_points(corners)}"/>'


def heat_map(matrix: NDArray[np.float64], classes: Sequence[str], title: str, description: str) -> str:
    """A (K, K) matrix as squares, darker for more; each square says its pair and value."""
    size = len(classes)
    cell = max(9.0, min(26.0, 420.0 / size))
    letters = max(len(shorten(name)) for name in classes)
    font = min(12.0, cell * 0.95)
    left = 8 + letters * font * 0.58
    top, right = left * 0.87 + 4, left * 0.5  # column names lean to the right by 30 degrees
    side = cell * size
    largest = float(matrix.max()) or 1.0
    parts = []
    for i, name in enumerate(classes):
        middle = (i + 0.5) * cell
        x, y = left + middle + font * 0.3, top - 4
        parts.append(_text(left - 4, top + middle + font * 0.35, shorten(name), "end", font))
        parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{font:.1f}" transform="rotate(-60 {x:.1f} {y:.1f})">'
            f"{escape(shorten(name))}</text>"
        )
        parts.append(_square(left + i * cell, top + i * cell, cell, "own"))
    parts.append(f'<rect class="frame" x="{left:.1f}" y="{top:.1f}" width="{side:.1f}" height="{side:.1f}"/>')
    for i, j in np.argwhere(matrix > 0.01 * largest):
        value = float(matrix[i, j])
        words = f"{classes[i]} → {classes[j]}: {value:.3f}"
        parts.append(_square(left + j * cell, top + i * cell, cell, "heat", value / largest, words))
    key = top + side + 14
    parts += [_square(left + step * 12, key, 12, "heat", step / 10) for step in range(11)]
    parts += [_text(left, key + 25, "0", "start"), _text(left + 132, key + 25, f"{largest:.2f}", "end")]
    css = "heatmap large" if size > 20 else "heatmap"
    return figure(title, description, left + side + right, key + 32, "".join(parts), css)


def reliability_diagram(table: Reliability, title: str) -> str:
    """Accuracy by confidence; on the diagonal, confidence can be believed."""
    left, top, side = 34.0, 8.0, 180.0
    bins = len(table.count)
    most = max(int(table.count.max()), 1)
    parts = [_grid(0.0, 1.0, left, left + side, lambda value: top + (1 - value) * side, (0.0, 0.5, 1.0))]
    for b in np.flatnonzero(table.count):
        accuracy, share = float(table.accuracy[b]), float(table.count[b]) / most
        x, y = left + b / bins * side, top + (1 - accuracy) * side
        words = (
            f"confidence {b / bins:.2f} to {(b + 1) / bins:.2f}: {100 * accuracy:.1f}% right of "
            f"{int(table.count[b])} predictions, mean confidence {100 * float(table.confidence[b]):.1f}%"
        )
        parts.append(
            f'<rect class="bar" x="{x + 0.5:.1f}" y="{y:.1f}" width="{side / bins - 1:.1f}" '
            f'height="{max(top + side - y, 0.8):.1f}" fill-opacity="{0.25 + 0.75 * share:.2f}">'
            f"<title>{escape(words)}</title></rect>"
        )
    parts.append(f'<line class="diagonal" x1="{left}" y1="{top + side}" x2="{left + side}" y2="{top}"/>')
    parts += [_text(left + tick * side, top + side + 15, f"{100 * tick:g}", "middle") for tick in (0.0, 0.5, 1.0)]
    parts.append(_text(left + side / 2, top + side + 30, "confidence %", "middle"))
    gap = 100 * table.ece
    description = f"Accuracy by confidence in {bins} bins; the mean gap is {gap:.1f} points."
    return figure(title, description, left + side + 14, top + side + 36, "".join(parts), "reliability")


def shorten(name: str, longest: int = 20) -> str:
    """A class name that fits beside a figure."""
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def zoom_start(epochs: int) -> int:
    """How many first epochs `curves` lets run off the bottom, so that the later ones can be told apart."""
    return epochs // 4 if epochs >= 8 else 0


def _range(lines: Sequence[Curve]) -> tuple[float, float]:
    shown = [slice(zoom_start(len(line.epochs)), None) for line in lines]
    low = min(float((line.mean - line.std)[part].min()) for line, part in zip(lines, shown, strict=True))
    high = max(float((line.mean + line.std)[part].max()) for line, part in zip(lines, shown, strict=True))
    space = max(0.05 * (high - low), 0.002)
    return max(low - space, 0.0), min(high + space, 1.0)


def _grid(
    low: float, high: float, left: float, right: float, y: Callable[[float], float], ticks: Sequence[float] = ()
) -> str:
    parts = []
    marks = ticks or _nice(low, high)
    # Neighbouring marks must not read the same.
    digits = 0 if len(marks) < 2 or 100 * (marks[1] - marks[0]) >= 1 else 1
    for tick in marks:
        parts.append(f'<line class="grid" x1="{left:.1f}" x2="{right:.1f}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(_text(left - 5, y(tick) + 4, f"{100 * tick:.{digits}f}", "end"))
    return "".join(parts)


def _nice(low: float, high: float) -> list[float]:
    raw = (high - low) / 5
    power = 10.0 ** np.floor(np.log10(raw))
    step = next(float(power * factor) for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    start = int(np.ceil(low / step - 1e-9))
    return [step * i for i in range(start, int(np.floor(high / step + 1e-9)) + 1)]


def _epoch_ticks(first: int, last: int) -> list[int]:
    if last - first < 8:
        return list(range(first, last + 1))
    step = int(np.ceil((last - first) / 6))
    ticks = list(range(first, last + 1, step))
    return [*(tick for tick in ticks if last - tick > step // 2), last]


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _text(x: float, y: float, words: str, anchor: str, size: float = 12.0) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size:.1f}">{escape(words)}</text>'


def _square(x: float, y: float, side: float, css: str, opacity: float = 1.0, words: str = "") -> str:
    title = f"<title>{escape(words)}</title>" if words else ""
    return (
        f'<rect class="{css}" x="{x:.1f}" y="{y:.1f}" width="{side:.1f}" height="{side:.1f}" '
        f'fill-opacity="{opacity:.2f}">{title}</rect>'
    )

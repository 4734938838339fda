"""Drawing commands shared by the report's figures.

No colour is set here: elements carry classes (``line0`` … ``line6``, ``heat``, ``grid``), and the style sheet gives
them colours for a bright page, a dark one and paper. Each line also has a dash pattern and a marker of its own, for
readers who do not see the colours.
"""

from collections.abc import Callable, Mapping, Sequence
from html import escape

import numpy as np

from adaptive_labels.lab.words import shorten

STYLES = 7
DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 3", "5 2", "1 2")
LETTER = 0.6  # the width of a letter in font sizes, on average


def wrap_svg(title: str, description: str, width: float, height: float, body: str, css: str = "") -> str:
    """Wrap drawing commands in an ``<svg>`` that a screen reader can read."""
    return (
        f'<svg class="{css}" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>{body}</svg>"
    )


def window(x: float, y: float, width: float, height: float, body: str) -> str:
    """A part of a figure that cuts off what reaches beyond it; coordinates are those of the figure."""
    place = f"{x:g} {y:g} {width:g} {height:g}"
    return f'<svg x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" viewBox="{place}">{body}</svg>'


def text(x: float, y: float, label: str, anchor: str = "start", size: float = 12.0, css: str = "") -> str:
    """A line of text; ``anchor`` is start, middle or end."""
    style = f' class="{css}"' if css else ""
    return f'<text{style} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size:.1f}">{escape(label)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    """A straight line."""
    return f'<line class="{css}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def coordinates(places: Sequence[tuple[float, float]]) -> str:
    """Coordinates as ``points`` attributes have them."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def stroke(position: int, places: Sequence[tuple[float, float]], name: str = "") -> str:
    """The line of the method at ``position``, with its dash pattern."""
    label = f"<title>{escape(name)}</title>" if name else ""
    dash = DASHES[position % STYLES]
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline class="curve line{position % STYLES}"{dashes} points="{coordinates(places)}">{label}</polyline>'


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
    return f'<polygon class="{style}" points="{coordinates(corners)}"/>'


def legend(names: Mapping[str, int], left: float, top: float, width: float) -> tuple[str, float]:
    """A piece of each line with its marker and its name (name → style), in rows; the drawing and its height."""
    parts, x, y = [], left, top + 10
    for name, position in names.items():
        shown = shorten(name, 44)
        space = 44 + len(shown) * 12 * LETTER
        if x > left and x + space > left + width:
            x, y = left, y + 18
        parts.append(stroke(position, [(x, y - 4), (x + 30, y - 4)]) + marker(position, x + 15, y - 4))
        parts.append(text(x + 35, y, shown))
        x += space
    return "".join(parts), y - top + 6


def tick_labels(ticks: Sequence[float], label: Callable[[float, int], str]) -> list[str]:
    """The labels of ``ticks`` with as few decimals as say them exactly, four at most; ``label`` takes their number.

    >>> tick_labels([0.625, 0.63], lambda value, digits: f"{100 * value:.{digits}f}")
    ['62.5', '63.0']
    """

    def number(tick: float, digits: int) -> float:
        return float(label(tick, digits).replace("−", "-"))

    exact = (d for d in range(4) if all(abs(number(tick, d) - number(tick, 9)) < 1e-6 for tick in ticks))
    digits = next(exact, 4)
    return [label(tick, digits) for tick in ticks]


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from ``low`` to ``high``, about as many as asked for.

    >>> nice_ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    raw = (high - low) / about
    if not raw > 0:
        return [low]
    power = 10.0 ** np.floor(np.log10(raw))
    step = next(float(power * factor) for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    start = int(np.ceil(low / step - 1e-9))
    return [round(step * i, 10) for i in range(start, int(np.floor(high / step + 1e-9)) + 1)]

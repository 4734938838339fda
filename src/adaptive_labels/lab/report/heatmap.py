"""A heat map of a matrix of classes, as SVG and as data for the page's script.

Shapes: K classes shown, E epochs. Values are shares from 0 to 1. The squares are drawn in nine strengths of one colour,
in proportion to the value; the squares of a strength are one path, which keeps 100 classes small.
"""

import base64
from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.lab.report.svg import LETTER, text, wrap_svg
from adaptive_labels.lab.words import shorten

SIDE = 340.0  # of a map with few classes
LARGE = 480.0  # a map with a longer side takes the whole width of the page
STRENGTHS = 9
LONGEST_NAME = 20
SMALLEST_FONT = 9.5

Matrix = NDArray[np.float64]


def heat_map(matrix: Matrix, classes: Sequence[str], title: str, description: str, largest: float = 0.0) -> str:
    """Draw ``matrix`` (K, K), whose rows are the true class: the larger a value, the stronger the colour.

    The diagonal is grey. Title and description are for a screen reader. The full colour is the value ``largest``, or
    the largest of the matrix unless it is given.
    """
    size = len(classes)
    top_value = largest or float(matrix.max()) or 1.0
    side = max(SIDE, SMALLEST_FONT * size)  # with room for the name of every class
    font = min(12.0, max(SMALLEST_FONT, side / size * 0.95))
    left = 8 + LETTER * font * max(len(shorten(name, LONGEST_NAME)) for name in classes)
    top, right = left * 0.87 + 4, left * 0.5 + 6  # column names lean to the right by 30 degrees
    cell = side / size
    rows, columns = [], []
    for i, name in enumerate(shorten(name, LONGEST_NAME) for name in classes):
        middle = (i + 0.5) * cell
        rows.append(text(left - 4, top + middle + font * 0.35, name, "end", font))
        x, y = left + middle + font * 0.3, top - 4
        columns.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{font:.1f}" transform="rotate(-60 {x:.1f} {y:.1f})">'
            f"{escape(name)}</text>"
        )
    own = "".join(f"M{i} {i}h1v1h-1z" for i in range(size))
    levels = "".join(
        f'<path class="heat" fill-opacity="{level / STRENGTHS:.2f}" d="{squares}"/>'
        for level, squares in enumerate(_squares(matrix / top_value), start=1)
    )
    body = (
        f'<g class="rows">{"".join(rows)}</g><g class="columns">{"".join(columns)}</g>'
        f'<svg class="cells" x="{left:.1f}" y="{top:.1f}" width="{side:g}" height="{side:g}" '
        f'viewBox="0 0 {size} {size}" preserveAspectRatio="none"><path class="own" d="{own}"/>{levels}</svg>'
        f'<rect class="frame" x="{left:.1f}" y="{top:.1f}" width="{side:g}" height="{side:g}"/>'
        f"{_key(left, top + side + 12, top_value)}"
    )
    css = "heatmap large" if side > LARGE else "heatmap"
    return wrap_svg(title, description, left + side + right, top + side + 44, body, css)


def pack(matrix: Matrix) -> str:
    """A matrix of shares as text: one byte per value, 255 times its square root, in base 64.

    >>> pack(np.array([[0.0, 1.0], [0.25, 0.0]]))
    'AP+AAA=='
    """
    values = np.rint(255 * np.sqrt(np.clip(matrix, 0.0, 1.0))).astype(np.uint8)
    return base64.b64encode(values.tobytes()).decode("ascii")


def _squares(shares: Matrix) -> list[str]:
    """For each strength from 1 to 9 the path of its squares, neighbours in a row drawn as one; 0 is not drawn."""
    paths: list[list[str]] = [[] for _ in range(STRENGTHS)]
    for i, row in enumerate(np.rint(STRENGTHS * np.clip(shares, 0.0, 1.0)).astype(np.int64)):
        ends = np.flatnonzero(np.diff(row)) + 1
        for start, end in zip([0, *ends.tolist()], [*ends.tolist(), len(row)], strict=True):
            if row[start] > 0:
                paths[row[start] - 1].append(f"M{start} {i}h{end - start}v1h-{end - start}z")
    return ["".join(path) for path in paths]


def _key(left: float, top: float, largest: float) -> str:
    parts = [
        f'<rect class="heat" x="{left + 14 * level:.1f}" y="{top:.1f}" width="14" height="10" '
        f'fill-opacity="{level / STRENGTHS:.2f}"/>'
        for level in range(STRENGTHS + 1)
    ]
    for level in (0, 3, 6, 9):
        share = 100 * largest * level / STRENGTHS
        label = f"{share:.0f}%" if share >= 2 or level == 0 else f"{share:.1f}%"
        parts.append(text(left + 14 * (level + 0.5), top + 23, label, "middle", 10))
    return f'<g class="key">{"".join(parts)}</g>'

"""Figures and tables collected while a report is written, so that they can become files as well."""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from adaptive_labels.lab import tables
from adaptive_labels.lab.report.page import asset
from adaptive_labels.lab.runs import RunError, write_bytes

PNG_SCALE = 3.0
WITHOUT_PNG = "PNG files were not written: they need the package resvg-py (pip install 'adaptive-labels[report]')."


class Chart(NamedTuple):
    """A drawing with its title above and what it shows below."""

    drawing: Markup
    title: str
    note: str


class PageTable(NamedTuple):
    """A table of the page: ``text_columns`` are left-aligned, ``best`` is the first cell of the row to point out."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    text_columns: Sequence[int] = ()
    best: str | None = None


class Figures:
    """Keeps what it is given under a name of its own, and gives it back for the page."""

    def __init__(self) -> None:
        self.prefix = ""  # put before the names that follow, to tell groups apart
        self.figures: dict[str, str] = {}  # name → ``<svg>``
        self.tables: dict[str, str] = {}  # name → LaTeX

    def chart(self, name: str, drawing: str, title: str = "", note: str = "") -> Chart:
        """Keep an ``<svg>``."""
        self.figures[self._free(name, self.figures)] = drawing
        return Chart(Markup(drawing), title, note)

    def table(
        self,
        name: str,
        headings: Sequence[str],
        rows: Sequence[Sequence[str]],
        caption: str,
        text_columns: Sequence[int] = (),
        best: str | None = None,
    ) -> PageTable:
        """Keep a table as LaTeX."""
        self.tables[self._free(name, self.tables)] = tables.latex(headings, rows, caption, left=(0, *text_columns))
        return PageTable(headings, rows, caption, text_columns, best)

    def write(self, folder: str | Path) -> tuple[list[Path], str | None]:
        """Write every figure as SVG and PNG and every table as LaTeX; the files, and why there is no PNG or None."""
        out = Path(folder)
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"Cannot make the folder {out}: {error.strerror}.") from None
        drawings = {name: standalone(drawing) for name, drawing in self.figures.items()}
        files = {f"{name}.svg": drawing.encode("utf-8", errors="replace") for name, drawing in drawings.items()}
        files |= {f"{name}.tex": source.encode("utf-8", errors="replace") for name, source in self.tables.items()}
        images = {f"{name}.png": as_png(drawing) for name, drawing in drawings.items()}
        files |= {name: image for name, image in images.items() if image is not None}
        problem = WITHOUT_PNG if None in images.values() else None
        for name, content in files.items():
            write_bytes(out / name, content)
        return [out / name for name in files], problem

    def _free(self, name: str, taken: dict[str, str]) -> str:
        # Both may hold many settings, and file systems take names of 255 bytes.
        wanted = re.sub(r"[^a-z0-9]+", "-", f"{self.prefix[:80]}-{name[:100]}".lower()).strip("-")
        numbered = (f"{wanted}-{number}" for number in itertools.count(2))
        return next(name for name in itertools.chain([wanted], numbered) if name not in taken)


def as_png(drawing: str) -> bytes | None:
    """A drawing as PNG; None where the package for it is not installed."""
    try:
        import resvg_py
    except ImportError:
        return None
    return bytes(resvg_py.svg_to_bytes(svg_string=drawing, zoom=PNG_SCALE, background="#ffffff"))


def standalone(drawing: str) -> str:
    """A figure of the page as a file of its own: with its size, its name space and the style of a bright page."""
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawing)
    assert size is not None
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[1]}" height="{size[2]}" '
    head, rest = drawing.removeprefix("<svg ").split(">", 1)
    # The colours are written out: not every program that reads SVG knows variables.
    colours = dict(re.findall(r"(--\w+): (#\w+)", asset("colours.css").partition("@media")[0]))
    style = re.sub(r"var\((--\w+)\)", lambda found: colours[found[1]], asset("figures.css"))
    return tables.visible(f"{frame}{head}><style>{style}</style>{rest}") + "\n"

"""The sections of a report: a function that gives values, and a template of the same name that shows them."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adaptive_labels.lab.analysis.suspects import Suspects
from adaptive_labels.lab.report.charts import EPOCHS, Axis, Curve, line_chart
from adaptive_labels.lab.report.figures import Chart, Figures
from adaptive_labels.lab.report.group_data import GroupData

Values = Mapping[str, Any] | None  # of a section's template; None where there is nothing to show


@dataclass(frozen=True)
class Context:
    """What a section is made from."""

    data: GroupData  # the group's runs, read once
    figures: Figures  # keeps every figure and table, so that they can become files as well
    name: str  # the section's id in the page
    suspects: Sequence[Suspects]  # labels that look wrong in the group's data
    examples: bool  # whether inputs may be shown
    map_bytes: int  # what the epochs of the maps may take

    def lines(
        self,
        name: str,
        title: str,
        curves: Mapping[str, Curve],
        y: Axis,
        note: str,
        x: Axis = EPOCHS,
        skip: int = 0,
    ) -> Chart:
        """A line chart of the methods."""
        drawing = line_chart(curves, f"{title}, {self.data.group.title}", x, y, skip=skip, styles=self.data.styles)
        return self.figures.chart(name, drawing, title, note)


@dataclass(frozen=True)
class ReportSection:
    """A registered section."""

    order: int
    title: str
    link: str  # what the table of contents calls it
    values: Callable[[Context], Values]
    template: str


_SECTIONS: dict[int, ReportSection] = {}


def section(
    order: int, *, title: str = "", link: str = "", template: str | None = None
) -> Callable[[Callable[[Context], Values]], Callable[[Context], Values]]:
    """Register the function below as a section; it gives the values of ``templates/sections/FILE.html``.

    Sections stand in the order of their numbers. One without a title stands above the table of contents.
    """

    def register(values: Callable[[Context], Values]) -> Callable[[Context], Values]:
        known = _SECTIONS.get(order)
        if known is not None and known.values.__module__ != values.__module__:
            raise ValueError(f"order is {order}, which the section {known.link!r} has already.")
        name = template or f"sections/{values.__module__.rpartition('.')[2]}.html"
        _SECTIONS[order] = ReportSection(order, title, link, values, name)
        return values

    return register


def all_sections() -> list[ReportSection]:
    """Every section in its order; a new file in this folder is found by itself."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return [_SECTIONS[order] for order in sorted(_SECTIONS)]

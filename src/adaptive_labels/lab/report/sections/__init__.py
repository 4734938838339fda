"""The sections of a report: one file each, which registers a function that gives the section's HTML."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from adaptive_labels.lab.analysis.suspects import Suspects
from adaptive_labels.lab.report.charts import EPOCHS, Axis, Curve, line_chart
from adaptive_labels.lab.report.figures import Figures
from adaptive_labels.lab.report.group_data import GroupData
from adaptive_labels.lab.report.page import framed


@dataclass(frozen=True)
class Context:
    """What a section is made from."""

    data: GroupData  # the group's runs, read once
    figures: Figures  # keeps every figure and table, so that they can become files as well
    name: str  # the section's id in the page
    suspects: Sequence[Suspects]  # labels that look wrong in the group's data
    examples: bool  # whether inputs may be shown
    map_bytes: int  # what the epochs of the maps may take

    def framed(self, name: str, drawing: str, note: str, title: str, level: int = 4) -> str:
        """Keep a drawing under ``name``, and give it with its title above and its note below."""
        return framed(self.figures.figure(name, drawing), note, title, level=level)

    def lines(
        self,
        name: str,
        title: str,
        curves: Mapping[str, Curve],
        y: Axis,
        note: str,
        *,
        words: str,
        x: Axis = EPOCHS,
        skip: int = 0,
    ) -> str:
        """A framed line chart of the methods; ``words`` say to a screen reader what is shown."""
        shown = f"{words}, {self.data.group.title}"
        return self.framed(name, line_chart(curves, shown, x, y, skip=skip, styles=self.data.styles), note, title)


@dataclass(frozen=True)
class Section:
    """A registered section."""

    order: int
    title: str
    link: str  # what the table of contents calls it
    write: Callable[[Context], str]


_SECTIONS: dict[int, Section] = {}


def section(order: int, *, title: str, link: str) -> Callable[[Callable[[Context], str]], Callable[[Context], str]]:
    """Register the function below as a section; it returns HTML, or an empty text where there is nothing to show.

    Sections stand in the order of their numbers. One without a title stands above the table of contents.
    """

    def register(write: Callable[[Context], str]) -> Callable[[Context], str]:
        known = _SECTIONS.get(order)
        if known is not None and known.write.__module__ != write.__module__:
            raise ValueError(f"order is {order}, which the section {known.link!r} has already.")
        _SECTIONS[order] = Section(order, title, link, write)
        return write

    return register


def all_sections() -> list[Section]:
    """Every section in its order; a new file in this folder is found by itself."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return [_SECTIONS[order] for order in sorted(_SECTIONS)]

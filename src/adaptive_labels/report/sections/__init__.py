"""The sections of a report: one file each, which registers a function that gives the section's HTML."""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adaptive_labels.analysis.suspects import Suspects
from adaptive_labels.report.figures import Figures
from adaptive_labels.report.group_data import GroupData


@dataclass(frozen=True)
class Context:
    """What a section is made from.

    Attributes:
        data: the group's runs, read once.
        figures: keeps every figure and table, so that they can become files as well.
        name: the section's id in the page.
        suspects: rankings of training labels of the group's runs.
        examples: whether inputs may be shown.
        map_bytes: what the epochs of the maps may take.
    """

    data: GroupData
    figures: Figures
    name: str
    suspects: Sequence[Suspects] = ()
    examples: bool = True
    map_bytes: int = 700_000


@dataclass(frozen=True)
class Section:
    """A registered section: its place, its heading, the words that link to it, and the function that writes it."""

    order: int
    title: str
    link: str
    write: Callable[[Context], str]

    @property
    def anchor(self) -> str:
        """The end of the section's id."""
        return self.link.replace(" ", "-")


_SECTIONS: dict[int, Section] = {}


def section(order: int, *, title: str, link: str) -> Callable[[Callable[[Context], str]], Callable[[Context], str]]:
    """Register the function below as a section; it returns HTML, or an empty text where there is nothing to show.

    Args:
        order: its place; the sections stand in the order of these numbers.
        title: its heading; a section without one stands above the table of contents.
        link: what the table of contents calls it.
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

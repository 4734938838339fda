"""The paper's figures, as data: read from `printed.toml`, which says where each is printed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Printed:
    """One cell of a table of the paper, accuracies in percent; None for what it does not print.

    reported: whether the authors took it from another paper instead of measuring it.
    """

    top1: float
    std: float | None = None
    top5: float | None = None
    parameters: str | None = None
    reported: bool = False


@dataclass(frozen=True)
class Column:
    """A network on a data set: its heading in words, and the printed cells by method."""

    heading: str
    rows: Mapping[str, Printed]


@dataclass(frozen=True)
class PaperTable:
    """A table: where it is printed, and its columns by DATA/NETWORK."""

    name: str
    source: str
    columns: Mapping[str, Column]


@dataclass(frozen=True)
class PaperFigure:
    """The heat maps: where they are printed, their epochs, and the training accuracy (percent) under each."""

    source: str
    epochs: tuple[int, ...]
    train_accuracy: tuple[float, ...]


@cache
def paper_tables() -> Mapping[str, PaperTable]:
    """The tables by name.

    >>> paper_tables()["cifar"].columns["cifar100/preact-resnet18"].rows["alr-s"]
    Printed(top1=79.08, std=0.24, top5=None, parameters='11.22M + 10K', reported=False)
    """
    return {
        name: PaperTable(
            name, table["source"], {key: _column(dict(column)) for key, column in table["columns"].items()}
        )
        for name, table in _read().items()
        if "columns" in table
    }


@cache
def paper_figure() -> PaperFigure:
    """What the paper prints under its heat maps."""
    values = _read()["figure"]
    return PaperFigure(values["source"], tuple(values["epochs"]), tuple(values["train_accuracy"]))


def _column(values: dict[str, Any]) -> Column:
    return Column(values.pop("heading"), {method: Printed(**cell) for method, cell in values.items()})


def _read() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("printed.toml").read_text(encoding="utf-8"))

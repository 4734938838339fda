"""The paper's printed figures (`printed.toml`), and the recipes that rerun them.

There is a recipe file for each of the paper's tables and scale, with a task per column.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from adaptive_labels.lab.paper.study import RECIPES, Study, StudyError, Variant, load_study
from adaptive_labels.lab.words import joined

SCALES = ("smoke", "short", "cpu", "paper")
ALL = "all"


@dataclass(frozen=True)
class PrintedCell:
    """One cell of a table of the paper, accuracies in percent; None for what it does not print.

    reported: whether the authors took it from another paper instead of measuring it.
    """

    top1: float
    std: float | None = None
    top5: float | None = None
    parameters: str | None = None
    reported: bool = False


class PaperColumn(NamedTuple):
    """A network on a data set: its heading in words, and the printed cells by method."""

    heading: str
    rows: Mapping[str, PrintedCell]


class PaperTable(NamedTuple):
    """A table: where it is printed, and its columns by DATA/NETWORK."""

    name: str
    source: str
    columns: Mapping[str, PaperColumn]


class PaperFigure(NamedTuple):
    """The heat maps: where they are printed, their epochs, and the training accuracy (percent) under each."""

    source: str
    epochs: tuple[int, ...]
    train_accuracy: tuple[float, ...]


@cache
def paper_tables() -> Mapping[str, PaperTable]:
    """The tables by name.

    >>> paper_tables()["cifar"].columns["cifar100/preact-resnet18"].rows["alr-s"]
    PrintedCell(top1=79.08, std=0.24, top5=None, parameters='11.22M + 10K', reported=False)
    """
    tables = {}
    for name, table in _printed().items():
        if "columns" in table:
            columns = {}
            for key, cells in table["columns"].items():
                heading = cells.pop("heading")
                columns[key] = PaperColumn(heading, {method: PrintedCell(**cell) for method, cell in cells.items()})
            tables[name] = PaperTable(name, table["source"], columns)
    return tables


def paper_figure() -> PaperFigure:
    """What the paper prints under its heat maps."""
    values = _printed()["figure"]
    return PaperFigure(values["source"], tuple(values["epochs"]), tuple(values["train_accuracy"]))


def _printed() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("printed.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Reproduction:
    """One of the paper's tables at one scale: the study that runs it, and the printed figures."""

    scale: str
    study: Study
    table: PaperTable

    def column(self, task: str) -> PaperColumn:
        """The paper's column that a task stands for."""
        return self.table.columns[self.study.column(task)]

    def rows(self, task: str) -> list[Variant]:
        """The variants that the paper prints a figure for in this column."""
        return [variant for variant in self.study.variants_on(task) if variant.name in self.column(task).rows]


def find_table(name: str) -> PaperTable:
    """The table of this name."""
    if name not in paper_tables():
        raise StudyError(f"the paper has no table {name!r}; it has {joined(list(paper_tables()))}")
    return paper_tables()[name]


def load_reproduction(table: str, scale: str) -> Reproduction:
    """The study of a table at a scale."""
    printed = find_table(table)
    if scale not in SCALES:
        raise StudyError(f"scale is {scale!r}; it must be {', '.join(SCALES[:-1])} or {SCALES[-1]}")
    file = RECIPES / f"{table}-{scale}.toml"
    if not file.exists():
        known = [name for name in SCALES if (RECIPES / f"{table}-{name}.toml").exists()]
        raise StudyError(f"{table} has no recipes at the scale {scale}; it has {joined(known)}")
    return Reproduction(scale, load_study(file), printed)


def all_reproductions() -> list[Reproduction]:
    """Every table at every scale that it has recipes for."""
    both = [(table, scale) for table in paper_tables() for scale in SCALES]
    return [load_reproduction(table, scale) for table, scale in both if (RECIPES / f"{table}-{scale}.toml").exists()]


def list_recipes() -> list[tuple[str, str]]:
    """Every task by name, with the cells that it is for: the command that runs them, the column, the methods."""
    uses_of: dict[str, list[str]] = {}
    for reproduction in all_reproductions():
        for task in reproduction.study.tasks:
            methods = ", ".join(variant.name for variant in reproduction.study.variants_on(task))
            command = f"reproduce {reproduction.table.name} --scale {reproduction.scale}"
            uses_of.setdefault(task, []).append(f"{command}: {reproduction.column(task).heading}; {methods}")
    return [(task, " | ".join(uses)) for task, uses in uses_of.items()]


def choose_cells(
    reproduction: Reproduction, methods: Sequence[str] = (), networks: Sequence[str] = (), data: Sequence[str] = ()
) -> list[tuple[str, tuple[Variant, ...]]]:
    """The tasks that are wanted, with the variants that are wanted on each; what is not named is as in the paper.

    Networks and data sets are those of the paper's columns, whatever stands for them at this scale.
    """
    study = reproduction.study
    columns = [study.column(task).split("/") for task in study.tasks]
    _refuse_unknown("networks", networks, [network for _, network in columns])
    _refuse_unknown("data", data, [name for name, _ in columns])
    _refuse_unknown("only", [name for name in methods if name != ALL], [v.name for v in study.variant])
    cells = []
    for task, (name, network) in zip(study.tasks, columns, strict=True):
        if (networks and network not in networks) or (data and name not in data):
            continue
        variants = study.variants_on(task) if methods else reproduction.rows(task)
        if chosen := tuple(variant for variant in variants if not methods or ALL in methods or variant.name in methods):
            cells.append((task, chosen))
    if not cells:
        raise StudyError("there is no such cell: no column that is left has one of these methods")
    return cells


def _refuse_unknown(option: str, given: Sequence[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise StudyError(f"{option}: there is no {name!r} here; there are {', '.join(dict.fromkeys(known))}")

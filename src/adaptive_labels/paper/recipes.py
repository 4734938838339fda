"""The recipes that come with the package: one file for each of the paper's tables and scale, with a task per column."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adaptive_labels.experiments.studies.study import Study, StudyError, Variant, load_study
from adaptive_labels.paper.printed import Column, PaperTable, paper_tables

RECIPES = Path(__file__).parent / "recipes"
SCALES = ("smoke", "short", "paper")
ALL = "all"


@dataclass(frozen=True)
class Reproduction:
    """One of the paper's tables at one scale: the study that runs it, and the printed figures."""

    scale: str
    study: Study
    table: PaperTable

    def column(self, task: str) -> Column:
        """The paper's column that a task stands for."""
        return self.table.columns[self.study.paper_columns[task]]

    def rows(self, task: str) -> list[Variant]:
        """The variants that the paper prints a figure for in this column."""
        return [variant for variant in self.study.variants_on(task) if variant.method in self.column(task).rows]


@dataclass(frozen=True)
class Choice:
    """Which cells are wanted: methods, networks and data sets by name, empty for what the paper has."""

    methods: Sequence[str] = ()
    networks: Sequence[str] = ()
    data: Sequence[str] = ()


def load_reproduction(table: str, scale: str) -> Reproduction:
    """The study of a table at a scale."""
    if scale not in SCALES:
        raise StudyError(f"scale is {scale!r}; it must be {', '.join(SCALES[:-1])} or {SCALES[-1]}")
    return Reproduction(scale, load_study(RECIPES / f"{table}-{scale}.toml"), paper_tables()[table])


def all_reproductions() -> list[Reproduction]:
    """Every table at every scale."""
    return [load_reproduction(table, scale) for table in paper_tables() for scale in SCALES]


def list_recipes() -> list[tuple[str, str]]:
    """Every task by name, with the cells that it is for: the command that runs them, the column, the methods."""
    found: dict[str, list[str]] = {}
    for one in all_reproductions():
        for task in one.study.tasks:
            methods = ", ".join(variant.method for variant in one.study.variants_on(task))
            command = f"reproduce {one.table.name} --scale {one.scale}"
            found.setdefault(task, []).append(f"{command}: {one.column(task).heading}; {methods}")
    return [(task, " | ".join(uses)) for task, uses in found.items()]


def choose(reproduction: Reproduction, choice: Choice) -> list[tuple[str, tuple[Variant, ...]]]:
    """The tasks that are wanted, with the variants that are wanted on each.

    Networks and data sets are those of the paper's columns, whatever stands for them at this scale.
    """
    study = reproduction.study
    columns = [study.paper_columns[task].split("/") for task in study.tasks]
    _refuse_unknown("networks", choice.networks, [network for _, network in columns])
    _refuse_unknown("data", choice.data, [data for data, _ in columns])
    _refuse_unknown("only", [name for name in choice.methods if name != ALL], [v.method for v in study.variants])
    found = []
    for task, (data, network) in zip(study.tasks, columns, strict=True):
        if (choice.networks and network not in choice.networks) or (choice.data and data not in choice.data):
            continue
        variants = study.variants_on(task) if choice.methods else reproduction.rows(task)
        if choice.methods and ALL not in choice.methods:
            variants = [variant for variant in variants if variant.method in choice.methods]
        if variants:
            found.append((task, tuple(variants)))
    if not found:
        raise StudyError("there is no such cell: no column that is left has one of these methods")
    return found


def limited(study: Study, variants: tuple[Variant, ...], seeds: int | None) -> Study:
    """A study of these variants only, with so many seeds on every task if a number is given."""
    if seeds is None:
        return dataclasses.replace(study, variants=variants)
    return dataclasses.replace(study, variants=variants, seeds=seeds, seeds_on={})


def _refuse_unknown(option: str, given: Sequence[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise StudyError(f"{option}: there is no {name!r} here; there are {', '.join(dict.fromkeys(known))}")

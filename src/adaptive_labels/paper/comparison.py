"""Our figures beside the paper's: from records to cells, and from cells to text, Markdown and plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptive_labels.analysis.format import difference, parameters, percent_summary, signed
from adaptive_labels.analysis.statistics import Summary, compare, summarise
from adaptive_labels.config import RunConfig
from adaptive_labels.experiments import build
from adaptive_labels.experiments.studies.records import Record
from adaptive_labels.experiments.studies.study import Variant
from adaptive_labels.experiments.studies.tables import metric_of
from adaptive_labels.paper.printed import Printed
from adaptive_labels.paper.recipes import Reproduction

Records = Mapping[tuple[str, str, int], Record]
HEADINGS = (
    "method",
    "paper %",
    "ours %",
    "difference",
    "paper, gain",
    "ours, gain",
    "paper, top-5",
    "ours, top-5",
    "paper, parameters",
    "ours, parameters",
    "seeds",
)
NOTES = (
    "Test accuracy of the last epoch, mean ± standard deviation over the seeds. `difference` is ours minus the paper's "
    "in points; `gain` is over the column's baseline, ours on the same seeds, with a 95% t interval from two seeds on. "
    "* the paper took the figure from Zhang et al. 2018. – is not printed in the paper; an empty cell has not been run."
)


@dataclass(frozen=True)
class Cell:
    """A method in a column: what the paper prints and our runs by seed, either perhaps missing; accuracies are shares.

    gain: ours over the baseline of the column with its interval, as words; empty for the baseline itself.
    """

    method: str
    printed: Printed | None
    top1: Mapping[int, float]
    top5: Mapping[int, float]
    parameters: str
    gain: str
    printed_gain: float | None
    diverged: int = 0

    @property
    def ours(self) -> Summary | None:
        """Our top-1 over the seeds."""
        return summarise(list(self.top1.values()))


@dataclass(frozen=True)
class Comparison:
    """A column of the paper's table: its heading, what stands for it here, and its cells."""

    task: str
    column: str
    heading: str
    recipe: str
    cells: tuple[Cell, ...]


def compare_with_paper(reproduction: Reproduction, records: Records) -> list[Comparison]:
    """Every column of the table at this scale: the rows the paper has, then others that have been run."""
    return [_compare_column(reproduction, task, records) for task in reproduction.study.tasks]


def _compare_column(reproduction: Reproduction, task: str, records: Records) -> Comparison:
    column = reproduction.column(task)
    cells = []
    baseline = _runs(task, Variant("baseline", "baseline"), records)
    variants = reproduction.study.variants_on(task)
    printed_first = sorted(variants, key=lambda variant: _place(variant.method, list(column.rows)))
    for variant in printed_first:
        runs = _runs(task, variant, records)
        if not runs and variant.method not in column.rows:
            continue
        cells.append(_cell(variant.method, runs, baseline, column.rows))
    recipe = _recipe(reproduction.config(task), [run for (where, _, _), run in records.items() if where == task])
    return Comparison(task, reproduction.study.paper_columns[task], column.heading, recipe, tuple(cells))


def _recipe(config: RunConfig, runs: Sequence[Record]) -> str:
    """What stands for a column: the data that the runs were made on, or that the recipe names, and the training."""
    # The user's own stand-in for a data set is named by its folder.
    used = {Path(run["config"]["data"]["name"]).name for run in runs} or {config.data.name}
    inputs = f"{build.kind_of_inputs(config)}s"
    share = "" if config.data.train_fraction == 1 else f", {config.data.train_fraction:.0%} of the training {inputs}"
    return f"{', '.join(sorted(used))}{share}; {build.describe(config)}"


def _place(method: str, rows: list[str]) -> int:
    return rows.index(method) if method in rows else len(rows)


def _runs(task: str, variant: Variant, records: Records) -> dict[int, Record]:
    return {seed: record for (where, key, seed), record in records.items() if (where, key) == (task, variant.key)}


def _cell(
    method: str, runs: Mapping[int, Record], baseline: Mapping[int, Record], printed: Mapping[str, Printed]
) -> Cell:
    own, base = printed.get(method), printed.get("baseline")
    top1 = _figures(runs, "top1")
    against = compare(top1, _figures(baseline, "top1")) if method != "baseline" else None
    first = next(iter(runs.values()), None)
    return Cell(
        method=method,
        printed=own,
        top1=top1,
        top5=_figures(runs, "top5"),
        parameters="" if first is None else parameters(first["parameters"]),
        gain=difference(against, 2),
        printed_gain=own.top1 - base.top1 if own and base and method != "baseline" else None,
        diverged=sum(run["status"] == "diverged" for run in runs.values()),
    )


def _figures(runs: Mapping[int, Record], metric: str) -> dict[int, float]:
    return {seed: found for seed, run in runs.items() if (found := metric_of(run, "test", metric)) is not None}


def _words(cell: Cell) -> list[str]:
    printed, ours = cell.printed, cell.ours
    spread = "" if printed is None or printed.std is None else f" ± {printed.std:.2f}"
    top5 = summarise(list(cell.top5.values()))
    shown = percent_summary(ours, 2)
    if cell.diverged:
        shown = f"{shown} ({cell.diverged} diverged)".strip()
    return [
        cell.method,
        "–" if printed is None else f"{printed.top1:.2f}{spread}{'*' if printed.reported else ''}",
        shown,
        "" if ours is None or printed is None else signed(ours.mean - printed.top1 / 100, 2),
        "" if cell.printed_gain is None else signed(cell.printed_gain / 100, 2),
        cell.gain,
        "" if printed is None or printed.top5 is None else f"{printed.top5:.2f}",
        percent_summary(top5, 2),
        "" if printed is None else printed.parameters or "",
        cell.parameters,
        str(len(cell.top1)) if cell.top1 else "",
    ]


def render(reproduction: Reproduction, compared: Sequence[Comparison], markdown: bool = False) -> str:
    """The whole table as text for a terminal, or as Markdown; columns of figures that nobody has are left out."""
    study = reproduction.study
    parts = [f"# {study.title}" if markdown else study.title]
    parts.append(f"Paper: {reproduction.table.source}. Scale: {reproduction.scale}. {study.question}")
    parts.append(render_columns(compared, markdown))
    parts.append(NOTES if markdown else NOTES.replace("`", ""))
    return "\n\n".join(parts) + "\n"


def render_columns(compared: Sequence[Comparison], markdown: bool = False) -> str:
    """A small table for each of the paper's columns, under what it is and what stands for it here."""
    parts = []
    for one in compared:
        rows = [_words(cell) for cell in one.cells]
        parts.append(f"**{one.heading}**: {one.recipe}." if markdown else f"{one.heading}: {one.recipe}.")
        parts.append(_markdown(rows) if markdown else _aligned(rows))
    return "\n\n".join(parts)


def _shown(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The rows under their headings, without the columns of top-5 and parameters that are empty throughout."""
    kept = [i for i, heading in enumerate(HEADINGS) if i < 6 or heading == "seeds" or any(row[i] for row in rows)]
    return [[row[i] for i in kept] for row in (HEADINGS, *rows)]


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    shown = _shown(rows)
    widths = [max(len(row[i]) for row in shown) for i in range(len(shown[0]))]
    lines = []
    for row in shown:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = _shown(rows)
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def to_plain(reproduction: Reproduction, compared: Sequence[Comparison]) -> dict[str, Any]:
    """The table as plain data, accuracies as fractions by seed, the paper's in percent as printed."""
    return {
        "table": reproduction.table.name,
        "source": reproduction.table.source,
        "scale": reproduction.scale,
        "columns": [
            {
                "recipe": one.task,
                "column": one.column,
                "heading": one.heading,
                "how": one.recipe,
                "cells": [_plain_cell(cell) for cell in one.cells],
            }
            for one in compared
        ],
    }


def _plain_cell(cell: Cell) -> dict[str, Any]:
    ours, printed = cell.ours, cell.printed
    return {
        "method": cell.method,
        "paper": None if printed is None else {key: value for key, value in vars(printed).items() if value is not None},
        "ours": None if ours is None else {"n": ours.n, "mean": ours.mean, "std": ours.std},
        "difference_points": None if ours is None or printed is None else round(100 * ours.mean - printed.top1, 4),
        "top1": {str(seed): value for seed, value in cell.top1.items()},
        "top5": {str(seed): value for seed, value in cell.top5.items()},
        "parameters": cell.parameters or None,
        "diverged": cell.diverged,
    }

"""Our figures and the paper's: from records to the columns of a table, and to text, Markdown and plain data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adaptive_labels.lab import tables
from adaptive_labels.lab.analysis.format import difference, parameters, percent_summary, signed
from adaptive_labels.lab.analysis.table import MethodRow, TableColumn, lay_out, method_rows
from adaptive_labels.lab.config import RunConfig
from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.paper.recipes import PrintedCell, Reproduction
from adaptive_labels.lab.paper.records import record_metrics
from adaptive_labels.lab.paper.study import Records

NOTES = (
    "Test accuracy of the last epoch, mean ± standard deviation over the seeds. `difference` is ours minus the paper's "
    "in points; `gain` is over the column's baseline, ours on the same seeds, with a 95% t interval from two seeds on. "
    "* the paper took the figure from Zhang et al. 2018. – is not printed in the paper; an empty cell has not been run."
)


@dataclass(frozen=True)
class ComparedColumn:
    """A column of the paper's table: what it prints by method, what stands for it here, and our runs as rows."""

    task: str
    column: str
    heading: str
    recipe: str
    printed: Mapping[str, PrintedCell]
    rows: tuple[MethodRow, ...]

    @property
    def begun(self) -> bool:
        """Whether any of it has been run."""
        return any(row.runs for row in self.rows)

    def difference(self, row: MethodRow) -> float | None:
        """Ours minus the paper's, in points."""
        ours, printed = row.mean("test_top1"), self.printed.get(row.label)
        return None if ours is None or printed is None else 100 * ours - printed.top1


def compare_with_paper(reproduction: Reproduction, records: Records) -> list[ComparedColumn]:
    """Every column of the table at this scale, then the same column on other data where that has been run.

    Its rows are those of the paper, then others that have been run.
    """
    columns = []
    for task in reproduction.study.tasks:
        others = sorted({where for where, _, _ in records if where.startswith(f"{task}@")})
        columns += [_column(reproduction, task, name, records) for name in (task, *others)]
    return columns


def _column(reproduction: Reproduction, task: str, name: str, records: Records) -> ComparedColumn:
    """The column of a task, from the records under a name: its own, or TASK@DATA."""
    study, column = reproduction.study, reproduction.column(task)
    runs_of = {}
    for variant in study.variants_on(task):
        runs = {seed: run for (where, key, seed), run in records.items() if (where, key) == (name, variant.key)}
        if runs or variant.name in column.rows:
            runs_of[variant.name] = runs
    metrics = {name: {seed: record_metrics(run) for seed, run in runs.items()} for name, runs in runs_of.items()}
    sizes: dict[str, dict[str, int]] = {
        name: next((run["parameters"] for run in runs.values()), {}) for name, runs in runs_of.items()
    }
    rows = [replace(row, parameters=sizes[row.label]) for row in method_rows(metrics, "baseline")]
    order = list(column.rows)
    rows.sort(key=lambda row: order.index(row.label) if row.label in order else len(order))
    instead = name.partition("@")[2]
    heading = f"{column.heading}, on other data" if instead else column.heading
    recipe = _recipe(study.config(task), instead)
    return ComparedColumn(name, study.column(task), heading, recipe, column.rows, tuple(rows))


def _recipe(config: RunConfig, instead: str) -> str:
    """What stands for a column: the data and how much of it, and the training."""
    inputs = f"{build.entry_of(config).kind}s"
    share = "" if config.data.train_fraction == 1 else f", {config.data.train_fraction:.0%} of the training {inputs}"
    return f"{instead or config.data.name}{share}; {build.describe_recipe(config)}"


def _columns(column: ComparedColumn) -> list[TableColumn]:
    def paper(row: MethodRow) -> str:
        if (printed := column.printed.get(row.label)) is None:
            return "–"
        spread = "" if printed.std is None else f" ± {printed.std:.2f}"
        return f"{printed.top1:.2f}{spread}{'*' if printed.reported else ''}"

    def paper_gain(row: MethodRow) -> str:
        printed, base = column.printed.get(row.label), column.printed.get("baseline")
        return _points(printed.top1 - base.top1) if printed and base and printed is not base else ""

    def ours(metric: str) -> Callable[[MethodRow], str]:
        return lambda row: percent_summary(row.summary(metric), 2)

    def our_accuracy(row: MethodRow) -> str:
        diverged = f" ({_diverged(row)} diverged)" if _diverged(row) else ""
        return f"{ours('test_top1')(row)}{diverged}".strip()

    def of_paper(row: MethodRow, name: str, form: str) -> str:
        value = getattr(column.printed.get(row.label), name, None)
        return "" if value is None else format(value, form)

    return [
        TableColumn("method", lambda row: row.label),
        TableColumn("paper %", paper, always=True),
        TableColumn("ours %", our_accuracy, always=True),
        TableColumn("difference", lambda row: _points(column.difference(row)), always=True),
        TableColumn("paper, gain", paper_gain, always=True),
        TableColumn("ours, gain", lambda row: difference(row.versus, 2), always=True),
        TableColumn("paper, top-5", lambda row: of_paper(row, "top5", ".2f")),
        TableColumn("ours, top-5", ours("test_top5")),
        TableColumn("paper, parameters", lambda row: of_paper(row, "parameters", "")),
        TableColumn("ours, parameters", lambda row: parameters(row.parameters)),
        TableColumn("seeds", lambda row: str(len(row.values("test_top1")) or ""), always=True),
    ]


def _diverged(row: MethodRow) -> int:
    """How many of the runs have no accuracy."""
    return row.n - len(row.values("test_top1"))


def _points(value: float | None) -> str:
    return "" if value is None else signed(value / 100, 2)


def format_comparison(reproduction: Reproduction, compared: Sequence[ComparedColumn], markdown: bool = False) -> str:
    """The whole table as text for a terminal, or as Markdown; columns of figures that nobody has are left out."""
    study = reproduction.study
    parts = [f"# {study.title}", study.conclusion.strip()] if markdown else [study.title]
    parts.append(f"Paper: {reproduction.table.source}. Scale: {reproduction.scale}. {study.question}")
    for column in compared:
        parts.append(f"**{column.heading}**: {column.recipe}." if markdown else f"{column.heading}: {column.recipe}.")
        cells = lay_out(column.rows, _columns(column))
        parts.append("\n".join(tables.markdown(*cells, left=None) if markdown else tables.aligned(*cells)))
    parts.append(NOTES if markdown else NOTES.replace("`", ""))
    return "\n\n".join(filter(None, parts)) + "\n"


def to_plain(reproduction: Reproduction, compared: Sequence[ComparedColumn]) -> dict[str, Any]:
    """The table as plain data, accuracies as fractions by seed, the paper's in percent as printed."""
    columns = [
        {
            "recipe": column.task,
            "column": column.column,
            "heading": column.heading,
            "how": column.recipe,
            "cells": [_plain_cell(column, row) for row in column.rows],
        }
        for column in compared
    ]
    table = reproduction.table
    return {"table": table.name, "source": table.source, "scale": reproduction.scale, "columns": columns}


def _plain_cell(column: ComparedColumn, row: MethodRow) -> dict[str, Any]:
    ours, printed, gap = row.summary("test_top1"), column.printed.get(row.label), column.difference(row)
    return {
        "method": row.label,
        "paper": None if printed is None else {key: value for key, value in vars(printed).items() if value is not None},
        "ours": None if ours is None else vars(ours),
        "difference_points": None if gap is None else round(gap, 4),
        "top1": {str(seed): value for seed, value in row.values("test_top1").items()},
        "top5": {str(seed): value for seed, value in row.values("test_top5").items()},
        "parameters": parameters(row.parameters) or None,
        "diverged": _diverged(row),
    }

"""Our figures and the paper's: from records to the columns of a table, and to text, Markdown and plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adaptive_labels.lab.analysis.format import difference, parameters, percent_summary, signed
from adaptive_labels.lab.analysis.statistics import compare_paired, summarise
from adaptive_labels.lab.config import RunConfig
from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.paper.recipes import Printed, Reproduction
from adaptive_labels.lab.paper.study import Records
from adaptive_labels.lab.paper.tables import Column, Row, lay_out

NOTES = (
    "Test accuracy of the last epoch, mean ± standard deviation over the seeds. `difference` is ours minus the paper's "
    "in points; `gain` is over the column's baseline, ours on the same seeds, with a 95% t interval from two seeds on. "
    "* the paper took the figure from Zhang et al. 2018. – is not printed in the paper; an empty cell has not been run."
)


@dataclass(frozen=True)
class PaperColumn:
    """A column of the paper's table: what it prints by method, what stands for it here, and our runs as rows."""

    task: str
    column: str
    heading: str
    recipe: str
    printed: Mapping[str, Printed]
    rows: tuple[Row, ...]

    @property
    def begun(self) -> bool:
        """Whether any of it has been run."""
        return any(row.runs for row in self.rows)

    def difference(self, row: Row) -> float | None:
        """Ours minus the paper's, in points."""
        ours, printed = summarise(list(row.values("test", "top1").values())), self.printed.get(row.name)
        return None if ours is None or printed is None else 100 * ours.mean - printed.top1


def compare_with_paper(reproduction: Reproduction, records: Records) -> list[PaperColumn]:
    """Every column of the table at this scale, then the same column on other data where that has been run.

    Its rows are those of the paper, then others that have been run.
    """
    found = []
    for task in reproduction.study.tasks:
        others = sorted({where for where, _, _ in records if where.startswith(f"{task}@")})
        found += [_column(reproduction, task, name, records) for name in (task, *others)]
    return found


def _column(reproduction: Reproduction, task: str, name: str, records: Records) -> PaperColumn:
    """The column of a task, from the records under a name: its own, or TASK@DATA."""
    study, column = reproduction.study, reproduction.column(task)
    rows = []
    for variant in study.variants_on(task):
        runs = {seed: run for (where, key, seed), run in records.items() if (where, key) == (name, variant.key)}
        if runs or variant.name in column.rows:
            rows.append(Row(variant.name, runs, variant.name))
    order = list(column.rows)
    rows.sort(key=lambda row: order.index(row.name) if row.name in order else len(order))
    instead = name.partition("@")[2]
    heading = f"{column.heading}, on other data" if instead else column.heading
    recipe = _recipe(study.config(task), instead)
    return PaperColumn(name, study.column(task), heading, recipe, column.rows, tuple(rows))


def _recipe(config: RunConfig, instead: str) -> str:
    """What stands for a column: the data and how much of it, and the training."""
    inputs = f"{build.kind_of_inputs(config)}s"
    share = "" if config.data.train_fraction == 1 else f", {config.data.train_fraction:.0%} of the training {inputs}"
    return f"{instead or config.data.name}{share}; {build.describe(config)}"


def _columns(one: PaperColumn) -> list[Column]:
    baseline = next((row.values("test", "top1") for row in one.rows if row.name == "baseline"), {})

    def paper(row: Row) -> str:
        if (printed := one.printed.get(row.name)) is None:
            return "–"
        spread = "" if printed.std is None else f" ± {printed.std:.2f}"
        return f"{printed.top1:.2f}{spread}{'*' if printed.reported else ''}"

    def paper_gain(row: Row) -> str:
        printed, base = one.printed.get(row.name), one.printed.get("baseline")
        known = printed and base and row.name != "baseline"
        return points(printed.top1 - base.top1) if printed and base and known else ""

    def ours(metric: str) -> Any:
        return lambda row: percent_summary(summarise(list(row.values("test", metric).values())), 2)

    def our_accuracy(row: Row) -> str:
        diverged = sum(run["status"] == "diverged" for run in row.runs.values())
        return f"{ours('top1')(row)}{f' ({diverged} diverged)' if diverged else ''}".strip()

    def our_gain(row: Row) -> str:
        return "" if row.name == "baseline" else difference(compare_paired(row.values("test", "top1"), baseline), 2)

    def of_paper(row: Row, name: str, form: str) -> str:
        value = getattr(one.printed.get(row.name), name, None)
        return "" if value is None else format(value, form)

    return [
        Column("method", lambda row: row.name),
        Column("paper %", paper),
        Column("ours %", our_accuracy),
        Column("difference", lambda row: points(one.difference(row))),
        Column("paper, gain", paper_gain),
        Column("ours, gain", our_gain),
        Column("paper, top-5", lambda row: of_paper(row, "top5", ".2f"), always=False),
        Column("ours, top-5", ours("top5"), always=False),
        Column("paper, parameters", lambda row: of_paper(row, "parameters", ""), always=False),
        Column("ours, parameters", _parameters, always=False),
        Column("seeds", lambda row: str(len(row.values("test", "top1")) or "")),
    ]


def _parameters(row: Row) -> str:
    return next((parameters(run["parameters"]) for run in row.runs.values()), "")


def points(value: float | None) -> str:
    """A difference in points, with its sign; empty without one."""
    return "" if value is None else signed(value / 100, 2)


def render(reproduction: Reproduction, compared: Sequence[PaperColumn], markdown: bool = False) -> str:
    """The whole table as text for a terminal, or as Markdown; columns of figures that nobody has are left out."""
    study = reproduction.study
    parts = [f"# {study.title}", study.conclusion.strip()] if markdown else [study.title]
    parts.append(f"Paper: {reproduction.table.source}. Scale: {reproduction.scale}. {study.question}")
    for one in compared:
        parts.append(f"**{one.heading}**: {one.recipe}." if markdown else f"{one.heading}: {one.recipe}.")
        parts.append(lay_out(one.rows, _columns(one), markdown))
    parts.append(NOTES if markdown else NOTES.replace("`", ""))
    return "\n\n".join(filter(None, parts)) + "\n"


def to_plain(reproduction: Reproduction, compared: Sequence[PaperColumn]) -> dict[str, Any]:
    """The table as plain data, accuracies as fractions by seed, the paper's in percent as printed."""
    columns = [
        {
            "recipe": one.task,
            "column": one.column,
            "heading": one.heading,
            "how": one.recipe,
            "cells": [_plain_cell(one, row) for row in one.rows],
        }
        for one in compared
    ]
    table = reproduction.table
    return {"table": table.name, "source": table.source, "scale": reproduction.scale, "columns": columns}


def _plain_cell(one: PaperColumn, row: Row) -> dict[str, Any]:
    top1, top5 = row.values("test", "top1"), row.values("test", "top5")
    ours, printed, gap = summarise(list(top1.values())), one.printed.get(row.name), one.difference(row)
    return {
        "method": row.name,
        "paper": None if printed is None else {key: value for key, value in vars(printed).items() if value is not None},
        "ours": None if ours is None else {"n": ours.n, "mean": ours.mean, "std": ours.std},
        "difference_points": None if gap is None else round(gap, 4),
        "top1": {str(seed): value for seed, value in top1.items()},
        "top5": {str(seed): value for seed, value in top5.items()},
        "parameters": _parameters(row) or None,
        "diverged": sum(run["status"] == "diverged" for run in row.runs.values()),
    }

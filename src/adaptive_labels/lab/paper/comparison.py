"""Our figures beside the paper's: from records to cells, and from cells to text, Markdown, plain data and pages."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from adaptive_labels.lab import tables
from adaptive_labels.lab.analysis.format import difference, p_value, parameters, percent_summary, signed
from adaptive_labels.lab.analysis.statistics import Summary, compare_paired, holm, summarise, welch_p
from adaptive_labels.lab.config import RunConfig
from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.experiments.studies.records import Records, read_records
from adaptive_labels.lab.experiments.studies.tables import Row, rows_of, task_table
from adaptive_labels.lab.files import write_files
from adaptive_labels.lab.paper.figure import draw_kept
from adaptive_labels.lab.paper.recipes import (
    Column,
    Printed,
    Reproduction,
    all_reproductions,
    find_table,
    load_reproduction,
)

HEADINGS = (
    *("method", "paper %", "ours %", "difference", "paper, gain", "ours, gain", "paper, top-5", "ours, top-5"),
    *("paper, parameters", "ours, parameters", "seeds"),
)
NOTES = (
    "Test accuracy of the last epoch, mean ± standard deviation over the seeds. `difference` is ours minus the paper's "
    "in points; `gain` is over the column's baseline, ours on the same seeds, with a 95% t interval from two seeds on. "
    "* the paper took the figure from Zhang et al. 2018. – is not printed in the paper; an empty cell has not been run."
)
PRINTED_RUNS = 5  # behind each mean ± standard deviation of the paper's
_MARKER = re.compile(r"\{\{([\w-]+)-(\w+)(:metrics)?\}\}")


@dataclass(frozen=True)
class Cell:
    """A method in a column: what the paper prints and our runs by seed, either perhaps missing; accuracies are shares.

    gain: ours over the baseline of the column with its interval, as words; empty for the baseline itself.
    """

    method: str
    printed: Printed | None
    top1: dict[int, float]
    top5: dict[int, float]
    parameters: str
    gain: str
    printed_gain: float | None
    diverged: int

    @property
    def ours(self) -> Summary | None:
        """Our top-1 over the seeds."""
        return summarise(list(self.top1.values()))

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, in points."""
        return None if self.ours is None or self.printed is None else 100 * self.ours.mean - self.printed.top1


class Comparison(NamedTuple):
    """A column of the paper's table: its heading, what stands for it here, and its cells."""

    task: str
    column: str
    heading: str
    recipe: str
    cells: tuple[Cell, ...]


def compare_with_paper(reproduction: Reproduction, records: Records) -> list[Comparison]:
    """Every column of the table at this scale, then the same column on other data where that has been run.

    Its rows are those of the paper, then others that have been run.
    """
    found = []
    for task in reproduction.study.tasks:
        others = sorted({where for where, _, _ in records if where.startswith(f"{task}@")})
        found += [_compare_column(reproduction, task, name, records) for name in (task, *others)]
    return found


def _compare_column(reproduction: Reproduction, task: str, name: str, records: Records) -> Comparison:
    """The column of a task, from the records under a name: its own, or TASK@DATA."""
    study, column = reproduction.study, reproduction.column(task)
    order = list(column.rows)
    rows = {}
    for variant in study.variants_on(task):
        runs = {seed: run for (where, key, seed), run in records.items() if (where, key) == (name, variant.key)}
        rows[variant.name] = Row(variant.name, runs)
    shown = [method for method, row in rows.items() if row.runs or method in order]
    shown.sort(key=lambda method: order.index(method) if method in order else len(order))
    cells = tuple(_cell(rows[method], rows["baseline"], column) for method in shown)
    instead = name.partition("@")[2]
    heading = f"{column.heading}, on other data" if instead else column.heading
    return Comparison(name, study.paper_columns[task], heading, _recipe(study.config(task), instead), cells)


def _recipe(config: RunConfig, instead: str) -> str:
    """What stands for a column: the data and how much of it, and the training."""
    inputs = f"{build.kind_of_inputs(config)}s"
    share = "" if config.data.train_fraction == 1 else f", {config.data.train_fraction:.0%} of the training {inputs}"
    return f"{instead or config.data.name}{share}; {build.describe(config)}"


def _cell(row: Row, baseline: Row, column: Column) -> Cell:
    own, base, is_baseline = column.rows.get(row.name), column.rows.get("baseline"), row.name == "baseline"
    top1 = row.values("test", "top1")
    first = next(iter(row.runs.values()), None)
    return Cell(
        method=row.name,
        printed=own,
        top1=top1,
        top5=row.values("test", "top5"),
        parameters="" if first is None else parameters(first["parameters"]),
        gain=difference(None if is_baseline else compare_paired(top1, baseline.values("test", "top1")), 2),
        printed_gain=own.top1 - base.top1 if own and base and not is_baseline else None,
        diverged=sum(run["status"] == "diverged" for run in row.runs.values()),
    )


def _words(cell: Cell) -> list[str]:
    ours = percent_summary(cell.ours, 2)
    if cell.diverged:
        ours = f"{ours} ({cell.diverged} diverged)".strip()
    paper, paper_top5, paper_parameters = "–", "", ""
    if printed := cell.printed:
        spread = "" if printed.std is None else f" ± {printed.std:.2f}"
        paper = f"{printed.top1:.2f}{spread}{'*' if printed.reported else ''}"
        paper_top5 = "" if printed.top5 is None else f"{printed.top5:.2f}"
        paper_parameters = printed.parameters or ""
    return [
        cell.method,
        paper,
        ours,
        _points(cell.difference),
        _points(cell.printed_gain),
        cell.gain,
        paper_top5,
        percent_summary(summarise(list(cell.top5.values())), 2),
        paper_parameters,
        cell.parameters,
        str(len(cell.top1)) if cell.top1 else "",
    ]


def _points(value: float | None) -> str:
    return "" if value is None else signed(value / 100, 2)


def render(reproduction: Reproduction, compared: Sequence[Comparison], markdown: bool = False) -> str:
    """The whole table as text for a terminal, or as Markdown; columns of figures that nobody has are left out."""
    study = reproduction.study
    parts = [
        f"# {study.title}" if markdown else study.title,
        f"Paper: {reproduction.table.source}. Scale: {reproduction.scale}. {study.question}",
        _render_columns(compared, markdown),
        NOTES if markdown else NOTES.replace("`", ""),
    ]
    return "\n\n".join(parts) + "\n"


def _render_columns(compared: Sequence[Comparison], markdown: bool) -> str:
    """A small table for each of the paper's columns, under what it is and what stands for it here."""
    parts = []
    for one in compared:
        rows = [_words(cell) for cell in one.cells]
        parts.append(f"**{one.heading}**: {one.recipe}." if markdown else f"{one.heading}: {one.recipe}.")
        # The columns of top-5 and parameters are left out where nobody has them.
        kept = [i for i, heading in enumerate(HEADINGS) if i < 6 or heading == "seeds" or any(row[i] for row in rows)]
        head, *body = ([row[i] for i in kept] for row in (HEADINGS, *rows))
        lines = tables.markdown(head, body, left=None) if markdown else tables.aligned(head, body)
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def write_tables(results: Path) -> list[Path]:
    """Write `tables/reproduce-TABLE-SCALE.md` for every table and scale that has records; what was written.

    And `tables/figure-TASK.svg` where the labels that it shows were kept.
    """
    files = {}
    for one in all_reproductions():
        if records := read_records(results, one.study):
            files[f"reproduce-{one.study.name}.md"] = render(one, compare_with_paper(one, records), markdown=True)
            files |= draw_kept(results, one.study, records)
    return write_files(results / "tables", files)


def fill_template(template: Path, results: Path) -> str:
    """The template with `{{TABLE-SCALE}}` replaced by the columns that have been run at least in part.

    `{{TABLE-SCALE:metrics}}` is replaced by our other metrics of these columns, `{{printed-TABLE}}` by tests of the
    paper's own figures.
    """

    def fill(match: re.Match[str]) -> str:
        if match[1] == "printed":
            return welch_table(match[2])
        reproduction = load_reproduction(match[1], match[2])
        study, records = reproduction.study, read_records(results, reproduction.study)
        if match[3]:
            rows = {reproduction.column(task).heading: rows_of(study, task, records) for task in study.tasks}
            return "\n\n".join(f"**{name}**\n\n{task_table(study, some)}" for name, some in rows.items() if some)
        compared = compare_with_paper(reproduction, records)
        begun = [one for one in compared if any(cell.top1 for cell in one.cells)]
        return _render_columns(begun, markdown=True) or "Nothing of this table has been run yet."

    return _MARKER.sub(fill, template.read_text(encoding="utf-8"))


def welch_table(table: str) -> str:
    """Whether the gains that the paper prints are more than noise, by Welch's test of its means and deviations."""
    tests: list[tuple[str, str, float, float]] = []
    for column in find_table(table).columns.values():
        base = column.rows["baseline"]
        for method, row in column.rows.items():
            if row is not base and row.std is not None and base.std is not None:
                ours, theirs = (row.top1, row.std, PRINTED_RUNS), (base.top1, base.std, PRINTED_RUNS)
                tests.append((column.heading, method, row.top1 - base.top1, welch_p(ours, theirs)))
    corrected = holm([p for *_, p in tests])
    head = ["column", "method", "gain, points", "p (Welch)", "p (Holm)"]
    rows = [
        [column, method, _points(gain), p_value(p), p_value(holm_p)]
        for (column, method, gain, p), holm_p in zip(tests, corrected, strict=True)
    ]
    return "\n".join(tables.markdown(head, rows, left=None))


def to_plain(reproduction: Reproduction, compared: Sequence[Comparison]) -> dict[str, Any]:
    """The table as plain data, accuracies as fractions by seed, the paper's in percent as printed."""
    columns = [
        {
            "recipe": one.task,
            "column": one.column,
            "heading": one.heading,
            "how": one.recipe,
            "cells": [_plain_cell(cell) for cell in one.cells],
        }
        for one in compared
    ]
    table = reproduction.table
    return {"table": table.name, "source": table.source, "scale": reproduction.scale, "columns": columns}


def _plain_cell(cell: Cell) -> dict[str, Any]:
    ours, printed = cell.ours, cell.printed
    return {
        "method": cell.method,
        "paper": None if printed is None else {key: value for key, value in vars(printed).items() if value is not None},
        "ours": None if ours is None else {"n": ours.n, "mean": ours.mean, "std": ours.std},
        "difference_points": None if cell.difference is None else round(cell.difference, 4),
        "top1": {str(seed): value for seed, value in cell.top1.items()},
        "top5": {str(seed): value for seed, value in cell.top5.items()},
        "parameters": cell.parameters or None,
        "diverged": cell.diverged,
    }

"""Records → the tables of a study on a page, with its conclusion first, and pictures; reproducible to the byte."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from adaptive_labels.lab import tables
from adaptive_labels.lab.analysis.format import difference, p_value, percent_summary, signed
from adaptive_labels.lab.analysis.statistics import PairedDifference, compare_all, compare_paired, summarise
from adaptive_labels.lab.paper.combined import combined_tables, draw_combined
from adaptive_labels.lab.paper.study import METRICS, Figure, Record, Records, Study, Variant
from adaptive_labels.lab.report.charts import Axis, Curve, line_chart
from adaptive_labels.lab.report.figures import standalone

RANKING_SEEDS = 2


@dataclass(frozen=True)
class Row:
    """A variant on a task: its runs by seed. The row of a tuned ``variant`` has the name of the chosen trial."""

    name: str
    runs: Mapping[int, Record]
    variant: str = ""

    def values(self, split: str, metric: str) -> dict[int, float]:
        """Seed → figure: a metric of a split, or one of how it came about."""
        figures = {seed: _figure_of(run, split, metric) for seed, run in self.runs.items()}
        return {seed: float(figure) for seed, figure in figures.items() if figure is not None}


def _figure_of(record: Record, split: str, metric: str) -> Any:
    if metric == "train_top1":
        return record["metrics"].get("train", {}).get("top1")
    if metric == "loss_rise":
        losses = record.get("course", {}).get("validation_loss")
        return losses[-1] - min(losses) if losses else None
    if metric == "label_entropy":
        return record.get("residual_labels", {}).get("entropy")
    if metric in record.get("mechanism", {}):
        return record["mechanism"][metric]
    return record["metrics"].get(split, {}).get(metric)


class Column(NamedTuple):
    """A column of a table: its heading, and the cell of a row."""

    heading: str
    cell: Callable[[Row], str]
    always: bool = True  # else it is left out where every cell is empty


def lay_out(rows: Sequence[Row], columns: Sequence[Column], markdown: bool = True) -> str:
    """A table in Markdown, or for a terminal."""
    cells = [[column.cell(row) for row in rows] for column in columns]
    shown = [place for place, column in enumerate(columns) if column.always or any(cells[place])]
    head = [columns[place].heading for place in shown]
    body = [[cells[place][number] for place in shown] for number in range(len(rows))]
    return "\n".join(tables.markdown(head, body, left=None) if markdown else tables.aligned(head, body))


def rows_of(study: Study, task: str, records: Records) -> list[Row]:
    """The study's variants on a task that have runs; a tuned one is shown at its best value on validation."""
    rows, seeds = [], study.seeds_for(task)
    for variant in study.variants_on(task):
        shown = variant if variant.tune is None else variant.best_trial(task, records, seeds)
        if shown is not None:
            rows.append(replace(_row(study, task, shown, records), variant=variant.name))
    return [row for row in rows if row.runs]


def _row(study: Study, task: str, variant: Variant, records: Records) -> Row:
    runs = {seed: records.get((task, variant.key, seed)) for seed in study.seeds_for(task)}
    return Row(variant.name, {seed: record for seed, record in runs.items() if record is not None})


def study_page(study: Study, records: Records) -> str:
    """A study's page: its conclusion, its question, and a table for each task."""
    parts = [f"# {study.title}", *filter(None, [study.conclusion.strip()]), study.question]
    if study.combined:
        parts += ["## All tasks together", *combined_tables(accuracies_of(study, records), study.combined)]
    for task in study.tasks:
        if rows := rows_of(study, task, records):
            parts += [f"## {task}", task_table(study, rows), *filter(None, [_diverged(rows)])]
            parts += filter(None, [gains_table(rows) if study.by_class else ""])
    return "\n\n".join([*parts, _notes(study)]) + "\n"


def _notes(study: Study) -> str:
    return (
        "Mean ± standard deviation over n seeds, last epoch. Bold: the highest on validation. Differences in points of "
        f"test accuracy from {study.reference} on the same seeds with their 95% t interval; p of the paired t test "
        "after Holm over the rows. This page is made by `make results` from `evidence/records`."
    )


def _diverged(rows: Sequence[Row]) -> str:
    runs = [f"{row.name} (seed {s})" for row in rows for s, run in row.runs.items() if run["status"] != "finished"]
    return f"Diverged: {', '.join(runs)}." if runs else ""


def accuracies_of(study: Study, records: Records) -> dict[str, dict[str, dict[int, float]]]:
    """Task → variant → seed → test accuracy."""
    return {
        task: {row.variant: row.values("test", "top1") for row in rows}
        for task in study.tasks
        if (rows := rows_of(study, task, records))
    }


def task_table(study: Study, rows: Sequence[Row]) -> str:
    """One task's Markdown table."""
    accuracies = {row.variant: row.values("test", "top1") for row in rows}
    against: Mapping[str, PairedDifference] = (
        compare_all(accuracies, study.reference) if study.reference in accuracies else {}
    )
    best = max(rows, key=lambda row: _mean(row.values("validation", "top1")))

    def accuracy(split: str) -> Callable[[Row], str]:
        return lambda row: percent_summary(summarise(list(row.values(split, "top1").values()))) or "–"

    def metric(name: str) -> Column:
        heading, digits, unit = METRICS[name]

        def cell(row: Row) -> str:
            values = row.values("test", name)
            return f"{unit * _mean(values):.{digits}f}" if values else "–"

        return Column(heading, cell)

    columns = [
        Column("variant", lambda row: f"**{row.name}**" if row is best else row.name),
        Column("n", lambda row: str(len(row.runs))),
        Column("validation %", accuracy("validation")),
        Column("test %", accuracy("test")),
        Column(f"vs. {study.reference}", lambda row: difference(against.get(row.variant), 1)),
        Column("p", lambda row: p_value(against[row.variant].p_holm) if row.variant in against else ""),
        *map(metric, study.columns),
    ]
    return lay_out(rows, columns)


def gains_table(rows: Sequence[Row]) -> str:
    """In which classes a gain over the baseline lies: the third it knows worst, the middle one, and the best.

    The baseline's first seeds rank the classes and its others are compared with, since the classes that are worst with
    one seed would be better with another one by chance alone.
    """
    whole = {
        row.name: {s: run for s, run in row.runs.items() if "right_by_class" in run} for row in rows
    }  # not diverged
    right = {name: {s: np.array(run["right_by_class"]) for s, run in runs.items()} for name, runs in whole.items()}
    baseline = right.pop("baseline", {})
    if len(baseline) <= RANKING_SEEDS:
        return ""
    seeds = sorted(baseline)
    counts = np.array(whole["baseline"][seeds[0]]["test_by_class"])
    ranked = np.argsort(sum(baseline[seed] for seed in seeds[:RANKING_SEEDS]) / np.maximum(counts, 1), kind="stable")
    thirds = np.array_split(ranked, 3)
    head = ["gain over the baseline, points", "worst third of classes", "middle third", "best third"]
    lines = []
    for name, own in right.items():
        if gains := [own[seed] - baseline[seed] for seed in seeds[RANKING_SEEDS:] if seed in own]:
            mean = np.mean(gains, axis=0)
            lines.append([name, *(signed(mean[third].sum() / counts[third].sum()) for third in thirds)])
    return "\n".join(tables.markdown(head, lines, left=None)) if lines else ""


def _mean(values: Mapping[int, float]) -> float:
    return sum(values.values()) / len(values) if values else float("-inf")


def curves_of(study: Study, figure: Figure, records: Records) -> dict[str, Curve]:
    """By task, the differences of test accuracy from the baseline in points, at the values that the study runs there.

    x is the place of a value among the figure's; the band is the 95% t interval over the seeds.
    """
    curves = {}
    for task in study.tasks:
        wanted = {variant.key for variant in study.variants_on(task)}
        baseline = _row(study, task, Variant("baseline", "baseline"), records).values("test", "top1")
        points = []
        for place, value in enumerate(figure.values):
            changed = {} if value == figure.default else {figure.option: value}
            variant = Variant("", figure.method, {**study.options.get(figure.method, {}), **changed})
            gain = compare_paired(_row(study, task, variant, records).values("test", "top1"), baseline)
            if variant.key in wanted and gain.difference is not None:
                ends = [gain.difference if end is None else end for end in (gain.low, gain.high)]
                points.append((place, 100 * gain.difference, *(100 * end for end in ends)))
        if len(points) > 1:
            curves[task] = Curve.of(*zip(*points, strict=True))
    return curves


def draw_study(study: Study, records: Records) -> str | None:
    """The picture of a study that has one, as an SVG file."""
    if study.figure is not None and (curves := curves_of(study, study.figure, records)):
        figure = study.figure
        ticks = {float(place): f"{value:g}".replace("-", "−") for place, value in enumerate(figure.values)}
        x, y = Axis(figure.label, ticks=ticks), Axis(figure.title, signed=True)
        return standalone(line_chart(curves, figure.title, x, y, bars=True))
    if study.combined and (drawing := draw_combined(accuracies_of(study, records), study.combined, study.title)):
        return standalone(drawing)
    return None

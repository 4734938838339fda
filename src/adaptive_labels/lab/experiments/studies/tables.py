"""Records → Markdown tables, pages and pictures, reproducible, so that committed files can be checked."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_labels.lab import tables
from adaptive_labels.lab.analysis.format import difference, p_value, percent_summary, signed
from adaptive_labels.lab.analysis.statistics import compare_all, compare_paired, summarise
from adaptive_labels.lab.experiments.studies.combined import combined_tables, draw_combined
from adaptive_labels.lab.experiments.studies.records import Record, Records, read_records
from adaptive_labels.lab.experiments.studies.study import COLUMNS, Figure, Study, StudyError, Variant, load_study
from adaptive_labels.lab.files import write_files
from adaptive_labels.lab.report.charts import Axis, Curve, line_chart
from adaptive_labels.lab.report.figures import standalone

RANKING_SEEDS = 2
_MARKER = re.compile(r"\{\{([\w-]+)(?::([\w-]+))?\}\}")


@dataclass(frozen=True)
class Row:
    """A variant on a task: its runs by seed. The row of a tuned ``variant`` has the name of the chosen trial."""

    name: str
    runs: Mapping[int, Record]
    variant: str = ""

    def values(self, split: str, metric: str) -> dict[int, float]:
        """Seed → figure: a metric of a split, or one of how it came about."""
        found = {seed: _figure_of(run, split, metric) for seed, run in self.runs.items()}
        return {seed: float(figure) for seed, figure in found.items() if figure is not None}


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


def rows_of(study: Study, task: str, records: Records) -> list[Row]:
    """The study's variants on a task that have runs; a tuned one is shown at its best value on validation."""
    rows, seeds = [], study.seeds_for(task)
    for variant in study.variants_on(task):
        shown = variant if variant.tune is None else variant.best_trial(task, records, seeds)
        if shown is not None:
            rows.append(replace(_row(study, task, shown, records), variant=variant.name))
    return [row for row in rows if row.runs]


def _row(study: Study, task: str, variant: Variant, records: Records) -> Row:
    found = {seed: records.get((task, variant.key, seed)) for seed in study.seeds_for(task)}
    return Row(variant.name, {seed: record for seed, record in found.items() if record is not None})


def study_page(study: Study, records: Records) -> str:
    """A study's page: its question, and a table for each task."""
    parts = [f"# {study.title}", study.question]
    for task in study.tasks:
        if rows := rows_of(study, task, records):
            shown, *gains = _tables(study, rows)
            parts += [f"## {task}", shown, _caption(study, rows), *gains]
    if study.combined:
        parts += ["## All tasks together", *combined_tables(_accuracies(study, records), study.combined)]
    return "\n\n".join(parts) + "\n"


def fill_template(template: Path, studies: Path, results: Path) -> str:
    """The template with `{{study}}` replaced by a table for each task, `{{study:task}}` by that task's alone.

    `{{study}}` of a combined study is the tables of its gains over all tasks.
    """

    def fill(match: re.Match[str]) -> str:
        study = load_study(studies / f"{match[1]}.toml")
        if match[2]:
            study = replace(study, tasks=(match[2],), combined=())
        records = read_records(results, study)
        if study.combined:
            return "\n\n".join(combined_tables(_accuracies(study, records), study.combined))
        parts = []
        for task in study.tasks:
            if rows := rows_of(study, task, records):
                parts += [f"**{task}**", *_tables(study, rows)]
        if not parts:
            raise StudyError(f"{template} asks for {match[0]}, but there are no records of it")
        return "\n\n".join(parts)

    return _MARKER.sub(fill, template.read_text(encoding="utf-8"))


def _accuracies(study: Study, records: Records) -> dict[str, dict[str, dict[int, float]]]:
    """Task → variant → seed → test accuracy."""
    return {
        task: {row.variant: row.values("test", "top1") for row in rows}
        for task in study.tasks
        if (rows := rows_of(study, task, records))
    }


def _tables(study: Study, rows: Sequence[Row]) -> list[str]:
    gains = gains_table(rows) if study.by_class else ""
    return [task_table(study, rows), *filter(None, [gains])]


def task_table(study: Study, rows: Sequence[Row]) -> str:
    """One task's Markdown table."""
    accuracies = {row.variant: row.values("test", "top1") for row in rows}
    against = compare_all(accuracies, study.reference) if study.reference in accuracies else {}
    head = ["variant", "n", "validation %", "test %", f"against {study.reference}", "p"]
    head += [COLUMNS[column][0] for column in study.columns]
    best = max(rows, key=lambda row: _mean(row.values("validation", "top1")))
    lines = []
    for row in rows:
        compared = against.get(row.variant)
        cells = [f"**{row.name}**" if row is best else row.name, str(len(row.runs))]
        for split in ("validation", "test"):
            cells.append(percent_summary(summarise(list(row.values(split, "top1").values()))) or "–")
        cells += [difference(compared, 1) if compared else "", p_value(compared.p_holm) if compared else ""]
        lines.append([*cells, *(_cell(row, column) for column in study.columns)])
    return "\n".join(tables.markdown(head, lines, left=None))


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


def _caption(study: Study, rows: Sequence[Row]) -> str:
    diverged = [
        f"{row.name} (seed {seed})" for row in rows for seed, run in row.runs.items() if run["status"] != "finished"
    ]
    words = (
        "Mean ± standard deviation over n seeds, last epoch. Bold: the highest on validation. Differences in points of "
        f"test accuracy against {study.reference} on the same seeds with their 95% t interval; p of the paired t test "
        "after Holm over the rows."
    )
    return words + (f" Diverged: {', '.join(diverged)}." if diverged else "")


def _cell(row: Row, column: str) -> str:
    _, digits, factor = COLUMNS[column]
    values = row.values("test", column)
    return f"{factor * _mean(values):.{digits}f}" if values else "–"


def _mean(values: Mapping[int, float]) -> float:
    return sum(values.values()) / len(values) if values else float("-inf")


# ---------------------------------------------------------------------------------------------------- pictures, files


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
            variant = Variant("", figure.method, {} if value == figure.default else {figure.option: value})
            found = compare_paired(_row(study, task, variant, records).values("test", "top1"), baseline)
            if variant.key in wanted and found.difference is not None:
                ends = [found.difference if end is None else end for end in (found.low, found.high)]
                points.append((place, 100 * found.difference, *(100 * end for end in ends)))
        if len(points) > 1:
            curves[task] = Curve.of(*zip(*points, strict=True))
    return curves


def draw(figure: Figure, curves: Mapping[str, Curve]) -> str:
    """The picture as an SVG file: points of accuracy over the baseline against the option's values."""
    ticks = {float(place): f"{value:g}".replace("-", "−") for place, value in enumerate(figure.values)}
    x, y = Axis(figure.label, ticks=ticks), Axis(figure.title, signed=True)
    return standalone(line_chart(curves, figure.title, x, y, bars=True))


def write_tables(studies: Path, results: Path) -> list[Path]:
    """Write the page and the picture of every study that has records; the files."""
    files = {}
    for file in sorted(studies.glob("*.toml")):
        study = load_study(file)
        records = read_records(results, study)
        if accuracies := _accuracies(study, records):
            files[f"{study.name}.md"] = study_page(study, records)
            if study.figure is not None and (curves := curves_of(study, study.figure, records)):
                files[f"{study.name}.svg"] = draw(study.figure, curves)
            if study.combined and (drawing := draw_combined(accuracies, study.combined, study.title)):
                files[f"{study.name}.svg"] = standalone(drawing)
    return write_files(results / "tables", files)

"""Records → Markdown tables: deterministic, so that what is committed can be compared with what the records give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_labels.analysis.format import difference, p_value, signed
from adaptive_labels.analysis.statistics import Comparison, compare_all, summarise
from adaptive_labels.experiments.studies.figure import draw, lines_of
from adaptive_labels.experiments.studies.records import Record, read_all_records
from adaptive_labels.experiments.studies.study import COLUMNS, Study, Variant, load_study
from adaptive_labels.experiments.tuning import best_trial

Records = Mapping[tuple[str, str, int], Record]


@dataclass(frozen=True)
class Row:
    """A variant on a task: its runs by seed."""

    name: str
    runs: Mapping[int, Record]

    def values(self, split: str, metric: str) -> dict[int, float]:
        """Seed → figure."""
        return {seed: found for seed, run in self.runs.items() if (found := metric_of(run, split, metric)) is not None}


def metric_of(record: Record, split: str, metric: str) -> float | None:
    """One figure of a record: a metric of a split, or one of how it came about."""
    if metric == "train_top1":
        return _number(record["metrics"].get("train", {}).get("top1"))
    if metric == "label_entropy":
        return _number(record.get("residual_labels", {}).get("entropy"))
    if metric in record.get("mechanism", {}):
        return _number(record["mechanism"][metric])
    return _number(record["metrics"].get(split, {}).get(metric))


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def rows_of(study: Study, task: str, records: Records) -> list[Row]:
    """The study's variants on a task that have runs; a tuned one is shown at its best value on validation."""
    rows = []
    for variant in study.variants_on(task):
        shown: Variant | None = variant
        if variant.tune is not None:
            shown = best_trial(variant, task, records)
        if shown is None:
            continue
        found = {seed: records.get((task, shown.key, seed)) for seed in study.seeds_for(task)}
        runs = {seed: record for seed, record in found.items() if record is not None}
        if runs:
            rows.append(Row(shown.name, runs))
    return rows


def study_table(study: Study, records: Records) -> str:
    """A study's page: its question, and a table a task."""
    parts = [f"# {study.title}", study.question]
    for task in study.tasks:
        rows = rows_of(study, task, records)
        if rows:
            parts += [f"## {task}", task_table(study, rows), _caption(study, rows)]
            parts += [gains] if study.by_class and (gains := gains_table(rows)) else []
    return "\n\n".join(parts) + "\n"


def task_table(study: Study, rows: Sequence[Row]) -> str:
    """One task's Markdown table."""
    against = _comparisons(study, rows)
    head = ["variant", "n", "validation %", "test %", f"against {study.reference}", "p"]
    head += [COLUMNS[column][0] for column in study.columns]
    best = max(rows, key=lambda row: _mean(row.values("validation", "top1")))
    lines = [_line(head), _line(["---"] * len(head))]
    for row in rows:
        name = f"**{row.name}**" if row is best else row.name
        cells = [name, str(len(row.runs)), _percent(row, "validation"), _percent(row, "test")]
        compared = against.get(row.name)
        cells += [difference(compared, 1) if compared else "", p_value(compared.p_holm) if compared else ""]
        cells += [_cell(row, column) for column in study.columns]
        lines.append(_line(cells))
    return "\n".join(lines)


RANKING_SEEDS = 2


def gains_table(rows: Sequence[Row]) -> str:
    """In which classes a gain over the baseline lies: the third it knows worst, the middle one, and the best.

    The baseline's first seeds rank the classes and its others are compared with, since the classes that are worst with
    one seed would be better with another one by chance alone.
    """
    baseline = next((row for row in rows if row.name == "baseline"), None)
    if baseline is None or len(baseline.runs) <= RANKING_SEEDS:
        return ""
    seeds = sorted(baseline.runs)
    right = {seed: np.array(run["right_by_class"]) for seed, run in baseline.runs.items()}
    counts = np.array(baseline.runs[seeds[0]]["test_by_class"])
    ranked = np.argsort(sum(right[seed] for seed in seeds[:RANKING_SEEDS]) / np.maximum(counts, 1), kind="stable")
    thirds = np.array_split(ranked, 3)
    head = ["gain over the baseline, points", "worst third of classes", "middle third", "best third"]
    lines = [_line(head), _line(["---"] * len(head))]
    for row in rows:
        shared = [seed for seed in seeds[RANKING_SEEDS:] if seed in row.runs and row is not baseline]
        gains = [np.array(row.runs[seed]["right_by_class"]) - right[seed] for seed in shared]
        if gains:
            mean = np.mean(gains, axis=0)
            lines.append(_line([row.name, *(signed(mean[third].sum() / counts[third].sum()) for third in thirds)]))
    return "\n".join(lines)


def _comparisons(study: Study, rows: Sequence[Row]) -> dict[str, Comparison]:
    accuracies = {row.name: row.values("test", "top1") for row in rows}
    return compare_all(accuracies, study.reference) if study.reference in accuracies else {}


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


def _percent(row: Row, split: str) -> str:
    summary = summarise(list(row.values(split, "top1").values()))
    if summary is None:
        return "–"
    spread = "" if summary.std is None else f" ± {100 * summary.std:.1f}"
    return f"{100 * summary.mean:.1f}{spread}"


def _cell(row: Row, column: str) -> str:
    _, digits, factor = COLUMNS[column]
    values = row.values("test", column)
    return f"{factor * _mean(values):.{digits}f}" if values else "–"


def _mean(values: Mapping[int, float]) -> float:
    return sum(values.values()) / len(values) if values else float("-inf")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def write_tables(studies: Path, results: Path) -> list[Path]:
    """Make the page of every study that has records, and return what was written."""
    written = []
    for file in sorted(studies.glob("*.toml")):
        study = load_study(file)
        records = read_all_records(results, study.tasks)
        if any(rows_of(study, task, records) for task in study.tasks):
            path = results / "tables" / f"{study.name}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(study_table(study, records), encoding="utf-8")
            written.append(path)
            if study.figure is not None and (lines := lines_of(study, study.figure, records)):
                picture = path.with_suffix(".svg")
                picture.write_text(draw(study.figure, lines), encoding="utf-8")
                written.append(picture)
    return written

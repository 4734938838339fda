"""The comparison of methods: one row per method, and the table of a group of runs in five formats."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from adaptive_labels.errors import UserError
from adaptive_labels.lab import tables
from adaptive_labels.lab.analysis.format import (
    difference,
    digits_for,
    p_value,
    parameters,
    percent,
    percent_summary,
    points,
)
from adaptive_labels.lab.analysis.records import RunGroup, RunRecord, group_records
from adaptive_labels.lab.analysis.statistics import PairedDifference, Summary, compare_all, summarise
from adaptive_labels.lab.words import joined
from adaptive_labels.metrics import BINS

FORMATS = ("text", "markdown", "csv", "latex", "json")
NOTHING = "No run has finished yet."
_DECIMALS = 9  # to which means over seeds that agree are equal: accuracies are counts divided by counts


@dataclass(frozen=True)
class MethodRow:
    """One method: the metrics of its runs, and its paired differences in one of them, test top-1 unless said."""

    label: str
    runs: Mapping[int, Mapping[str, float]]  # seed → metric → value; metrics are named as those of a `RunRecord`
    versus: PairedDifference | None = None  # from the baseline
    versus_slr: PairedDifference | None = None  # from label smoothing with its default settings
    method: str = ""
    epochs: tuple[int, ...] = ()  # the last epochs of its runs, sorted
    parameters: Mapping[str, int] = field(default_factory=dict)  # of its first run, see `RunRecord`

    @property
    def n(self) -> int:
        """The number of seeds."""
        return len(self.runs)

    def values(self, metric: str) -> dict[int, float]:
        """Seed → value, of the seeds that have the metric."""
        return {seed: run[metric] for seed, run in self.runs.items() if metric in run}

    def summary(self, metric: str) -> Summary | None:
        """Mean and standard deviation of a metric over the seeds that have it."""
        return summarise(list(self.values(metric).values()))

    def mean(self, metric: str) -> float | None:
        """The mean of a metric over the seeds that have it."""
        summary = self.summary(metric)
        return None if summary is None else summary.mean


def method_rows(
    runs: Mapping[str, Mapping[int, Mapping[str, float]]],
    baseline: str | None = None,
    smoothing: str | None = None,
    metric: str = "test_top1",
) -> list[MethodRow]:
    """One row per method of ``runs``: method → seed → metric → value; differences are of ``metric``.

    The tables of runs, of studies and of the paper are all made from these rows.

    >>> seeds = {0: {"test_top1": 0.5}, 1: {"test_top1": 0.75}}
    >>> row = method_rows({"baseline": seeds, "alr": seeds}, "baseline")[1]
    >>> row.label, row.n, row.mean("test_top1"), row.versus.difference
    ('alr', 2, 0.625, 0.0)
    """
    rows = [MethodRow(label, seeds) for label, seeds in runs.items()]
    values = {row.label: row.values(metric) for row in rows}
    versus, versus_slr = (
        compare_all(values, other) if other in values else {} for other in (baseline or "", smoothing or "")
    )
    return [replace(row, versus=versus.get(row.label), versus_slr=versus_slr.get(row.label)) for row in rows]


def group_rows(group: RunGroup, metric: str = "test_top1") -> list[MethodRow]:
    """A row for each method with finished runs, the baseline first; differences are of ``metric``."""
    by_label, baseline = group.by_label(), group.label_of("baseline")
    runs = {label: {record.seed: record.metrics for record in records} for label, records in by_label.items()}
    return [
        replace(
            row,
            versus_slr=None if row.label == baseline else row.versus_slr,
            method=by_label[row.label][0].method,
            epochs=tuple(sorted({record.epochs for record in by_label[row.label] if record.epochs is not None})),
            parameters=by_label[row.label][0].parameters,
        )
        for row in method_rows(runs, baseline, group.label_of("slr"), metric)
    ]


def best_row(rows: Sequence[MethodRow]) -> MethodRow | None:
    """The best by validation: by mean accuracy, then by NLL, then the first; None if one has no such accuracy."""
    reached = {row.label: row.mean("validation_top1") for row in rows}
    if not rows or None in reached.values():
        return None

    def rank(row: MethodRow) -> tuple[float, float]:
        nll = row.mean("validation_nll")
        return round(reached[row.label] or 0.0, _DECIMALS), -math.inf if nll is None else -nll

    return max(rows, key=rank)


# -------------------------------------------------------------------------------------------------------- any table


class TableColumn(NamedTuple):
    """A column of a table: its heading, and what it says of a row."""

    heading: str
    cell: Callable[[MethodRow], str]
    always: bool = False  # else the column is left out where every cell is empty


def metric_column(heading: str, metric: str, digits: int, scale: float = 1, missing: str = "") -> TableColumn:
    """A column of the means of a metric."""

    def cell(row: MethodRow) -> str:
        mean = row.mean(metric)
        return missing if mean is None else f"{scale * mean:.{digits}f}"

    return TableColumn(heading, cell)


def lay_out(rows: Sequence[MethodRow], columns: Sequence[TableColumn]) -> tuple[list[str], list[list[str]]]:
    """The headings of a table, and its cells row by row."""
    cells = [[column.cell(row) for row in rows] for column in columns]
    shown = [place for place, column in enumerate(columns) if column.always or any(cells[place])]
    return [columns[place].heading for place in shown], [
        [cells[place][number] for place in shown] for number in range(len(rows))
    ]


# -------------------------------------------------------------------------------------------------- the table of runs


def format_table(records: Sequence[RunRecord], format: str = "text") -> str:
    """Write the comparison of ``records`` as text, Markdown, CSV, LaTeX (booktabs) or JSON.

    There is one table for each group of runs that may be compared. Text, Markdown and LaTeX are for reading, in
    percent; CSV and JSON are for machines, in fractions. Runs without a result are listed below with their reason.
    """
    if format not in FORMATS:
        raise UserError(f"format is {format!r}; it must be one of {', '.join(FORMATS)}.")
    groups = group_records(records)
    if format in ("json", "csv"):
        plain = [line for group in groups for line in _plain_rows(group)]
        if format == "json":
            return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
        names = list(dict.fromkeys(name for line in plain for name in line))
        return tables.as_csv(names, [[line.get(name) for name in names] for line in plain])
    write = {"text": _text, "markdown": _markdown, "latex": _latex}[format]
    return "\n".join(write(group, group_rows(group)) for group in groups)


def _plain_rows(group: RunGroup) -> list[dict[str, Any]]:
    """A group for machines: one flat row per method and run that is not counted."""
    where = {"group": group.title, "dataset": group.dataset, "model": group.model}
    lines: list[dict[str, Any]] = []
    for row in group_rows(group):
        line = {**where, "method": row.label, "status": "finished", "n": row.n}
        line["epochs"] = " ".join(map(str, row.epochs))
        for prefix, versus in (("", row.versus), ("vs_slr_", row.versus_slr)):
            for name, value in {} if versus is None else vars(versus).items():
                line[f"{prefix}{'shared_seeds' if name == 'n' else name}"] = value
        for metric in dict.fromkeys(metric for run in row.runs.values() for metric in run):
            if (summary := row.summary(metric)) is not None:
                line |= {f"{metric}_mean": summary.mean, f"{metric}_std": summary.std}
        lines.append(line | {f"parameters_{name}": count for name, count in row.parameters.items()})
    for left in group.left_out:
        line = {"method": left.label, "status": left.status, "seed": left.seed, "reason": left.reason}
        lines.append({**where, **line, "run": left.run.name})
    return [{name: value for name, value in line.items() if value is not None} for line in lines]


def table_cells(rows: Sequence[MethodRow]) -> tuple[list[str], list[list[str]]]:
    """The headings and cells of the table for reading, the most important columns first."""
    digits = digits_for([row.summary("test_top1") for row in rows])
    both = [(row.mean("test_top1"), row.mean("test_balanced_accuracy")) for row in rows]
    # Accuracy and its mean over the classes differ only where classes are not equally frequent.
    unbalanced = any(a is not None and b is not None and abs(a - b) > 0.005 for a, b in both)
    ece = [metric_column("", f"test_{metric}", 1, 100).cell for metric in ("ece", "ece_scaled")]
    columns = [
        TableColumn("method", lambda row: row.label),
        TableColumn("n", lambda row: str(row.n)),
        TableColumn("test top-1 %", lambda row: percent_summary(row.summary("test_top1"), digits)),
        TableColumn("vs. baseline [95%]", lambda row: difference(row.versus, digits)),
        TableColumn("p", lambda row: p_value(row.versus.p_holm) if row.versus else ""),
        TableColumn("vs. slr", lambda row: points(row.versus_slr, digits)),
        TableColumn("val top-1 %", lambda row: percent_summary(row.summary("validation_top1"), digits)),
        metric_column("NLL", "test_nll", 3),
        TableColumn("ECE % → scaled", lambda row: " → ".join(filter(None, (cell(row) for cell in ece)))),
        metric_column("balanced %", "test_balanced_accuracy" if unbalanced else "", 1, 100),
        metric_column("macro F1 %", "test_macro_f1" if unbalanced else "", 1, 100),
        metric_column("top-5 %", "test_top5", 1, 100),
        metric_column("AURC", "test_aurc", 3),
        metric_column("seconds", "seconds", 1),
        TableColumn("parameters", lambda row: parameters(row.parameters)),
    ]
    return lay_out(rows, columns)


def caption(group: RunGroup, rows: Sequence[MethodRow]) -> list[str]:
    """What the table shows, in sentences: split, seeds, epoch, tests, bins, and why it is this network."""
    epochs = sorted({epoch for row in rows for epoch in row.epochs})
    last = f" ({joined([str(epoch) for epoch in epochs])})" if epochs else ""
    sentences = [f"Test split, last epoch{last}; mean ± standard deviation over n seeds."]
    versus = {row.label: row.versus for row in rows if row.versus is not None}
    if versus:
        tested = sum(gain.p is not None for gain in versus.values())
        correction = f", Holm-corrected over {tested} methods" if tested > 1 else ""
        sentences.append(
            "vs. baseline: the difference in points on the seeds both have, with its 95% t interval; "
            f"p by paired t test{correction}."
        )
        if any(row.versus_slr for row in rows):
            sentences.append("vs. slr: the difference from label smoothing with its default settings.")
        sentences += [f"{label}: {gain.note}." for label, gain in versus.items() if gain.note]
    elif not any(row.method == "baseline" for row in rows):
        sentences.append("No baseline among these runs.")
    if any(row.values("test_ece") for row in rows):
        sentences.append(f"ECE with {BINS} bins, before → after temperature scaling fitted on validation.")
    if group.tried:
        reached = joined([f"{one['model']} {percent(one['validation_top1'] or 0.0)}%" for one in group.tried])
        sentences.append(f"The network is the best of {len(group.tried)} by the baseline on validation: {reached}.")
    return sentences


def left_out(group: RunGroup) -> list[str]:
    """A sentence for each run that is not counted."""
    return [
        f"{record.label}, seed {record.seed}: {record.status}: {(record.reason or '').rstrip('.')}."
        for record in group.left_out
    ]


def _text(group: RunGroup, rows: Sequence[MethodRow]) -> str:
    shown = [*tables.aligned(*table_cells(rows), rule=True), *caption(group, rows)] if rows else [NOTHING]
    return "\n".join([group.title, *shown, *(f"Left out: {sentence}" for sentence in left_out(group))]) + "\n"


def _markdown(group: RunGroup, rows: Sequence[MethodRow]) -> str:
    escape = tables.markdown_escape
    lines = [f"**{escape(group.title)}**", "", NOTHING]
    if rows:
        headings, cells = table_cells(rows)
        headings, *cells = [[escape(cell) for cell in row] for row in (headings, *cells)]
        lines[2:] = [*tables.markdown(headings, cells), "", escape(" ".join(caption(group, rows)))]
    reasons = [f"- {escape(sentence)}" for sentence in left_out(group)]
    return "\n".join([*lines, *(["", "Left out:", "", *reasons] if reasons else [])]) + "\n"


def _latex(group: RunGroup, rows: Sequence[MethodRow]) -> str:
    text = f"% {tables.one_line(group.title)}: no run has finished yet.\n"
    if rows:
        text = tables.latex(*table_cells(rows), " ".join([f"{group.title}.", *caption(group, rows)]))
    return text + "".join(f"% left out: {tables.one_line(sentence)}\n" for sentence in left_out(group))

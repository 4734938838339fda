"""The comparison of methods: one row per method, and the table of a group of runs in five formats."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from adaptive_labels.errors import UserError
from adaptive_labels.lab import tables
from adaptive_labels.lab.analysis.format import difference, digits_for, p_value, parameters, percent_summary, points
from adaptive_labels.lab.analysis.records import RunGroup, RunRecord, group_records
from adaptive_labels.lab.analysis.statistics import PairedDifference, Summary, compare_all, summarise
from adaptive_labels.lab.words import joined
from adaptive_labels.metrics import BINS

FORMATS = ("text", "markdown", "csv", "latex", "json")
NOTHING = "No run has finished yet."
REFERENCE = "reference"  # in the place of a method's name
_SAME = 1e-9  # means over seeds that agree to this are equal: accuracies are counts divided by counts


@dataclass(frozen=True)
class TableRow:
    """One method: its figures over the seeds, and its paired differences in test top-1."""

    label: str
    n: int
    figures: Mapping[str, Summary]  # ``test_top1``, ``validation_top1``, ``seconds``, … over the seeds that have it
    versus: PairedDifference | None = None  # from the baseline
    versus_slr: PairedDifference | None = None  # from label smoothing with its default settings
    method: str = ""
    epochs: tuple[int, ...] = ()  # the last epochs of its runs, sorted
    parameters: Mapping[str, int] = field(default_factory=dict)  # of its first run, see `RunRecord`
    notes: tuple[str, ...] = ()  # sentences on a reference

    def mean(self, figure: str) -> float | None:
        """The mean of a figure over the seeds."""
        return None if figure not in self.figures else self.figures[figure].mean


def method_rows(
    runs: Mapping[str, Mapping[int, Mapping[str, float]]],
    baseline: str | None = None,
    smoothing: str | None = None,
    figure: str = "test_top1",
) -> list[TableRow]:
    """One row per method of ``runs``: method → seed → figure → value; differences are of ``figure``.

    The tables of runs, of studies and of the paper are all made from these rows.

    >>> seeds = {0: {"test_top1": 0.5}, 1: {"test_top1": 0.75}}
    >>> row = method_rows({"baseline": seeds, "alr": seeds}, "baseline")[1]
    >>> row.label, row.n, row.mean("test_top1"), row.versus.difference
    ('alr', 2, 0.625, 0.0)
    """
    values = {
        label: {seed: one[figure] for seed, one in seeds.items() if figure in one} for label, seeds in runs.items()
    }
    versus, versus_slr = (
        compare_all(values, other) if other in values else {} for other in (baseline or "", smoothing or "")
    )
    rows = []
    for label, seeds in runs.items():
        names = dict.fromkeys(name for one in seeds.values() for name in one)
        found = {name: summarise([one[name] for one in seeds.values() if name in one]) for name in names}
        figures = {name: summary for name, summary in found.items() if summary is not None}
        rows.append(TableRow(label, len(seeds), figures, versus.get(label), versus_slr.get(label)))
    return rows


def group_rows(group: RunGroup) -> list[TableRow]:
    """A row for each method with finished runs, the baseline first."""
    by_label, baseline = group.by_label(), group.label_of("baseline")
    runs = {label: {record.seed: record.figures for record in records} for label, records in by_label.items()}
    return [
        replace(
            row,
            versus_slr=None if row.label == baseline else row.versus_slr,
            method=by_label[row.label][0].method,
            epochs=tuple(sorted({record.epochs for record in by_label[row.label] if record.epochs is not None})),
            parameters=by_label[row.label][0].parameters,
        )
        for row in method_rows(runs, baseline, group.label_of("slr"))
    ]


def reference_row(group: RunGroup) -> TableRow | None:
    """The row of the group's reference, a plain classifier; None if it has none."""
    found = group.reference
    if found is None:
        return None
    figures = {f"{split}_{name}": value for split in ("validation", "test") for name, value in found[split].items()}
    row = method_rows({found["name"]: {0: {**figures, "seconds": found["seconds"]}}})[0]
    return replace(row, method=REFERENCE, parameters=found["parameters"], notes=tuple(found["notes"]))


def shown_rows(group: RunGroup) -> list[TableRow]:
    """The rows of the table: the methods, then the reference if there is one."""
    rows, reference = group_rows(group), reference_row(group)
    return [*rows, reference] if rows and reference is not None else rows


def best_rows(rows: Sequence[TableRow]) -> list[TableRow]:
    """The methods with the largest mean validation accuracy, several of a tie; none if one has no such figure."""
    reached = [row.mean("validation_top1") for row in rows if row.method != REFERENCE]
    largest = max((value for value in reached if value is not None), default=0.0)
    if None in reached:
        return []
    return [row for row, value in zip(rows, reached, strict=False) if value is not None and value >= largest - _SAME]


def tested_methods(rows: Sequence[TableRow]) -> int:
    """How many methods were tested against the baseline, which Holm corrects for."""
    return sum(row.versus is not None and row.versus.p is not None for row in rows)


# --------------------------------------------------------------------------------------------------------- the table


def format_table(records: Sequence[RunRecord], format: str = "text") -> str:
    """Write the comparison of ``records`` as text, Markdown, CSV, LaTeX (booktabs) or JSON.

    There is one table for each group of runs that may be compared. Text, Markdown and LaTeX are for reading, in
    percent; CSV and JSON are for machines, in fractions. Runs without a result are listed below with their reason.
    """
    if format not in FORMATS:
        raise UserError(f"format is {format!r}; it must be one of {', '.join(FORMATS)}.")
    groups = group_records(records)
    if format == "json":
        return json.dumps(_plain_rows(groups), indent=2, ensure_ascii=False) + "\n"
    if format == "csv":
        rows = _plain_rows(groups)
        names = list(dict.fromkeys(name for row in rows for name in row))
        return tables.as_csv(names, [[row.get(name) for name in names] for row in rows])
    write = {"text": _text, "markdown": _markdown, "latex": _latex}[format]
    return "\n".join(write(group, shown_rows(group)) for group in groups)


def _plain_rows(groups: Sequence[RunGroup]) -> list[dict[str, Any]]:
    """The table for machines: one flat row per method, reference and run that is not counted, of all groups."""
    lines: list[dict[str, Any]] = []
    for group in groups:
        where = {"group": group.title, "dataset": group.dataset, "model": group.model}
        for row in shown_rows(group):
            kind = REFERENCE if row.method == REFERENCE else "finished"
            line = {**where, "method": row.label, "status": kind, "n": row.n, "epochs": " ".join(map(str, row.epochs))}
            for prefix, found in (("", row.versus), ("vs_slr_", row.versus_slr)):
                for name, value in {} if found is None else vars(found).items():
                    line[f"{prefix}{'shared_seeds' if name == 'n' else name}"] = value
            for name, summary in row.figures.items():
                line |= {f"{name}_mean": summary.mean, f"{name}_std": summary.std}
            lines.append(line | {f"parameters_{name}": count for name, count in row.parameters.items()})
        for left in group.left_out:
            line = {"method": left.label, "status": left.status, "seed": left.seed, "reason": left.reason}
            lines.append({**where, **line, "run": left.run.name})
    return [{name: value for name, value in line.items() if value is not None} for line in lines]


def table_cells(rows: Sequence[TableRow]) -> dict[str, list[str]]:
    """Heading → cells for reading, the most important first; columns for which no method has a figure are left out."""
    digits = digits_for([row.figures.get("test_top1") for row in rows])
    both = [(row.mean("test_top1"), row.mean("test_balanced_accuracy")) for row in rows]
    # Accuracy and its mean over the classes differ only where classes are not equally frequent.
    unbalanced = any(a is not None and b is not None and abs(a - b) > 0.005 for a, b in both)
    found = {
        "method": [row.label for row in rows],
        "n": [str(row.n) for row in rows],
        "test top-1 %": [percent_summary(row.figures.get("test_top1"), digits) for row in rows],
        "vs. baseline [95%]": [difference(row.versus, digits) for row in rows],
        "p": [p_value(row.versus.p_holm) if row.versus else "" for row in rows],
        "vs. slr": [points(row.versus_slr, digits) for row in rows],
        "val top-1 %": [percent_summary(row.figures.get("validation_top1"), digits) for row in rows],
        "NLL": [_mean(row, "test_nll", 3) for row in rows],
        "ECE % → scaled": [
            " → ".join(filter(None, (_mean(row, f"test_{metric}", 1, 100) for metric in ("ece", "ece_scaled"))))
            for row in rows
        ],
        "balanced %": [_mean(row, "test_balanced_accuracy", 1, 100) if unbalanced else "" for row in rows],
        "macro F1 %": [_mean(row, "test_macro_f1", 1, 100) if unbalanced else "" for row in rows],
        "top-5 %": [_mean(row, "test_top5", 1, 100) for row in rows],
        "AURC": [_mean(row, "test_aurc", 3) for row in rows],
        "seconds": [_mean(row, "seconds", 1) for row in rows],
        "parameters": [parameters(row.parameters) for row in rows],
    }
    return {heading: cells for heading, cells in found.items() if any(cells)}


def _mean(row: TableRow, figure: str, digits: int, scale: float = 1) -> str:
    mean = row.mean(figure)
    return "" if mean is None else f"{scale * mean:.{digits}f}"


def caption(rows: Sequence[TableRow]) -> list[str]:
    """What the figures are, in sentences: split, seeds, epoch, tests and bins."""
    epochs = sorted({epoch for row in rows for epoch in row.epochs})
    last = f" ({joined([str(epoch) for epoch in epochs])})" if epochs else ""
    sentences = [f"Test split, last epoch{last}; mean ± standard deviation over n seeds."]
    versus = {row.label: row.versus for row in rows if row.versus is not None}
    if versus:
        correction = f", Holm-corrected over {tested_methods(rows)} methods" if tested_methods(rows) > 1 else ""
        sentences.append(
            "vs. baseline: the difference in points on the seeds both have, with its 95% t interval; "
            f"p by paired t test{correction}."
        )
        if any(row.versus_slr for row in rows):
            sentences.append("vs. slr: the difference from label smoothing with its default settings.")
        sentences += [f"{label}: {found.note}." for label, found in versus.items() if found.note]
    elif not any(row.method == "baseline" for row in rows):
        sentences.append("No baseline among these runs.")
    for row in rows:
        if row.method == REFERENCE:
            sentences += [f"{row.label}: the reference, fitted once by scikit-learn.", *row.notes]
    if any("test_ece" in row.figures for row in rows):
        sentences.append(f"ECE with {BINS} bins, before → after temperature scaling fitted on validation.")
    return sentences


def left_out(group: RunGroup) -> list[str]:
    """A sentence for each run that is not counted."""
    return [
        f"{record.label}, seed {record.seed}: {record.status}: {(record.reason or '').rstrip('.')}."
        for record in group.left_out
    ]


def _lines(rows: Sequence[TableRow]) -> tuple[list[str], list[list[str]]]:
    cells = table_cells(rows)
    return list(cells), [list(line) for line in zip(*cells.values(), strict=True)]


def _text(group: RunGroup, rows: Sequence[TableRow]) -> str:
    shown = [*tables.aligned(*_lines(rows), rule=True), *caption(rows)] if rows else [NOTHING]
    return "\n".join([group.title, *shown, *(f"Left out: {sentence}" for sentence in left_out(group))]) + "\n"


def _markdown(group: RunGroup, rows: Sequence[TableRow]) -> str:
    escape = tables.markdown_escape
    lines = [f"**{escape(group.title)}**", "", NOTHING]
    if rows:
        headings, cells = _lines(rows)
        headings, *cells = [[escape(cell) for cell in row] for row in (headings, *cells)]
        lines[2:] = [*tables.markdown(headings, cells), "", escape(" ".join(caption(rows)))]
    reasons = [f"- {escape(sentence)}" for sentence in left_out(group)]
    return "\n".join([*lines, *(["", "Left out:", "", *reasons] if reasons else [])]) + "\n"


def _latex(group: RunGroup, rows: Sequence[TableRow]) -> str:
    text = f"% {tables.one_line(group.title)}: no run has finished yet.\n"
    if rows:
        text = tables.latex(*_lines(rows), " ".join([f"{group.title}.", *caption(rows)]))
    return text + "".join(f"% left out: {tables.one_line(sentence)}\n" for sentence in left_out(group))

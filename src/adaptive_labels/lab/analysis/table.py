"""The comparison of a group of runs: one row per method, and the table in five formats."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from adaptive_labels.errors import UserError
from adaptive_labels.lab import tables
from adaptive_labels.lab.analysis.format import difference, digits_for, p_value, parameters, percent_summary, points
from adaptive_labels.lab.analysis.records import RunGroup, RunRecord, flatten, group_records
from adaptive_labels.lab.analysis.statistics import PairedDifference, Summary, compare_all, summarise
from adaptive_labels.lab.words import joined
from adaptive_labels.metrics import BINS

FORMATS = ("text", "markdown", "csv", "latex", "json")
METRICS = ("top1", "top5", "balanced_accuracy", "macro_f1", "worst_class", "nll", "ece", "ece_scaled", "aurc")
NOTHING = "No run has finished yet."
REFERENCE = "reference"  # in the place of a method's name
_SPLITS = ("validation", "test")


@dataclass(frozen=True)
class TableRow:
    """One method of a group."""

    label: str
    method: str
    n: int
    test: Mapping[str, Summary | None]  # metric → summary over the seeds that have it, for `METRICS`
    validation: Summary | None  # of top-1
    comparison: PairedDifference | None  # of test top-1 with the baseline, if this is another method and there is one
    beside_smoothing: PairedDifference | None  # the same with label smoothing as it comes
    seconds: Summary | None
    epochs: tuple[int, ...]  # the last epochs of its runs, sorted
    parameters: Mapping[str, int]  # of its first run, see `RunRecord`
    notes: tuple[str, ...] = ()  # sentences on a reference


def label_of(method: str, group: RunGroup) -> str | None:
    """The label of a method in the group, or None; of several variants of it, the first."""
    return next((record.label for record in group.counted if record.method == method), None)


def top1_by_seed(group: RunGroup) -> dict[str, dict[int, float]]:
    """Label → seed → test top-1 of the counted runs."""
    return {
        label: {record.seed: record.metrics["test"]["top1"] for record in records}
        for label, records in group.by_label().items()
    }


def summarise_group(group: RunGroup) -> list[TableRow]:
    """A row for each method with finished runs, the baseline first."""
    top1, baseline, smoothing = top1_by_seed(group), label_of("baseline", group), label_of("slr", group)
    comparisons = {} if baseline is None else compare_all(top1, baseline)
    beside = {} if smoothing is None else compare_all(top1, smoothing)
    return [
        TableRow(
            label=label,
            method=records[0].method,
            n=len(records),
            test={metric: over_seeds(records, "test", metric) for metric in METRICS},
            validation=over_seeds(records, "validation", "top1"),
            comparison=comparisons.get(label),
            beside_smoothing=None if label == baseline else beside.get(label),
            seconds=summarise([record.seconds for record in records if record.seconds is not None]),
            epochs=tuple(sorted({record.epochs for record in records if record.epochs is not None})),
            parameters=dict(records[0].parameters),
        )
        for label, records in group.by_label().items()
    ]


def reference_row(group: RunGroup) -> TableRow | None:
    """The row of the group's reference, a plain classifier; None if it has none."""
    found = group.reference
    if found is None:
        return None
    splits = {split: {name: summarise([value]) for name, value in found[split].items()} for split in _SPLITS}
    return TableRow(
        label=found["name"],
        method=REFERENCE,
        n=1,
        test={metric: splits["test"].get(metric) for metric in METRICS},
        validation=splits["validation"].get("top1"),
        comparison=None,
        beside_smoothing=None,
        seconds=summarise([found["seconds"]]),
        epochs=(),
        parameters=found["parameters"],
        notes=tuple(found["notes"]),
    )


def shown_rows(group: RunGroup) -> list[TableRow]:
    """The rows of the table: the methods, then the reference if there is one."""
    rows, reference = summarise_group(group), reference_row(group)
    return [*rows, reference] if rows and reference is not None else rows


def over_seeds(records: Sequence[RunRecord], split: str, metric: str) -> Summary | None:
    """The summary of a figure over the records that have it."""
    values = [record.value(split, metric) for record in records]
    return summarise([value for value in values if value is not None])


def tested_methods(rows: Sequence[TableRow]) -> int:
    """How many methods were tested against the baseline, which Holm corrects for."""
    return sum(row.comparison is not None and row.comparison.p is not None for row in rows)


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
        return json.dumps([_data(group) for group in groups], indent=2, ensure_ascii=False) + "\n"
    if format == "csv":
        return _csv(groups)
    write = {"text": _text, "markdown": _markdown, "latex": _latex}[format]
    return "\n".join(write(group, shown_rows(group)) for group in groups)


def table_cells(rows: Sequence[TableRow]) -> tuple[list[str], list[list[str]]]:
    """Headings and cells for reading; columns for which no method has a figure are left out."""
    digits = digits_for([row.test["top1"] for row in rows])
    both = [(row.test["top1"], row.test["balanced_accuracy"]) for row in rows]
    # Accuracy and its mean over the classes differ only where classes are not equally frequent.
    unbalanced = any(plain and balanced and abs(plain.mean - balanced.mean) > 0.005 for plain, balanced in both)
    found = {
        "method": [row.label for row in rows],
        "n": [str(row.n) for row in rows],
        "test top-1 %": [percent_summary(row.test["top1"], digits) for row in rows],
        "difference [95%]": [difference(row.comparison, digits) for row in rows],
        "p": [p_value(row.comparison.p_holm) if row.comparison else "" for row in rows],
        "beside slr": [points(row.beside_smoothing, digits) for row in rows],
        "val top-1 %": [percent_summary(row.validation, digits) for row in rows],
        "balanced %": [_mean(row.test["balanced_accuracy"], 1, 100) if unbalanced else "" for row in rows],
        "macro F1 %": [_mean(row.test["macro_f1"], 1, 100) if unbalanced else "" for row in rows],
        "top-5 %": [_mean(row.test["top5"], 1, 100) for row in rows],
        "NLL": [_mean(row.test["nll"], 3) for row in rows],
        "ECE % → scaled": [_calibration(row) for row in rows],
        "AURC": [_mean(row.test["aurc"], 3) for row in rows],
        "seconds": [_mean(row.seconds, 1) for row in rows],
        "parameters": [parameters(row.parameters) for row in rows],
    }
    kept = {heading: cells for heading, cells in found.items() if any(cells)}
    return list(kept), [list(cells) for cells in zip(*kept.values(), strict=True)]


def _mean(summary: Summary | None, digits: int, scale: float = 1) -> str:
    return "" if summary is None else f"{scale * summary.mean:.{digits}f}"


def _calibration(row: TableRow) -> str:
    before, after = (_mean(row.test[metric], 1, 100) for metric in ("ece", "ece_scaled"))
    return f"{before} → {after}" if before and after else before


def caption(rows: Sequence[TableRow]) -> list[str]:
    """What the figures are, in sentences: split, seeds, epoch, tests and bins."""
    epochs = sorted({epoch for row in rows for epoch in row.epochs})
    last = f" ({joined([str(epoch) for epoch in epochs])})" if epochs else ""
    sentences = [f"Test split, last epoch{last}; mean ± standard deviation over n seeds."]
    comparisons = {row.label: row.comparison for row in rows if row.comparison is not None}
    if comparisons:
        correction = f", Holm-corrected over {tested_methods(rows)} methods" if tested_methods(rows) > 1 else ""
        sentences.append(
            "Difference from the baseline in points on the seeds both have, with its 95% t interval; "
            f"p by paired t test{correction}."
        )
        if any(row.beside_smoothing for row in rows):
            sentences.append("Beside slr: the same difference from label smoothing as it comes.")
        sentences += [f"{label}: {found.note}." for label, found in comparisons.items() if found.note]
    elif not any(row.method == "baseline" for row in rows):
        sentences.append("No baseline among these runs.")
    for row in rows:
        if row.method == REFERENCE:
            sentences += [f"{row.label}: the reference, fitted once by scikit-learn.", *row.notes]
    if any(row.test["ece"] for row in rows):
        sentences.append(f"ECE with {BINS} bins, before → after temperature scaling fitted on validation.")
    return sentences


def left_out(group: RunGroup) -> list[str]:
    """A sentence for each run that is not counted."""
    return [
        f"{record.label}, seed {record.seed}: {record.status}: {(record.reason or '').rstrip('.')}."
        for record in group.left_out
    ]


def _text(group: RunGroup, rows: Sequence[TableRow]) -> str:
    shown = [*tables.aligned(*table_cells(rows), rule=True), *caption(rows)] if rows else [NOTHING]
    return "\n".join([group.title, *shown, *(f"Left out: {sentence}" for sentence in left_out(group))]) + "\n"


def _markdown(group: RunGroup, rows: Sequence[TableRow]) -> str:
    escape = tables.markdown_escape
    lines = [f"**{escape(group.title)}**", "", NOTHING]
    if rows:
        headings, cells = table_cells(rows)
        headings, *cells = [[escape(cell) for cell in row] for row in (headings, *cells)]
        lines[2:] = [*tables.markdown(headings, cells), "", escape(" ".join(caption(rows)))]
    reasons = [f"- {escape(sentence)}" for sentence in left_out(group)]
    return "\n".join([*lines, *(["", "Left out:", "", *reasons] if reasons else [])]) + "\n"


def _latex(group: RunGroup, rows: Sequence[TableRow]) -> str:
    text = f"% {tables.one_line(group.title)}: no run has finished yet.\n"
    if rows:
        text = tables.latex(*table_cells(rows), " ".join([f"{group.title}.", *caption(rows)]))
    return text + "".join(f"% left out: {tables.one_line(sentence)}\n" for sentence in left_out(group))


def _data(group: RunGroup) -> dict[str, Any]:
    return {
        "title": group.title,
        "dataset": group.dataset,
        "model": group.model,
        "split": "test",
        "rows": [asdict(row) for row in summarise_group(group)],
        "reference": None if (reference := reference_row(group)) is None else asdict(reference),
        "left_out": [
            {"run": left.run.name, "label": left.label, "seed": left.seed, "status": left.status, "reason": left.reason}
            for left in group.left_out
        ],
    }


# Heading → where it is in the data above, flattened to dotted keys.
_CSV_COLUMNS = {
    "group": "title", "dataset": "dataset", "model": "model", "method": "label", "status": "status", "seed": "seed",
    "reason": "reason", "n": "n", "epochs": "epochs", "difference": "comparison.difference",
    "difference_low": "comparison.low", "difference_high": "comparison.high", "p": "comparison.p",
    "p_holm": "comparison.p_holm", "p_flip": "comparison.p_flip",
    "beside_slr": "beside_smoothing.difference", "beside_slr_low": "beside_smoothing.low",
    "beside_slr_high": "beside_smoothing.high", "test_balanced_accuracy_mean": "test.balanced_accuracy.mean",
    "test_macro_f1_mean": "test.macro_f1.mean", "test_top1_mean": "test.top1.mean",
    "test_top1_std": "test.top1.std", "validation_top1_mean": "validation.mean",
    "validation_top1_std": "validation.std", "test_top5_mean": "test.top5.mean", "test_nll_mean": "test.nll.mean",
    "test_ece_mean": "test.ece.mean", "test_ece_scaled_mean": "test.ece_scaled.mean",
    "test_aurc_mean": "test.aurc.mean", "seconds_mean": "seconds.mean", "parameters_network": "parameters.network",
    "parameters_criterion": "parameters.criterion",
}  # fmt: skip


def _csv(groups: Sequence[RunGroup]) -> str:
    lines = []
    for data in map(_data, groups):
        reference = data.pop("reference")
        rows = [*data["rows"], *([reference] if reference is not None else [])]
        for row in rows:
            status = REFERENCE if row["method"] == REFERENCE else "finished"
            row |= {"status": status, "epochs": " ".join(str(epoch) for epoch in row["epochs"])}
        lines += [{**data, **flatten(one)} for one in (*rows, *data["left_out"])]
    return tables.as_csv(list(_CSV_COLUMNS), [[line.get(key) for key in _CSV_COLUMNS.values()] for line in lines])

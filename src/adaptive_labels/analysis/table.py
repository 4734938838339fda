"""The table of a comparison: one row per method, in five formats."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from adaptive_labels import tables
from adaptive_labels.analysis.format import (
    difference,
    digits_for,
    listed,
    p_value,
    parameters,
    percent,
    percent_summary,
)
from adaptive_labels.analysis.records import Group, Record, group_records
from adaptive_labels.analysis.statistics import Summary
from adaptive_labels.analysis.summary import Row, summarise_group
from adaptive_labels.errors import UserError

FORMATS = ("text", "markdown", "csv", "latex", "json")

NOTHING = "No run has finished yet."


def table(records: Sequence[Record], format: str = "text") -> str:
    """Write the comparison of ``records`` as text, Markdown, CSV, LaTeX (booktabs) or JSON.

    One table for each group of runs that may be compared. Text, Markdown and LaTeX are for reading, in percent; CSV and
    JSON are for machines, in fractions. Runs without a result are listed below with their reason.
    """
    if format not in FORMATS:
        raise UserError(f"format is {format!r}; it must be one of {', '.join(FORMATS)}.")
    groups = group_records(records)
    if format == "json":
        return json.dumps([group_data(group) for group in groups], indent=2, ensure_ascii=False) + "\n"
    if format == "csv":
        return _csv(groups)
    write = {"text": _text, "markdown": _markdown, "latex": _latex}[format]
    return "\n".join(write(group) for group in groups)


def columns(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Headings and cells for reading; columns for which no method has a figure are left out."""
    digits = digits_for([row.test["top1"] for row in rows])
    found = {
        "method": [row.label for row in rows],
        "n": [str(row.n) for row in rows],
        "test top-1 %": [percent_summary(row.test["top1"], digits) for row in rows],
        "difference [95%]": [difference(row.comparison, digits) for row in rows],
        "p": [_p_cell(row) for row in rows],
        "val top-1 %": [percent_summary(row.validation, digits) for row in rows],
        "top-5 %": [_mean_percent(row.test["top5"]) for row in rows],
        "NLL": [_mean(row.test["nll"]) for row in rows],
        "ECE % → scaled": [_calibration(row) for row in rows],
        "AURC": [_mean(row.test["aurc"]) for row in rows],
        "seconds": [_mean(row.seconds, 1) for row in rows],
        "parameters": [parameters(row.parameters) for row in rows],
    }
    kept = {heading: cells for heading, cells in found.items() if any(cells)}
    return list(kept), [list(cells) for cells in zip(*kept.values(), strict=True)]


def caption(rows: Sequence[Row]) -> list[str]:
    """What the figures are, in sentences: split, seeds, epoch, tests and bins."""
    epochs = sorted({epoch for row in rows for epoch in row.epochs})
    last = f" ({listed([str(epoch) for epoch in epochs])})" if epochs else ""
    sentences = [f"Test split, last epoch{last}; mean ± standard deviation over n seeds."]
    tested = sum(row.comparison is not None and row.comparison.p is not None for row in rows)
    if any(row.comparison is not None for row in rows):
        correction = f", Holm-corrected over {tested} methods" if tested > 1 else ""
        sentences.append(
            f"Difference from the baseline in points on the seeds both have, with its 95% t interval; "
            f"p by paired t test{correction}."
        )
        sentences.extend(
            f"{row.label}: {row.comparison.note}." for row in rows if row.comparison and row.comparison.note
        )
    elif not any(row.method == "baseline" for row in rows):
        sentences.append("No baseline among these runs.")
    if any(row.test["ece"] for row in rows):
        sentences.append("ECE with 15 bins, before → after temperature scaling fitted on validation.")
    return sentences


def left_out(group: Group) -> list[str]:
    """A sentence for each run that is not counted."""
    return [f"{record.label}, seed {record.seed}: {record.status}: {record.reason}." for record in group.left_out]


def group_data(group: Group) -> dict[str, Any]:
    """A group as plain data, in fractions."""
    rows = summarise_group(group)
    return {
        "title": group.title,
        "dataset": group.dataset,
        "model": group.model,
        "split": "test",
        "rows": [asdict(row) for row in rows],
        "left_out": [
            {
                "run": record.run.name,
                **{name: getattr(record, name) for name in ("label", "seed", "status", "reason")},
            }
            for record in group.left_out
        ],
    }


def _text(group: Group) -> str:
    rows = summarise_group(group)
    shown = [*tables.aligned(*columns(rows), rule=True), *caption(rows)] if rows else [NOTHING]
    return "\n".join([group.title, *shown, *(f"Left out: {sentence}" for sentence in left_out(group))]) + "\n"


def _markdown(group: Group) -> str:
    rows = summarise_group(group)
    escape = tables.markdown_escape
    lines = [f"**{escape(group.title)}**", ""]
    if rows:
        headings, cells = columns(rows)
        escaped = [[escape(cell) for cell in row] for row in cells]
        lines += [
            *tables.markdown([escape(heading) for heading in headings], escaped),
            "",
            escape(" ".join(caption(rows))),
        ]
    else:
        lines.append(NOTHING)
    reasons = [f"- {escape(sentence)}" for sentence in left_out(group)]
    return "\n".join([*lines, *(["", "Left out:", "", *reasons] if reasons else [])]) + "\n"


def _latex(group: Group) -> str:
    rows = summarise_group(group)
    text = f"% {tables.one_line(group.title)}: no run has finished yet.\n"
    if rows:
        text = tables.latex(*columns(rows), " ".join([f"{group.title}.", *caption(rows)]))
    return text + "".join(f"% left out: {tables.one_line(sentence)}\n" for sentence in left_out(group))


_CSV_HEADINGS = (
    "group", "dataset", "model", "method", "status", "seed", "reason", "n", "epochs", "difference", "difference_low",
    "difference_high", "p", "p_holm", "p_flip", "test_top1_mean", "test_top1_std", "validation_top1_mean",
    "validation_top1_std", "test_top5_mean", "test_nll_mean", "test_ece_mean", "test_ece_scaled_mean", "test_aurc_mean",
    "seconds_mean", "parameters_network", "parameters_criterion",
)  # fmt: skip


def _csv(groups: Sequence[Group]) -> str:
    lines: list[dict[str, Any]] = []
    for group in groups:
        shared = {"group": group.title, "dataset": group.dataset, "model": group.model}
        lines += [{**shared, **_csv_row(row)} for row in summarise_group(group)]
        lines += [
            {**shared, "method": left.label, "status": left.status, "seed": left.seed, "reason": left.reason}
            for left in group.left_out
        ]
    return tables.as_csv(_CSV_HEADINGS, [[line.get(heading) for heading in _CSV_HEADINGS] for line in lines])


def _csv_row(row: Row) -> dict[str, Any]:
    cells: dict[str, Any] = {"method": row.label, "status": "finished", "n": row.n}
    cells["epochs"] = " ".join(str(epoch) for epoch in row.epochs)
    cells |= {f"parameters_{name}": count for name, count in row.parameters.items()}
    if row.comparison is not None:
        found = row.comparison
        cells |= {"difference": found.difference, "difference_low": found.low, "difference_high": found.high}
        cells |= {"p": found.p, "p_holm": found.p_holm, "p_flip": found.p_flip}
    summaries = {f"test_{metric}": summary for metric, summary in row.test.items()}
    summaries |= {"validation_top1": row.validation, "seconds": row.seconds}
    for name, summary in summaries.items():
        if summary is not None:
            cells |= {f"{name}_mean": summary.mean, f"{name}_std": summary.std}
    return cells


def _p_cell(row: Row) -> str:
    if row.comparison is None:
        return ""
    return p_value(row.comparison.p if row.comparison.p_holm is None else row.comparison.p_holm)


def _mean(summary: Summary | None, digits: int = 3) -> str:
    return "" if summary is None else f"{summary.mean:.{digits}f}"


def _mean_percent(summary: Summary | None) -> str:
    return "" if summary is None else percent(summary.mean)


def _calibration(row: Row) -> str:
    before, after = _mean_percent(row.test["ece"]), _mean_percent(row.test["ece_scaled"])
    return f"{before} → {after}" if before and after else before

"""The table of a comparison: a row a method, in five formats."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

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

_LATEX_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "−": "$-$", "→": r"$\to$", "<": "$<$",
    ">": "$>$",
}  # fmt: skip


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
                "label": record.label,
                "seed": record.seed,
                "status": record.status,
                "reason": record.reason,
            }
            for record in group.left_out
        ],
    }


def _text(group: Group) -> str:
    rows = summarise_group(group)
    lines = [group.title]
    if rows:
        headings, cells = columns(rows)
        widths = [max(len(line[i]) for line in [headings, *cells]) for i in range(len(headings))]
        rule = "  ".join("-" * width for width in widths)
        lines += [_aligned(headings, widths), rule, *(_aligned(line, widths) for line in cells), *caption(rows)]
    else:
        lines.append("No run has finished yet.")
    lines += [f"Left out: {sentence}" for sentence in left_out(group)]
    return "\n".join(lines) + "\n"


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    first = cells[0].ljust(widths[0])
    rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return "  ".join([first, *rest]).rstrip()


def _markdown(group: Group) -> str:
    rows = summarise_group(group)
    lines = [f"**{_markdown_escape(group.title)}**", ""]
    if rows:
        headings, cells = columns(rows)
        lines += [
            _markdown_row(headings),
            "|" + "|".join([":--", *(["--:"] * (len(headings) - 1))]) + "|",
            *(_markdown_row(line) for line in cells),
            "",
            _markdown_escape(" ".join(caption(rows))),
        ]
    else:
        lines.append("No run has finished yet.")
    reasons = [f"- {_markdown_escape(sentence)}" for sentence in left_out(group)]
    return "\n".join([*lines, *(["", "Left out:", "", *reasons] if reasons else [])]) + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_markdown_escape(cell) for cell in cells) + " |"


def _markdown_escape(text: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in "\\|*_`[]<>#" else letter for letter in text)
    return " ".join(escaped.split())


def _latex(group: Group) -> str:
    rows = summarise_group(group)
    if not rows:
        lines = [f"% {_one_line(group.title)}: no run has finished yet."]
    else:
        headings, cells = columns(rows)
        lines = [latex_table(headings, cells, " ".join([f"{group.title}.", *caption(rows)])).rstrip("\n")]
    return "\n".join([*lines, *(f"% left out: {_one_line(sentence)}" for sentence in left_out(group))]) + "\n"


def latex_table(headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str, words: Sequence[int] = ()) -> str:
    """A table in LaTeX with booktabs; the first column and those in ``words`` are aligned to the left."""
    alignment = "".join("l" if i == 0 or i in words else "r" for i in range(len(headings)))
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}",
        "\\centering",
        f"\\caption{{{_latex_escape(caption)}}}",
        f"\\begin{{tabular}}{{{alignment}}}",
        "\\toprule",
        _latex_row(headings),
        "\\midrule",
        *(_latex_row(line) for line in rows),
        "\\bottomrule",
        "\\end{tabular}",
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    # A row that begins with "[" would be read as the optional argument of the "\\" before it.
    return " & ".join(_latex_escape(cell) for cell in cells) + r" \\"


def _latex_escape(text: str) -> str:
    escaped = "".join(_LATEX_ESCAPES.get(letter, letter) for letter in _one_line(text))
    return f"{{}}{escaped}" if escaped.startswith("[") else escaped


def _one_line(text: str) -> str:
    return " ".join(text.split())


_CSV_HEADINGS = (
    "group", "dataset", "model", "method", "status", "seed", "reason", "n", "epochs", "difference", "difference_low",
    "difference_high", "p", "p_holm", "p_flip", "test_top1_mean", "test_top1_std", "validation_top1_mean",
    "validation_top1_std", "test_top5_mean", "test_nll_mean", "test_ece_mean", "test_ece_scaled_mean", "test_aurc_mean",
    "seconds_mean", "parameters_network", "parameters_criterion",
)  # fmt: skip


def _csv(groups: Sequence[Group]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, _CSV_HEADINGS, restval="", lineterminator="\n")
    writer.writeheader()
    for group in groups:
        shared = {"group": group.title, "dataset": group.dataset, "model": group.model}
        for row in summarise_group(group):
            writer.writerow({**shared, **_csv_row(row)})
        for record in group.left_out:
            left = {"method": record.label, "status": record.status, "seed": record.seed, "reason": record.reason}
            writer.writerow({**shared, **left})
    return file.getvalue()


def _csv_row(row: Row) -> dict[str, Any]:
    cells: dict[str, Any] = {"method": row.label, "status": "finished", "n": row.n}
    cells |= {f"parameters_{name}": row.parameters.get(name, "") for name in ("network", "criterion")}
    cells["epochs"] = " ".join(str(epoch) for epoch in row.epochs)
    if row.comparison is not None:
        found = row.comparison
        cells |= {"difference": found.difference, "difference_low": found.low, "difference_high": found.high}
        cells |= {"p": found.p, "p_holm": found.p_holm, "p_flip": found.p_flip}
    summaries = {f"test_{metric}": summary for metric, summary in row.test.items()}
    summaries |= {"validation_top1": row.validation, "seconds": row.seconds}
    for name, summary in summaries.items():
        if summary is not None:
            cells |= {
                key: value
                for key, value in ((f"{name}_mean", summary.mean), (f"{name}_std", summary.std))
                if key in _CSV_HEADINGS
            }
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

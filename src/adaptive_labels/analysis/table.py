"""The comparison of a group of runs: one row per method, the table in five formats, and the verdict in a sentence."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from adaptive_labels import tables
from adaptive_labels.analysis.format import (
    difference,
    digits_for,
    listed,
    p_phrase,
    p_value,
    parameters,
    percent,
    percent_summary,
    seeds,
    signed,
)
from adaptive_labels.analysis.records import Group, Record, flatten, group_records
from adaptive_labels.analysis.statistics import SIGNIFICANCE, Comparison, Summary, compare_all, summarise
from adaptive_labels.errors import UserError

FORMATS = ("text", "markdown", "csv", "latex", "json")
METRICS = ("top1", "top5", "balanced_accuracy", "macro_f1", "worst_class", "nll", "ece", "ece_scaled", "aurc")
NOTHING = "No run has finished yet."
# Means over seeds that agree to this are equal: validation accuracies are counts divided by counts.
_SAME = 1e-9


@dataclass(frozen=True)
class Row:
    """One method of a group."""

    label: str
    method: str
    n: int
    test: Mapping[str, Summary | None]  # metric → summary over the seeds that have it, for `METRICS`
    validation: Summary | None  # of top-1
    comparison: Comparison | None  # of test top-1 with the baseline, if this is another method and there is one
    beside_smoothing: Comparison | None  # the same with label smoothing as it comes
    seconds: Summary | None
    epochs: tuple[int, ...]  # the last epochs of its runs, sorted
    parameters: Mapping[str, int]  # of its first run, see `Record`


def baseline_label(group: Group) -> str | None:
    """The label of the group's baseline, or None; of several variants of it, the first."""
    return next((record.label for record in group.counted if record.method == "baseline"), None)


def smoothing_label(group: Group) -> str | None:
    """The label of plain label smoothing in the group, or None; of several, the first."""
    return next((record.label for record in group.counted if record.method == "slr"), None)


def top1_by_seed(group: Group) -> dict[str, dict[int, float]]:
    """Label → seed → test top-1 of the counted runs."""
    return {
        label: {record.seed: record.metrics["test"]["top1"] for record in records}
        for label, records in group.by_label().items()
    }


def summarise_group(group: Group) -> list[Row]:
    """A row for each method with finished runs, the baseline first."""
    baseline = baseline_label(group)
    top1, smoothing = top1_by_seed(group), smoothing_label(group)
    comparisons = {} if baseline is None else compare_all(top1, baseline)
    beside = {} if smoothing is None else compare_all(top1, smoothing)
    return [
        Row(
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


def over_seeds(records: Sequence[Record], split: str, metric: str) -> Summary | None:
    """The summary of a figure over the records that have it."""
    values = [record.value(split, metric) for record in records]
    return summarise([value for value in values if value is not None])


# ------------------------------------------------------------------------------------------------------- the verdict


def verdict(group: Group) -> str:
    """Say which method is best here, by how much, and whether that is more than noise.

    The method is chosen by its mean validation accuracy alone; its test figure is then shown, never searched.
    """
    rows = summarise_group(group)
    if not rows:
        return "No run has finished yet, so there is nothing to compare."
    best = _best(rows)
    if not best:
        missing = listed([row.label for row in rows if row.validation is None])
        return (
            f"No method is named best: {missing} has no validation accuracy, and nothing is chosen on the test split."
        )
    row = best[0]
    reached = f"{row.label} reaches {percent_summary(row.test['top1'])}% on the test split ({seeds(row.n)})"
    if len(rows) == 1:
        return f"{reached}; there is no other method to compare it with."
    if len(best) > 1:
        figures = listed([f"{row.label} {percent_summary(row.test['top1'])}%" for row in best])
        return (
            f"A tie: {listed([row.label for row in best])} have the same validation accuracy "
            f"({percent(_validation(row))}%), so none is named best; on the test split they reach {figures}."
        )
    baseline = baseline_label(group)
    if baseline is None:
        return (
            f"{reached}, and is best of {len(rows)} methods by validation accuracy; "
            "without runs of the baseline, nothing can be said about the gain over it."
        )
    if row.comparison is None:
        nearest = max((other for other in rows if other is not row), key=_validation)
        behind = percent(_validation(row) - _validation(nearest), 2)
        return (
            f"{reached}, and no other method is ahead of it by validation accuracy: "
            f"the nearest, {nearest.label}, is {behind} points behind there."
        )
    sentences = [f"{reached}, {_gain(row.comparison, row.n, baseline, tested=_tested(rows))}"]
    if row.beside_smoothing is not None:
        # One question was asked of these runs, so there is nothing to correct for.
        alone = replace(row.beside_smoothing, p_holm=row.beside_smoothing.p)
        sentences.append(f"It is {_gain(alone, row.n, smoothing_label(group) or '', tested=1)}")
    sentences.append(f"Chosen by validation accuracy out of {len(rows)} methods.")
    return " ".join([*sentences, *_warnings(row)])


def _warnings(row: Row) -> list[str]:
    """What a user should know before acting on the verdict."""
    found = []
    shared = row.comparison.n if row.comparison is not None else row.n
    if 2 <= shared < 6:
        found.append(
            f"{seeds(shared).capitalize()} are few: a sign-flip test, which assumes no normal distribution, could not "
            f"give less than p = {2 / 2**shared:.4g}."
        )
    worst = row.test["worst_class"]
    if worst is not None and worst.mean == 0:
        found.append(f"{row.label} never finds at least one of the classes.")
    if row.method.startswith("alr") and row.parameters.get("criterion") == 2:
        found.append("With two classes ALR is its L_hard: there is only one wrong class.")
    return found


def chosen(rows: Sequence[Row]) -> Row | None:
    """The one row that is best by mean validation accuracy; None for a tie or where a row has none."""
    best = _best(rows)
    return best[0] if len(best) == 1 else None


def _best(rows: Sequence[Row]) -> list[Row]:
    """The rows with the largest mean validation accuracy; none if a row has none."""
    if not rows or any(row.validation is None for row in rows):
        return []
    largest = max(_validation(row) for row in rows)
    return [row for row in rows if _validation(row) >= largest - _SAME]


def _validation(row: Row) -> float:
    assert row.validation is not None
    return row.validation.mean


def _tested(rows: Sequence[Row]) -> int:
    """How many methods were tested against the baseline, which Holm corrects for."""
    return sum(row.comparison is not None and row.comparison.p is not None for row in rows)


def _gain(comparison: Comparison, n: int, baseline: str, tested: int) -> str:
    found, low, high, p = comparison.difference, comparison.low, comparison.high, comparison.p_holm
    if found is None:
        return f"but has no seed in common with {baseline}: no test possible."
    digits = 1 if abs(found) >= 0.0005 else 2
    points = percent(abs(found), digits)
    where = f"{points} points {'above' if found > 0 else 'below'} {baseline}"
    if float(points) == 0:
        where = f"level with {baseline}"
    if comparison.n < n:
        where += f" on the {seeds(comparison.n)} both have"
    if p is None or low is None or high is None:
        return f"{where} ({comparison.note})."
    if low <= 0 <= high:
        interval = f"95% interval of the difference {signed(low, digits)} to {signed(high, digits)}"
    else:
        nearer, further = sorted((abs(low), abs(high)))
        interval = f"95% interval {percent(nearer, digits)} to {percent(further, digits)}"
    noise = "more than noise" if found > 0 else "worse, by more than noise"
    if p >= SIGNIFICANCE:
        noise = "not more than noise can explain"
    return f"{where} ({interval}, {'Holm-corrected ' if tested > 1 else ''}{p_phrase(p)}): {noise}."


# --------------------------------------------------------------------------------------------------------- the table


def table(records: Sequence[Record], format: str = "text") -> str:
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
    return "\n".join(write(group, summarise_group(group)) for group in groups)


def columns(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Headings and cells for reading; columns for which no method has a figure are left out."""
    digits = digits_for([row.test["top1"] for row in rows])
    unbalanced = any(_is_unbalanced(row) for row in rows)
    found = {
        "method": [row.label for row in rows],
        "n": [str(row.n) for row in rows],
        "test top-1 %": [percent_summary(row.test["top1"], digits) for row in rows],
        "difference [95%]": [difference(row.comparison, digits) for row in rows],
        "p": [p_value(row.comparison.p_holm) if row.comparison else "" for row in rows],
        "beside slr": [_points(row.beside_smoothing, digits) for row in rows],
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


def _points(comparison: Comparison | None, digits: int) -> str:
    return "" if comparison is None or comparison.difference is None else signed(comparison.difference, digits)


def _is_unbalanced(row: Row) -> bool:
    """Whether accuracy and its mean over classes differ, as they do only where classes are not equally frequent."""
    plain, balanced = row.test["top1"], row.test["balanced_accuracy"]
    return plain is not None and balanced is not None and abs(plain.mean - balanced.mean) > 0.005


def _mean(summary: Summary | None, digits: int, scale: float = 1) -> str:
    return "" if summary is None else f"{scale * summary.mean:.{digits}f}"


def _calibration(row: Row) -> str:
    before, after = (_mean(row.test[metric], 1, 100) for metric in ("ece", "ece_scaled"))
    return f"{before} → {after}" if before and after else before


def caption(rows: Sequence[Row]) -> list[str]:
    """What the figures are, in sentences: split, seeds, epoch, tests and bins."""
    epochs = sorted({epoch for row in rows for epoch in row.epochs})
    last = f" ({listed([str(epoch) for epoch in epochs])})" if epochs else ""
    sentences = [f"Test split, last epoch{last}; mean ± standard deviation over n seeds."]
    comparisons = {row.label: row.comparison for row in rows if row.comparison is not None}
    if comparisons:
        correction = f", Holm-corrected over {_tested(rows)} methods" if _tested(rows) > 1 else ""
        sentences.append(
            "Difference from the baseline in points on the seeds both have, with its 95% t interval; "
            f"p by paired t test{correction}."
        )
        if any(row.beside_smoothing for row in rows):
            sentences.append("Beside slr: the same difference from label smoothing as it comes.")
        sentences += [f"{label}: {found.note}." for label, found in comparisons.items() if found.note]
    elif not any(row.method == "baseline" for row in rows):
        sentences.append("No baseline among these runs.")
    if any(row.test["ece"] for row in rows):
        sentences.append("ECE with 15 bins, before → after temperature scaling fitted on validation.")
    return sentences


def left_out(group: Group) -> list[str]:
    """A sentence for each run that is not counted."""
    return [f"{record.label}, seed {record.seed}: {record.status}: {record.reason}." for record in group.left_out]


def _text(group: Group, rows: Sequence[Row]) -> str:
    shown = [*tables.aligned(*columns(rows), rule=True), *caption(rows)] if rows else [NOTHING]
    return "\n".join([group.title, *shown, *(f"Left out: {sentence}" for sentence in left_out(group))]) + "\n"


def _markdown(group: Group, rows: Sequence[Row]) -> str:
    escape = tables.markdown_escape
    lines = [f"**{escape(group.title)}**", ""]
    if rows:
        headings, *cells = [[escape(cell) for cell in row] for row in (columns(rows)[0], *columns(rows)[1])]
        lines += [*tables.markdown(headings, cells), "", escape(" ".join(caption(rows)))]
    else:
        lines.append(NOTHING)
    reasons = [f"- {escape(sentence)}" for sentence in left_out(group)]
    return "\n".join([*lines, *(["", "Left out:", "", *reasons] if reasons else [])]) + "\n"


def _latex(group: Group, rows: Sequence[Row]) -> str:
    text = f"% {tables.one_line(group.title)}: no run has finished yet.\n"
    if rows:
        text = tables.latex(*columns(rows), " ".join([f"{group.title}.", *caption(rows)]))
    return text + "".join(f"% left out: {tables.one_line(sentence)}\n" for sentence in left_out(group))


def _data(group: Group) -> dict[str, Any]:
    return {
        "title": group.title,
        "dataset": group.dataset,
        "model": group.model,
        "split": "test",
        "rows": [asdict(row) for row in summarise_group(group)],
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


def _csv(groups: Sequence[Group]) -> str:
    lines = []
    for data in map(_data, groups):
        for row in data["rows"]:
            row |= {"status": "finished", "epochs": " ".join(str(epoch) for epoch in row["epochs"])}
        lines += [{**data, **flatten(one)} for one in (*data["rows"], *data["left_out"])]
    return tables.as_csv(list(_CSV_COLUMNS), [[line.get(key) for key in _CSV_COLUMNS.values()] for line in lines])

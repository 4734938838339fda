"""A group of runs in one row per method, and the verdict on it in one or two sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adaptive_labels.analysis.format import listed, p_phrase, percent, percent_summary, seeds, signed
from adaptive_labels.analysis.records import Group, Record
from adaptive_labels.analysis.statistics import SIGNIFICANCE, Comparison, Summary, compare_all, summarise

METRICS = ("top1", "top5", "nll", "ece", "ece_scaled", "aurc")


@dataclass(frozen=True)
class Row:
    """One method of a group.

    Attributes:
        test: metric → summary over the seeds that have it, for `METRICS`.
        validation: summary of validation top-1, or None.
        comparison: test top-1 against the baseline, or None for the baseline itself and where there is none.
        epochs: the last epochs of its runs, sorted.
        parameters: how many there are in its first run, by whose they are (see `Record`).
    """

    label: str
    method: str
    n: int
    test: Mapping[str, Summary | None]
    validation: Summary | None
    comparison: Comparison | None
    seconds: Summary | None
    epochs: tuple[int, ...]
    parameters: Mapping[str, int]


def baseline_label(group: Group) -> str | None:
    """The label of the group's baseline, or None; of several variants of it, the first."""
    return next((record.label for record in group.counted if record.method == "baseline"), None)


def summarise_group(group: Group) -> list[Row]:
    """A row for each method with finished runs, the baseline first."""
    methods = group.by_label()
    top1 = {
        label: {record.seed: record.metrics["test"]["top1"] for record in records} for label, records in methods.items()
    }
    baseline = baseline_label(group)
    comparisons = {} if baseline is None else compare_all(top1, baseline)
    return [
        Row(
            label=label,
            method=records[0].method,
            n=len(records),
            test={metric: _over_seeds(records, "test", metric) for metric in METRICS},
            validation=_over_seeds(records, "validation", "top1"),
            comparison=comparisons.get(label),
            seconds=summarise([record.seconds for record in records if record.seconds is not None]),
            epochs=tuple(sorted({record.epochs for record in records if record.epochs is not None})),
            parameters=dict(records[0].parameters),
        )
        for label, records in methods.items()
    ]


def _over_seeds(records: Sequence[Record], split: str, metric: str) -> Summary | None:
    values = [record.value(split, metric) for record in records]
    return summarise([value for value in values if value is not None])


# Means over seeds that agree to this are equal: validation accuracies are counts divided by counts.
_SAME = 1e-9


def verdict(group: Group) -> str:
    """Say which method is best here, by how much, and whether that is more than noise.

    The method is chosen by its mean validation accuracy alone; its test figure is then shown, never searched.
    """
    rows = summarise_group(group)
    if not rows:
        return "No run has finished yet, so there is nothing to compare."
    if any(row.validation is None for row in rows):
        missing = listed([row.label for row in rows if row.validation is None])
        return (
            f"No method is named best: {missing} has no validation accuracy, and nothing is chosen on the test split."
        )
    if len(rows) == 1:
        return f"{_reaches(rows[0])}; there is no other method to compare it with."
    best = _best_on_validation(rows)
    if len(best) > 1:
        return _tie(best)
    baseline = baseline_label(group)
    if baseline is None:
        return (
            f"{_reaches(best[0])}, and is best of {len(rows)} methods by validation accuracy; "
            "without runs of the baseline, nothing can be said about the gain over it."
        )
    if best[0].label == baseline:
        return _baseline_wins(best[0], [row for row in rows if row.label != baseline])
    compared = sum(row.comparison is not None and row.comparison.p is not None for row in rows)
    assert best[0].comparison is not None
    gain = _gain(best[0].comparison, best[0], baseline, compared)
    return f"{_reaches(best[0])}, {gain} Chosen by validation accuracy out of {len(rows)} methods."


def chosen(rows: list[Row]) -> Row | None:
    """The one row that is best by mean validation accuracy; None for a tie or where a row has none."""
    if not rows or any(row.validation is None for row in rows):
        return None
    best = _best_on_validation(rows)
    return best[0] if len(best) == 1 else None


def _best_on_validation(rows: list[Row]) -> list[Row]:
    top = max(row.validation.mean for row in rows if row.validation)
    return [row for row in rows if row.validation and row.validation.mean >= top - _SAME]


def _reaches(row: Row) -> str:
    return f"{row.label} reaches {percent_summary(row.test['top1'])}% on the test split ({seeds(row.n)})"


def _tie(best: list[Row]) -> str:
    figures = listed([f"{row.label} {percent_summary(row.test['top1'])}%" for row in best])
    assert best[0].validation is not None
    validation = percent(best[0].validation.mean)
    return (
        f"A tie: {listed([row.label for row in best])} have the same validation accuracy ({validation}%), "
        f"so none is named best; on the test split they reach {figures}."
    )


def _baseline_wins(baseline: Row, others: list[Row]) -> str:
    nearest = max(others, key=lambda row: row.validation.mean if row.validation else 0.0)
    assert baseline.validation is not None
    assert nearest.validation is not None
    behind = percent(baseline.validation.mean - nearest.validation.mean, 2)
    return (
        f"{_reaches(baseline)}, and no other method is ahead of it by validation accuracy: "
        f"the nearest, {nearest.label}, is {behind} points behind there."
    )


def _gain(comparison: Comparison, row: Row, baseline: str, compared: int) -> str:
    if comparison.difference is None:
        return f"but has no seed in common with {baseline}: no test possible."
    digits = 1 if abs(comparison.difference) >= 0.0005 else 2
    points = percent(abs(comparison.difference), digits)
    side = "above" if comparison.difference > 0 else "below"
    where = f"level with {baseline}" if float(points) == 0 else f"{points} points {side} {baseline}"
    if comparison.n < row.n:
        where += f" on the {seeds(comparison.n)} both have"
    if comparison.p is None or comparison.low is None or comparison.high is None:
        return f"{where} ({comparison.note})."
    p = comparison.p if comparison.p_holm is None else comparison.p_holm
    corrected = "Holm-corrected " if compared > 1 else ""
    interval = _interval(comparison.low, comparison.high, digits)
    return f"{where} ({interval}, {corrected}{p_phrase(p)}): {_noise(comparison.difference, p)}."


def _interval(low: float, high: float, digits: int) -> str:
    if low <= 0 <= high:
        return f"95% interval of the difference {signed(low, digits)} to {signed(high, digits)}"
    nearer, further = sorted((abs(low), abs(high)))
    return f"95% interval {percent(nearer, digits)} to {percent(further, digits)}"


def _noise(difference: float, p: float) -> str:
    if p >= SIGNIFICANCE:
        return "not more than noise can explain"
    return "more than noise" if difference > 0 else "worse, by more than noise"

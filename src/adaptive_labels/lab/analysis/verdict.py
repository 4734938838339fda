"""The verdict on a group of runs, in sentences: which method, by how much, and is it more than noise."""

from collections.abc import Sequence
from dataclasses import replace

from adaptive_labels.lab.analysis.format import p_phrase, percent, percent_summary, signed
from adaptive_labels.lab.analysis.records import RunGroup
from adaptive_labels.lab.analysis.statistics import SIGNIFICANCE, PairedDifference
from adaptive_labels.lab.analysis.table import TableRow, label_of, reference_row, summarise_group, tested_methods
from adaptive_labels.lab.words import counted, joined

# Means over seeds that agree to this are equal: validation accuracies are counts divided by counts.
_SAME = 1e-9


def verdict(group: RunGroup) -> str:
    """Say which method is best here, by how much, and whether that is more than noise.

    The method is chosen by its mean validation accuracy alone; its test figure is then shown, never searched. A
    reference that is ahead of every method by that measure is said first.
    """
    rows, reference = summarise_group(group), reference_row(group)
    best = _best(rows)
    warnings = dict.fromkeys(sentence for row in best for sentence in _warnings(row))
    words = " ".join([_of_methods(group, rows, best), *warnings])
    if reference is None or reference.validation is None or not best:
        return words
    there, reached = (percent_summary(row.test["top1"]) for row in (best[0], reference))
    time = f"{reference.seconds.mean if reference.seconds else 0:.2g} s"
    if _best([*rows, reference]) == [reference]:
        validation = [f"{percent(_validation(row))}%" for row in (reference, best[0])]
        figures = f"{validation[0]}, the best method, {best[0].label}, {validation[1]}"
        return (
            f"A plain classifier is ahead of every method: {reference.label}, fitted in {time}, has a validation "
            f"accuracy of {figures}; on the test split they reach {reached}% and {there}%. Use it, or a stronger "
            f"network, before any of these methods. Among the methods: {words}"
        )
    return f"{words} For reference, {reference.label}, fitted in {time}, reaches {reached}%."


def _of_methods(group: RunGroup, rows: Sequence[TableRow], best: Sequence[TableRow]) -> str:
    if not rows:
        return "No run has finished yet, so there is nothing to compare."
    if not best:
        missing = f"{joined([row.label for row in rows if row.validation is None])} has no validation accuracy"
        return f"No method is named best: {missing}, and nothing is chosen on the test split."
    row, baseline = best[0], label_of("baseline", group)
    reached = f"{row.label} reaches {percent_summary(row.test['top1'])}% on the test split ({counted(row.n, 'seed')})"
    if len(rows) == 1:
        return f"{reached}; there is no other method to compare it with."
    if len(best) > 1:
        figures = joined([f"{row.label} {percent_summary(row.test['top1'])}%" for row in best])
        tie = (
            f"A tie: {joined([row.label for row in best])} have the same validation accuracy "
            f"({percent(_validation(row))}%), so none is named best; on the test split they reach {figures}."
        )
        return " ".join([tie, *_tied_gains(best, baseline, tested_methods(rows))])
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
    sentences = [f"{reached}, {_gain(row.comparison, row.n, baseline, tested=tested_methods(rows))}"]
    if row.beside_smoothing is not None:
        # One question was asked of these runs, so there is nothing to correct for.
        alone = replace(row.beside_smoothing, p_holm=row.beside_smoothing.p)
        sentences.append(f"It is {_gain(alone, row.n, label_of('slr', group) or '', tested=1)}")
    sentences.append(f"Chosen by validation accuracy out of {len(rows)} methods.")
    return " ".join(sentences)


def _tied_gains(best: Sequence[TableRow], baseline: str | None, tested: int) -> list[str]:
    """Where the methods of a tie stand beside the baseline, which may be one of them."""
    if baseline in {row.label for row in best}:
        return [f"Nothing is gained over {baseline} by that measure."]
    compared = [(row, row.comparison) for row in best if row.comparison is not None and baseline is not None]
    return [f"{row.label} is {_gain(found, row.n, baseline or '', tested)}" for row, found in compared]


def _warnings(row: TableRow) -> list[str]:
    """What a user should know before acting on the verdict."""
    found = []
    shared = 0 if row.comparison is None else row.comparison.n  # without one there is no p to doubt
    if 2 <= shared < 6:
        found.append(
            f"{counted(shared, 'seed').capitalize()} are few: a sign-flip test, which assumes no normal distribution, "
            f"could not give less than p = {2 / 2**shared:.4g}."
        )
    worst = row.test["worst_class"]
    if worst is not None and worst.mean == 0:
        found.append(f"{row.label} never finds at least one of the classes.")
    if row.method.startswith("alr") and row.parameters.get("criterion") == 2:
        found.append("With two classes ALR is its L_hard: there is only one wrong class.")
    return found


def chosen(rows: Sequence[TableRow]) -> TableRow | None:
    """The one row that is best by mean validation accuracy; None for a tie or where a row has none."""
    best = _best(rows)
    return best[0] if len(best) == 1 else None


def _best(rows: Sequence[TableRow]) -> list[TableRow]:
    """The rows with the largest mean validation accuracy; none if a row has none."""
    if not rows or any(row.validation is None for row in rows):
        return []
    largest = max(_validation(row) for row in rows)
    return [row for row in rows if _validation(row) >= largest - _SAME]


def _validation(row: TableRow) -> float:
    assert row.validation is not None
    return row.validation.mean


def _gain(comparison: PairedDifference, n: int, baseline: str, tested: int) -> str:
    found, low, high, p = comparison.difference, comparison.low, comparison.high, comparison.p_holm
    if found is None:
        return f"but has no seed in common with {baseline}: no test possible."
    digits = 1 if abs(found) >= 0.0005 else 2
    points = percent(abs(found), digits)
    where = f"{points} points {'above' if found > 0 else 'below'} {baseline}"
    if float(points) == 0:
        where = f"level with {baseline}"
    if comparison.n < n:
        where += f" on the {counted(comparison.n, 'seed')} both have"
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

"""What is taken for what: the maps of residual labels and test errors."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from adaptive_labels.lab.analysis.confusion_matrix import Matrix, order_by_similarity, without_diagonal
from adaptive_labels.lab.analysis.confusions import Confusions, top_pairs
from adaptive_labels.lab.analysis.format import percent
from adaptive_labels.lab.report.figures import Chart
from adaptive_labels.lab.report.group_data import MethodData, Residuals
from adaptive_labels.lab.report.heatmap import heat_map, pack
from adaptive_labels.lab.report.sections import Context, Values, section
from adaptive_labels.lab.words import shorten

LARGEST_MAP = 120
SHOWN_OF_MANY = 100
_ROW_SHOWN = 5


@section(10, title="What is taken for what", link="confusions")
def map_values(context: Context) -> Values:
    """Residual labels beside test errors: a still picture of the last epoch, and the data for the script."""
    main = context.data.mapped
    if main is None:
        return None
    methods = [method for method in context.data.methods if method.class_names]
    confusions, notes = main.confusions, []
    ranking = without_diagonal(confusions.ranking())
    shown = list(range(len(ranking)))
    if len(shown) > LARGEST_MAP:
        shown = most_confused(ranking, SHOWN_OF_MANY)
        notes.append(
            f"Only the {len(shown)} most confused of {len(ranking):,} classes are drawn; the search finds all."
        )
    order = order_by_similarity(ranking[np.ix_(shown, shown)]).tolist()
    names = [confusions.classes[i] for i in shown]
    largest = _full_colours(methods)
    packed, left_out = _methods_data(methods, shown, context.map_bytes)
    if left_out:
        notes.append(f"To keep the file small, {left_out} of the stored epochs are left out of the slider.")
    totals = np.zeros(len(ranking)) if confusions.counts is None else confusions.counts.sum(axis=1)
    data: dict[str, Any] = {
        "classes": names,
        "first": methods.index(main),
        "orders": {"similarity": order, "name": sorted(range(len(names)), key=lambda i: (names[i].lower(), names[i]))},
        "largest": largest,
        "methods": packed,
        "examples": [round(float(totals[i])) for i in shown],
    }
    if len(shown) < len(ranking):
        data |= {"names": list(confusions.classes), "rows": _row_sentences(confusions, ranking)}
    return {
        "name": context.name,
        "methods": [method.label for method in methods],
        "maps": _maps(context, main, [shown[i] for i in order], largest),
        "notes": [*notes, *filter(None, [confusions.little_learned])],
        "data": data,
    }


def most_confused(matrix: Matrix, n: int) -> list[int]:
    """The n classes that take part in the strongest confusions, in their own order."""
    strength = np.maximum(matrix.max(axis=0), matrix.max(axis=1))
    return sorted(np.argsort(-strength, kind="stable")[:n].tolist())


def _full_colours(methods: Sequence[MethodData]) -> dict[str, float]:
    """The values drawn in full colour: the largest of all methods and epochs, so that all can be compared.

    That of residual labels is three times an even spread at least: labels that are still even must not look strong.
    """

    def largest(residuals: Residuals) -> float:
        of_epochs = [float(residuals.mean(position).max()) for position in range(len(residuals.epochs))]
        return min(max(max(of_epochs), 3 / max(len(residuals.runs[0].classes) - 1, 1)), 1.0)

    residual = [largest(method.residuals) for method in methods if method.residuals is not None]
    rates = [method.confusions.rates for method in methods]
    test = [float(without_diagonal(rate).max()) for rate in rates if rate is not None]
    return {"residual": round(max(residual, default=1.0), 4), "test": round(max(test, default=0.0), 4) or 1.0}


def _methods_data(methods: Sequence[MethodData], shown: Sequence[int], budget: int) -> tuple[list[dict[str, Any]], int]:
    """What the script needs of each method, and how many epochs the budget of bytes leaves out of a method.

    The first and the last epoch are always kept.
    """
    part = np.ix_(shown, shown)
    learned = sum(method.residuals is not None for method in methods)
    allowed = max(2, budget // (len(shown) ** 2 * 4 // 3 + 1) // max(learned, 1))
    packed, left_out = [], 0
    for method in methods:
        entry: dict[str, Any] = {"label": method.label, "epochs": [], "residual": [], "test": None}
        if method.residuals is not None:
            count = len(method.residuals.epochs)
            kept = np.unique(np.linspace(0, count - 1, min(count, allowed)).round().astype(int))
            left_out = max(left_out, count - len(kept))
            entry["epochs"] = method.residuals.epochs[kept].tolist()
            entry["residual"] = [pack(method.residuals.mean(int(position))[part]) for position in kept]
        if method.confusions.rates is not None:
            entry["test"] = pack(without_diagonal(method.confusions.rates)[part])
        packed.append(entry)
    return packed, left_out


def _maps(context: Context, main: MethodData, order: Sequence[int], largest: dict[str, float]) -> dict[str, Chart]:
    confusions, part = main.confusions, np.ix_(order, order)
    names = [confusions.classes[i] for i in order]

    def drawn(kind: str, name: str, title: str, matrix: Matrix, note: str) -> Chart:
        first = " and ".join(
            f"{pair.true} → {pair.taken_for}" for pair in top_pairs(confusions, 2, by=kind).itertuples()
        )
        said = f"The largest: {first}." if first else "There are none."
        drawing = heat_map(matrix[part], names, title, said, largest[kind])
        return context.figures.chart(f"{name}-{main.label}", drawing, title, note)

    maps = {}
    if confusions.residual is not None and main.residuals is not None:
        title = f"Residual labels of {main.label}, epoch {main.residuals.epochs[-1]}"
        note = (
            "What the method has learned: of the probability that the row's class gives to others, the share that the "
            "column's gets. Mean over seeds."
        )
        maps["residual"] = drawn("residual", "residual-labels", title, confusions.residual, note)
    if confusions.rates is not None:
        note = "What happened: the share of the row's test examples that were predicted as the column's."
        title, rates = f"Test errors of {main.label}", without_diagonal(confusions.rates)
        maps["test"] = drawn("test", "test-errors", title, rates, f"{note} Mean over seeds.")
    return maps


def _row_sentences(confusions: Confusions, ranking: Matrix) -> list[str]:
    """For each class what it is mostly taken for, so that the search answers for classes that are not drawn."""
    sentences = []
    what = "By its residual label" if confusions.ranking() is confusions.residual else "On the test split"
    for row in ranking:
        order = np.argsort(-row, kind="stable")[:_ROW_SHOWN]
        first = [f"{shorten(confusions.classes[j], 40)} {percent(float(row[j]))}%" for j in order if row[j] > 0]
        sentences.append(f"{what} it is taken for: {', '.join(first) or 'nothing'}.")
    return sentences

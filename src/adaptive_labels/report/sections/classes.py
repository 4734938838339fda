"""Accuracy class by class, the worst first."""

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.analysis.confusions import Confusions
from adaptive_labels.analysis.format import percent
from adaptive_labels.report.charts import class_chart
from adaptive_labels.report.page import columns
from adaptive_labels.report.sections import Context, section

_SHOWN = 24
_IN_TABLE = 10


@section(60, title="Which classes are hard", link="classes")
def classes_section(context: Context) -> str:
    """The classes with the lowest test accuracy, the best method beside the baseline."""
    found, main = context.data, context.data.main
    if main is None or main.confusions is None or main.confusions.counts is None:
        return ""
    accuracy = {}
    for label in (found.baseline, main.label):
        confusions = next((method.confusions for method in found.methods if method.label == label), None)
        if confusions is not None and confusions.counts is not None:
            accuracy[str(label)] = _accuracy(confusions.counts)
    own = accuracy[main.label]
    present = np.flatnonzero(~np.isnan(own))
    order = present[np.argsort(own[present], kind="stable")]
    if not len(order):
        return ""
    shown = order[:_SHOWN]
    title = f"Test accuracy by class, {found.group.title}"
    lines = {label: [float(values[i]) for i in shown] for label, values in accuracy.items()}
    chart = class_chart([main.confusions.classes[i] for i in shown], lines, title, found.styles)
    cut = f" The {len(shown)} lowest of {len(order)} classes." if len(order) > len(shown) else ""
    note = f"Percent of a class's test examples that are right, mean over seeds, lowest for {main.label} first.{cut}"
    figure = context.framed("accuracy-by-class", chart, note, "Accuracy by class")
    caption = f"The worst classes of {main.label}, with the number of their test examples; mean over seeds."
    return columns(figure, _table(context, main.confusions, accuracy, order[:_IN_TABLE], caption))


def _table(
    context: Context,
    confusions: Confusions,
    accuracy: dict[str, NDArray[np.float64]],
    shown: NDArray[np.intp],
    caption: str,
) -> str:
    assert confusions.counts is not None
    rows = []
    for i in shown:
        errors = confusions.counts[i].copy()
        errors[i] = 0.0
        most = "–" if not errors.any() else confusions.classes[int(errors.argmax())]
        cells = [percent(float(values[i])) for values in accuracy.values()]
        rows.append([confusions.classes[i], f"{confusions.counts[i].sum():.0f}", *cells, most])
    headings = ["class", "n", *(f"{label} %" for label in accuracy), "mostly taken for"]
    table = context.figures.table("worst-classes", headings, rows, caption, words=(0, len(headings) - 1))
    return f"<div>{table}</div>"


def _accuracy(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """(K,) test accuracy of each class; NaN for a class without test examples."""
    total = counts.sum(axis=1)
    return np.asarray(np.divide(counts.diagonal(), total, out=np.full(len(total), np.nan), where=total > 0))

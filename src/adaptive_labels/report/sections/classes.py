"""Accuracy class by class, the worst first."""

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.analysis.format import percent
from adaptive_labels.analysis.table import baseline_label
from adaptive_labels.report.charts import class_chart
from adaptive_labels.report.figures import Figures
from adaptive_labels.report.group_data import GroupData, MethodData
from adaptive_labels.report.page import columns, framed
from adaptive_labels.report.sections import Context, section
from adaptive_labels.report.sections.verdict import main_method

_SHOWN = 24
_IN_TABLE = 10


@section(60, title="Which classes are hard", link="classes")
def classes_section(context: Context) -> str:
    """The classes with the lowest test accuracy, the best method beside the baseline."""
    found, figures = context.data, context.figures
    main = main_method(found)
    if main is None or main.classes is None or not main.predictions:
        return ""
    baseline = next((m for m in found.methods if m.label == baseline_label(found.group) and m.predictions), None)
    compared = [method for method in (baseline, main) if method is not None]
    compared = [main] if baseline is main else compared
    accuracy = {method.label: _accuracy(method) for method in compared}
    present = np.flatnonzero(~np.isnan(accuracy[main.label]))
    order = present[np.argsort(accuracy[main.label][present], kind="stable")]
    if not len(order):
        return ""
    shown = order[:_SHOWN]
    title = f"Test accuracy by class, {found.group.title}"
    lines = {label: [float(values[i]) for i in shown] for label, values in accuracy.items()}
    chart = class_chart([main.classes[i] for i in shown], lines, title, found.styles)
    cut = f" The {len(shown)} lowest of {len(order)} classes." if len(order) > len(shown) else ""
    note = f"Percent of a class's test examples that are right, mean over seeds, lowest for {main.label} first.{cut}"
    figure = framed(figures.figure("accuracy-by-class", chart), note, "Accuracy by class")
    return columns(figure, _table(found, main, accuracy, order, figures))


def _table(
    found: GroupData,
    main: MethodData,
    accuracy: dict[str, NDArray[np.float64]],
    order: NDArray[np.intp],
    figures: Figures,
) -> str:
    confusions = main.confusions
    assert confusions is not None
    assert confusions.counts is not None
    rows = []
    for i in order[:_IN_TABLE]:
        errors = confusions.counts[i].copy()
        errors[i] = 0.0
        most = "–" if not errors.any() else confusions.classes[int(errors.argmax())]
        cells = [percent(float(values[i])) for values in accuracy.values()]
        rows.append([confusions.classes[i], f"{confusions.counts[i].sum():.0f}", *cells, most])
    headings = ["class", "n", *(f"{label} %" for label in accuracy), "mostly taken for"]
    caption = f"The worst classes of {main.label}, with the number of their test examples; mean over seeds."
    return f"<div>{figures.table('worst-classes', headings, rows, caption, words=(0, len(headings) - 1))}</div>"


def _accuracy(method: MethodData) -> NDArray[np.float64]:
    """(K,) mean test accuracy of each class over the runs; NaN for a class without test examples."""
    counts = np.mean([run.counts for run in method.predictions], axis=0)
    total = counts.sum(axis=1)
    return np.asarray(np.divide(counts.diagonal(), total, out=np.full(len(total), np.nan), where=total > 0))

"""Accuracy class by class, the worst first."""

import numpy as np

from adaptive_labels.lab.analysis.confusion_matrix import row_shares, without_diagonal
from adaptive_labels.lab.analysis.format import percent
from adaptive_labels.lab.report.charts import class_chart
from adaptive_labels.lab.report.sections import Context, Values, section

_SHOWN = 24
_IN_TABLE = 10


@section(60, title="Which classes are hard", link="classes", template="sections/charts.html")
def classes_values(context: Context) -> Values:
    """The classes with the lowest test accuracy, the best method beside the baseline."""
    found, main = context.data, context.data.main
    if main is None or main.confusions.counts is None:
        return None
    accuracy, tested = {}, np.ones(len(main.confusions.classes), dtype=bool)  # (K,) which classes have examples
    for method in found.methods:  # the baseline is the first of them
        if method.label in (found.baseline, main.label) and (counts := method.confusions.counts) is not None:
            accuracy[method.label] = row_shares(counts).diagonal()
            tested &= counts.any(axis=1)
    order = np.flatnonzero(tested)[np.argsort(accuracy[main.label][tested], kind="stable")]
    if not len(order):
        return None
    shown, names = order[:_SHOWN], main.confusions.classes
    lines = {label: values[shown].tolist() for label, values in accuracy.items()}
    title = f"Test accuracy by class, {found.group.title}"
    drawing = class_chart([names[i] for i in shown], lines, title, found.styles)
    cut = f" The {len(shown)} lowest of {len(order)} classes." if len(order) > len(shown) else ""
    note = f"Percent of a class's test examples that are right, mean over seeds, lowest for {main.label} first.{cut}"
    rows, errors = [], without_diagonal(main.confusions.counts)
    for i in order[:_IN_TABLE]:
        most = names[int(errors[i].argmax())] if errors[i].any() else "–"
        cells = [percent(float(values[i])) for values in accuracy.values()]
        rows.append([names[i], f"{main.confusions.counts[i].sum():.0f}", *cells, most])
    headings = ["class", "n", *(f"{label} %" for label in accuracy), "mostly taken for"]
    caption = f"The worst classes of {main.label}, with the number of their test examples; mean over seeds."
    text_columns = (0, len(headings) - 1)
    return {
        "sentences": [],
        "charts": [context.figures.chart("accuracy-by-class", drawing, "Accuracy by class", note)],
        "table_beside": context.figures.table("worst-classes", headings, rows, caption, text_columns),
    }

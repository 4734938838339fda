"""How training went: accuracy by epoch, the parts of the loss, the weight on the residual loss."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from adaptive_labels.lab.analysis.records import is_number
from adaptive_labels.lab.report.charts import EPOCHS, Axis, Curve, line_chart, over_runs, percent_axis, zoom_start
from adaptive_labels.lab.report.figures import Chart
from adaptive_labels.lab.report.group_data import MethodData
from adaptive_labels.lab.report.sections import Context, Values, section
from adaptive_labels.lab.words import joined

# The parts that are summed into the loss; the others are what weighs them.
_PARTS = {"hard": "hard labels", "residual": "residual", "update": "update of S"}


@section(40, title="How training went", link="training", template="sections/charts.html")
def training_values(context: Context) -> Values:
    """Learning curves of all methods, then weight and loss parts of those that learn residual labels."""
    drawn = []
    if curves := _curves(context, "validation_accuracy"):
        skip = zoom_start(max(len(curve.x) for curve in curves.values()))
        note = "Percent, mean over seeds; the band is one standard deviation to each side."
        if skip:
            note += f" The scale fits the epochs after {skip}; earlier ones may run off the bottom."
        y = percent_axis("validation accuracy %")
        drawn.append(context.lines("validation-accuracy", "Validation accuracy", curves, y, note, skip=skip))
    if curves := _curves(context, "train_accuracy"):
        note = "Percent of the training examples, counted during training and after augmentation, if there is any."
        y = percent_axis("training accuracy %")
        drawn.append(context.lines("training-accuracy", "Training accuracy", curves, y, note))
    if curves := _curves(context, "parts", "weight"):
        kinds: dict[str, list[str]] = {}  # what the weight is → the methods that have it
        for method in context.data.methods:
            if method.label in curves:
                kinds.setdefault(_weight(method), []).append(method.label)
        sentences = [f"{joined(labels)}: {kind}" for kind, labels in kinds.items()]
        note = f"The factor on the residual loss, mean over seeds. {' '.join(sentences)}"
        y = Axis("weight", low=0.0)
        drawn.append(context.lines("residual-weight", "Weight on the residual loss", curves, y, note))
    drawn += [chart for method in context.data.methods if (chart := _loss_parts(context, method)) is not None]
    return {"sentences": [], "charts": drawn, "table_beside": None} if drawn else None


def _weight(method: MethodData) -> str:
    """What the weight on the residual loss of a method is."""
    record = method.records[0]
    usual = "waiting" if record.method == "alr-wait" else "running"
    kind = record.options.get("method.options.residual_weight", usual)
    if kind == "running":
        return "1 − the training accuracy, so that it falls as training gets things right."
    if kind == "waiting":
        return (
            "the smaller of the training accuracy and 1 − it, so that it is small at first, largest halfway and small "
            "at the end."
        )
    return f"a constant, {kind}."


def _loss_parts(context: Context, method: MethodData) -> Chart | None:
    by_part = {name: _curve(method, "parts", part) for part, name in _PARTS.items()}
    curves = {name: curve for name, curve in by_part.items() if curve is not None}
    if len(curves) < 2:
        return None
    title = f"Parts of the loss of {method.label}"
    note = (
        "Cross entropies in nats, each before its weight: of the hard labels, of the residual labels for the network, "
        "and of the network's predictions for the residual labels."
    )
    drawing = line_chart(curves, title, EPOCHS, Axis("loss", low=0.0))
    return context.figures.chart(f"loss-parts-{method.label}", drawing, title, note)


def _curves(context: Context, *keys: str) -> dict[str, Curve]:
    curves = {method.label: _curve(method, *keys) for method in context.data.methods}
    return {label: curve for label, curve in curves.items() if curve is not None}


def _curve(method: MethodData, *keys: str) -> Curve | None:
    """Mean and spread of a figure at the epochs that every seed with a readable history has."""
    by_seed = [
        {line["epoch"]: value for line in history if (value := _number(line, *keys)) is not None}
        for history in method.histories
    ]
    shared = sorted(set.intersection(*(set(line) for line in by_seed))) if by_seed else []
    if not shared:
        return None
    values = np.array([[line[epoch] for epoch in shared] for line in by_seed])  # (seeds, epochs)
    return over_runs(np.array(shared, dtype=np.float64), values)


def _number(line: Any, *keys: str) -> float | None:
    """The finite number under nested ``keys``, if there is one."""
    for key in keys:
        line = line.get(key) if isinstance(line, Mapping) else None
    return float(line) if is_number(line) and np.isfinite(line) else None

"""How training went: accuracy by epoch, the parts of the loss, the weight on the residual loss."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from adaptive_labels.report.charts import EPOCHS, Axis, Curve, line_chart, over_runs, percent_axis, zoom_start
from adaptive_labels.report.figures import Figures
from adaptive_labels.report.group_data import GroupData, MethodData
from adaptive_labels.report.page import columns, framed
from adaptive_labels.report.sections import Context, section

Line = Mapping[str, Any]

# The parts that are summed into the loss; the others are what weighs them.
_PARTS = {"hard": "hard labels", "residual": "residual", "update": "update of S"}


@section(40, title="How training went", link="training")
def learning_section(context: Context) -> str:
    """Learning curves of all methods, then the insides of those that learn residual labels."""
    found, figures = context.data, context.figures
    title = found.group.title
    drawn = []
    curves = _curves(found, lambda line: line.get("validation_accuracy"))
    if curves:
        skip = zoom_start(max(len(curve.x) for curve in curves.values()))
        note = "Percent, mean over seeds; the band is one standard deviation to each side."
        if skip:
            note += f" The scale fits the epochs after {skip}; earlier ones may run off the bottom."
        words = f"Validation accuracy by epoch, {title}"
        chart = line_chart(curves, words, EPOCHS, percent_axis("validation accuracy %"), skip=skip, styles=found.styles)
        drawn.append(framed(figures.figure("validation-accuracy", chart), note, "Validation accuracy"))
    curves = _curves(found, lambda line: line.get("train_accuracy"))
    if curves:
        words = f"Training accuracy by epoch, {title}"
        chart = line_chart(curves, words, EPOCHS, percent_axis("training accuracy %"), styles=found.styles)
        note = "Percent of the training examples as they came by in training, augmented where that is on."
        drawn.append(framed(figures.figure("training-accuracy", chart), note, "Training accuracy"))
    weights = _curves(found, lambda line: _part(line, "weight"))
    if weights:
        words = f"Weight on the residual loss, {title}"
        chart = line_chart(weights, words, EPOCHS, Axis("weight", low=0.0), styles=found.styles)
        kinds = [_weight(method) for method in found.methods if method.label in weights]
        note = f"The factor on the residual loss, mean over seeds. {' '.join(kinds)}"
        drawn.append(framed(figures.figure("residual-weight", chart), note, "Weight on the residual loss"))
    drawn += [_loss_parts(method, figures) for method in found.methods]
    return columns(*drawn)


def _weight(method: MethodData) -> str:
    """What the weight on the residual loss of a method is, in a sentence."""
    record = method.records[0]
    usual = "waiting" if record.method == "alr-wait" else "running"
    kind = record.options.get("method.options.residual_weight", usual)
    if kind in ("running", "batch", "epoch"):
        return f"{method.label}: 1 − the training accuracy, so that it falls as training gets things right."
    if kind == "waiting":
        return (
            f"{method.label}: the smaller of the training accuracy and 1 − it, so that it is small at first, largest "
            "halfway and small at the end."
        )
    return f"{method.label}: a constant, {kind}."


def _loss_parts(method: MethodData, figures: Figures) -> str:
    curves = {}
    for part, words in _PARTS.items():
        curve = _curve(method, lambda line, part=part: _part(line, part))  # type: ignore[misc]
        if curve is not None:
            curves[words] = curve
    if len(curves) < 2:
        return ""
    title = f"Parts of the loss of {method.label}"
    chart = line_chart(curves, title, EPOCHS, Axis("loss", low=0.0))
    note = (
        "Cross entropies in nats, each before its weight: of the hard labels, of the residual labels for the network, "
        "and of the network's predictions for the residual labels."
    )
    return framed(figures.figure(f"loss-parts-{method.label}", chart), note, title)


def _curves(found: GroupData, value: Callable[[Line], Any]) -> dict[str, Curve]:
    curves = {method.label: _curve(method, value) for method in found.methods}
    return {label: curve for label, curve in curves.items() if curve is not None}


def _curve(method: MethodData, value: Callable[[Line], Any]) -> Curve | None:
    """Mean and spread of a figure at the epochs that every seed with a readable history has."""
    by_seed = [
        {line["epoch"]: float(figure) for line in history if _is_number(figure := value(line))}
        for history in method.histories
    ]
    shared = sorted(set.intersection(*(set(line) for line in by_seed))) if by_seed else []
    if not shared:
        return None
    values = np.array([[line[epoch] for epoch in shared] for line in by_seed])  # (seeds, epochs)
    return over_runs(np.array(shared, dtype=np.float64), values)


def _part(line: Line, name: str) -> Any:
    parts = line.get("parts")
    return parts.get(name) if isinstance(parts, Mapping) else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))

"""How well confidence matches accuracy, and the error rate when the least confident predictions are left out."""

from collections.abc import Sequence

import numpy as np

from adaptive_labels.lab.analysis.format import percent
from adaptive_labels.lab.report.charts import over_runs, percent_axis, reliability_diagram
from adaptive_labels.lab.report.figures import Chart
from adaptive_labels.lab.report.group_data import MethodData
from adaptive_labels.lab.report.sections import Context, Values, section
from adaptive_labels.metrics import BINS, confidence_and_correct, ece, reliability, risk_coverage

_POINTS = 60


@section(50, title="Can the confidence be believed?", link="calibration")
def calibration_values(context: Context) -> Values:
    """A reliability diagram for each method, before and after scaling, and their risk–coverage curves."""
    methods = [method for method in context.data.methods if method.tested]
    if not methods:
        return None
    return {"bins": BINS, "diagrams": [_diagram(context, one) for one in methods], "risk": _risk(context, methods)}


def _diagram(context: Context, method: MethodData) -> Chart:
    runs = method.tested
    labels = np.concatenate([run.stored.test_labels for run in runs])
    logits = [run.stored.test_logits for run in runs]
    before, after = reliability(np.concatenate(logits), labels), None
    errors = [float(np.mean([ece(one, run.stored.test_labels) for one, run in zip(logits, runs, strict=True)]))]
    if all(run.temperature for run in runs):
        scaled = [run.stored.test_logits.astype(np.float64) / (run.temperature or 1.0) for run in runs]
        after = reliability(np.concatenate(scaled), labels)
        errors.append(float(np.mean([ece(one, run.stored.test_labels) for one, run in zip(scaled, runs, strict=True)])))
    title = f"{method.label}: ECE {' → '.join(f'{percent(error)}%' for error in errors)}"
    drawing = reliability_diagram(before, after, f"Reliability of {method.label}")
    return context.figures.chart(f"reliability-{method.label}", drawing, title)


def _risk(context: Context, methods: Sequence[MethodData]) -> Chart:
    grid = np.linspace(1 / _POINTS, 1.0, _POINTS)
    curves, areas = {}, []
    for method in methods:
        stored = [run.stored for run in method.tested]
        by_run = [risk_coverage(*confidence_and_correct(one.test_logits, one.test_labels)) for one in stored]
        risks = [[curve.risk_at(float(coverage)) for coverage in grid] for curve in by_run]
        curves[method.label] = over_runs(grid, np.array(risks))
        areas.append(f"{method.label} {100 * np.mean([curve.area for curve in by_run]):.2f}")
    note = (
        "If only the most confident predictions are kept, this share of them (percent) is wrong; lower is better. The "
        f"area under the curve, AURC × 100: {', '.join(areas)}."
    )
    return context.lines(
        "risk-coverage",
        "What leaving out the least sure would gain",
        curves,
        percent_axis("wrong %"),
        note,
        x=percent_axis("coverage: % of the test examples, the most confident first"),
    )

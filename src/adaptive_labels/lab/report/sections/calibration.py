"""How well confidence matches accuracy, and the error rate when the least confident predictions are left out."""

from collections.abc import Sequence

import numpy as np

from adaptive_labels.lab.analysis.format import percent
from adaptive_labels.lab.report.charts import over_runs, percent_axis, reliability_diagram
from adaptive_labels.lab.report.group_data import MethodData
from adaptive_labels.lab.report.page import framed, heading
from adaptive_labels.lab.report.sections import Context, section
from adaptive_labels.metrics import BINS, confidence_and_correct, ece, reliability, risk_coverage

_POINTS = 60


@section(50, title="Can the confidence be believed?", link="calibration")
def calibration_section(context: Context) -> str:
    """A reliability diagram for each method, before and after scaling, and their risk–coverage curves."""
    methods = [method for method in context.data.methods if method.predictions]
    if not methods:
        return ""
    diagrams = "".join(_diagram(context, method) for method in methods)
    note = (
        f"Share of right test predictions (percent) by confidence, all seeds together, in {BINS} bins. Bars: before "
        "temperature scaling, fainter where there are fewer predictions; below the dashed line they are too confident, "
        "above it not confident enough. Dots on a line: after dividing the logits by the temperature fitted on "
        "validation. ECE is the mean gap from the dashed line, mean over seeds."
    )
    return framed(f'<div class="small">{diagrams}</div>', note) + _risk(context, methods)


def _diagram(context: Context, method: MethodData) -> str:
    runs = method.predictions
    labels = np.concatenate([run.labels for run in runs])
    before = reliability(np.concatenate([run.logits for run in runs]), labels)
    words = f"{method.label}: ECE {percent(float(np.mean([ece(run.logits, run.labels) for run in runs])))}%"
    after = None
    if all(run.temperature for run in runs):
        scaled = [run.logits.astype(np.float64) / (run.temperature or 1.0) for run in runs]
        after = reliability(np.concatenate(scaled), labels)
        mean = float(np.mean([ece(logits, run.labels) for logits, run in zip(scaled, runs, strict=True)]))
        words += f" → {percent(mean)}%"
    drawing = reliability_diagram(before, after, f"Reliability of {method.label}")
    return f"<div>{heading(4, words)}{context.figures.figure(f'reliability-{method.label}', drawing)}</div>"


def _risk(context: Context, methods: Sequence[MethodData]) -> str:
    grid = np.linspace(1 / _POINTS, 1.0, _POINTS)
    curves, areas = {}, []
    for method in methods:
        by_run = [risk_coverage(*confidence_and_correct(run.logits, run.labels)) for run in method.predictions]
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
        words="Risk by coverage",
        x=percent_axis("coverage: % of the test examples, the most confident first"),
    )

"""How far confidence can be believed, and what is gained by leaving out what is least sure."""

import numpy as np

from adaptive_labels.analysis.format import percent
from adaptive_labels.metrics import BINS, confidence_and_correct, reliability, risk_coverage
from adaptive_labels.report.charts import line_chart, over_runs, percent_axis, reliability_diagram
from adaptive_labels.report.figures import Figures
from adaptive_labels.report.group_data import GroupData, MethodData
from adaptive_labels.report.page import columns, framed, heading, paragraph
from adaptive_labels.report.sections import Context, section

_POINTS = 60


@section(50, title="Can the confidence be believed?", link="calibration")
def calibration_section(context: Context) -> str:
    """A reliability diagram for each method, before and after scaling, and their risk–coverage curves."""
    found, figures = context.data, context.figures
    diagrams = "".join(_diagram(method, figures) for method in found.methods if method.predictions)
    if not diagrams:
        return ""
    note = (
        f"Share of right test predictions (percent) by confidence, all seeds together, in {BINS} bins. Bars: before "
        "temperature scaling, fainter where there are fewer predictions; below the dashed line they are too confident, "
        "above it not confident enough. Dots on a line: after dividing the logits by the temperature fitted on "
        "validation. ECE is the mean gap from the dashed line, mean over seeds."
    )
    content = f'<figure><div class="small">{diagrams}</div><figcaption>{paragraph(note)}</figcaption></figure>'
    return content + columns(_risk(found, figures))


def _diagram(method: MethodData, figures: Figures) -> str:
    labels = np.concatenate([predictions.test_labels for predictions, _ in method.predictions])
    before = reliability(np.concatenate([p.test_logits for p, _ in method.predictions]), labels)
    words = f"{method.label}: ECE {percent(_mean_ece(method, scaled=False))}%"
    after = None
    if all(temperature for _, temperature in method.predictions):
        logits = np.concatenate([p.test_logits.astype(np.float64) / (t or 1.0) for p, t in method.predictions])
        after = reliability(logits, labels)
        words += f" → {percent(_mean_ece(method, scaled=True))}%"
    drawing = reliability_diagram(before, after, f"Reliability of {method.label}")
    return f"<div>{heading(4, words)}{figures.figure(f'reliability-{method.label}', drawing)}</div>"


def _mean_ece(method: MethodData, *, scaled: bool) -> float:
    found = [
        reliability(p.test_logits.astype(np.float64) / (t or 1.0 if scaled else 1.0), p.test_labels).ece
        for p, t in method.predictions
    ]
    return float(np.mean(found))


def _risk(found: GroupData, figures: Figures) -> str:
    grid = np.linspace(1 / _POINTS, 1.0, _POINTS)
    curves, areas = {}, []
    for method in found.methods:
        risks = []
        by_run = []
        for predictions, _ in method.predictions:
            if len(predictions.test_labels):
                curve = risk_coverage(*confidence_and_correct(predictions.test_logits, predictions.test_labels))
                risks.append([curve.risk_at(float(coverage)) for coverage in grid])
                by_run.append(curve.area)
        if risks:
            curves[method.label] = over_runs(grid, np.array(risks))
            areas.append(f"{method.label} {100 * np.mean(by_run):.2f}")
    if not curves:
        return ""
    title = f"Risk by coverage, {found.group.title}"
    along = "coverage: % of the test examples, the most confident first"
    chart = line_chart(curves, title, percent_axis(along), percent_axis("wrong %"), styles=found.styles)
    note = (
        "If only the most confident predictions are kept, this share of them (percent) is wrong; lower is better. The "
        f"area under the curve, AURC × 100: {', '.join(areas)}."
    )
    return framed(figures.figure("risk-coverage", chart), note, "What leaving out the least sure would gain")

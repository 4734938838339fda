"""Residual labels over the epochs: how even they are, and how similar to those of the last epoch."""

import numpy as np

from adaptive_labels.lab.analysis.format import percent
from adaptive_labels.lab.analysis.residual_labels import consistency, row_entropy
from adaptive_labels.lab.report.charts import Axis, Curve, over_runs, percent_axis
from adaptive_labels.lab.report.group_data import Residuals
from adaptive_labels.lab.report.sections import Context, Values, section


@section(30, title="Residual labels over time", link="over time", template="sections/charts.html")
def over_time_values(context: Context) -> Values:
    """Entropy of the rows, and consistency of the top confusions, for each method that learns residual labels."""
    learned = {method.label: method.residuals for method in context.data.methods if method.residuals is not None}
    learned = {label: residuals for label, residuals in learned.items() if len(residuals.runs[0].classes) > 2}
    if not learned:
        return None
    entropy = {label: _entropy(residuals) for label, residuals in learned.items()}
    note = (
        "100% is an even spread over all other classes, as at the start; 0% is a single one. Mean over classes and "
        "seeds; the band holds the middle 80% of the classes."
    )
    title = "How even the residual labels are"
    drawn = [context.lines("residual-entropy", title, entropy, percent_axis("entropy %"), note)]
    sentences, top_share, correlation = [], {}, {}
    for label, residuals in learned.items():
        if len(residuals.epochs) > 1:
            top_share[label], correlation[label], sentence = _consistency(label, residuals)
            sentences.append(sentence)
    if top_share:
        note = "Percent of the classes whose most likely confusion is already that of the last epoch; mean over seeds."
        title, y = "How early the top confusion is settled", percent_axis("classes %")
        drawn.append(context.lines("top-confusion-consistency", title, top_share, y, note))
        note = "Mean over the classes of the rank correlation between a row and the same row at the last epoch."
        title, y = "How early the whole rows are settled", Axis("correlation")
        drawn.append(context.lines("row-correlation", title, correlation, y, note))
    return {"sentences": sentences, "charts": drawn, "table_beside": None}


def _entropy(residuals: Residuals) -> Curve:
    rows = []  # (E, K)
    for position in range(len(residuals.epochs)):
        by_run = [row_entropy(residuals.of_run(run, position), normalised=True) for run in range(len(residuals.runs))]
        rows.append(np.mean(by_run, axis=0))
    low, high = np.quantile(rows, [0.1, 0.9], axis=1)
    return Curve(residuals.epochs.astype(np.float64), np.mean(rows, axis=1), low, high)


def _consistency(label: str, residuals: Residuals) -> tuple[Curve, Curve, str]:
    """The share of settled top confusions and the rows' correlation by epoch, and the first epoch in a sentence."""
    found = [
        consistency(np.stack([residuals.of_run(run, position) for position in range(len(residuals.epochs))]))
        for run in range(len(residuals.runs))
    ]
    x = residuals.epochs.astype(np.float64)
    shares = np.array([one.top_share for one in found])
    correlations = np.array([one.correlation for one in found])
    sentence = (
        f"{label}: after epoch {residuals.epochs[0]}, {percent(float(shares[:, 0].mean()), 0)}% of the classes already "
        f"have the top confusion that they have at the end (by chance {percent(found[0].chance, 0)}%), and their rows "
        f"correlate with the last ones by {correlations[:, 0].mean():.2f}."
    )
    return over_runs(x, shares), over_runs(x, correlations), sentence

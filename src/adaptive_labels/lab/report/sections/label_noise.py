"""With injected label noise: how many of the wrong labels each method memorised."""

from adaptive_labels.lab.analysis.format import percent_summary
from adaptive_labels.lab.analysis.table import MethodRow
from adaptive_labels.lab.report.sections import Context, Values, section
from adaptive_labels.lab.words import joined

_METRICS = ("train_memorised", "train_recovered", "test_top1")


@section(70, title="What became of the wrong labels", link="wrong labels")
def noise_values(context: Context) -> Values:
    """Memorised and recovered wrong labels, one row per method; nothing for runs without injected noise."""
    rows = [row for row in context.data.rows if row.mean("train_wrong_labels") and row.values("train_memorised")]
    if not rows:
        return None
    wrong = max(row.mean("train_wrong_labels") or 0.0 for row in rows)
    cells = [[row.label, str(row.n), *(percent_summary(row.summary(metric)) for metric in _METRICS)] for row in rows]
    headings = ["method", "n", "memorised %", "recovered %", "test top-1 %"]
    caption = (
        f"Of the {wrong:,.0f} training labels that were made wrong on purpose: the share that the trained network "
        "predicts as given (memorised: less is better), and as they truly are (recovered: more is better); mean ± std."
    )
    fewest = [row for row in rows if _memorised(row) == min(map(_memorised, rows))]
    names = joined([row.label for row in fewest])
    sentence = f"{names} memorised the fewest of the wrong labels: {_memorised(fewest[0]):.1f}%."
    return {"sentence": sentence, "noise": context.figures.table("label-noise", headings, cells, caption)}


def _memorised(row: MethodRow) -> float:
    return round(100 * (row.mean("train_memorised") or 0.0), 1)

"""With injected label noise: how many of the wrong labels each method memorised."""

from adaptive_labels.lab.analysis.format import percent_summary
from adaptive_labels.lab.analysis.statistics import summarise
from adaptive_labels.lab.report.page import paragraph
from adaptive_labels.lab.report.sections import Context, section
from adaptive_labels.lab.words import joined


@section(70, title="What became of the wrong labels", link="wrong labels")
def noise_section(context: Context) -> str:
    """Memorised and recovered wrong labels, one row per method; empty for runs without injected noise."""
    rows, wrong = [], 0.0
    for method in context.data.methods:
        noisy = [record for record in method.records if record.value("train", "wrong_labels")]
        counted = [record for record in noisy if record.value("train", "memorised") is not None]
        if counted:
            wrong = max(wrong, *(record.value("train", "wrong_labels") or 0.0 for record in counted))
            names = ("train_memorised", "train_recovered", "test_top1")
            cells = [
                percent_summary(summarise([one.figures[name] for one in counted if name in one.figures]))
                for name in names
            ]
            rows.append([method.label, str(len(counted)), *cells])
    if not rows:
        return ""
    headings = ["method", "n", "memorised %", "recovered %", "test top-1 %"]
    caption = (
        f"Of the {wrong:,.0f} training labels that were made wrong on purpose: the share that the trained network "
        "predicts as given (memorised: less is better), and as they truly are (recovered: more is better); mean ± std."
    )
    table = context.figures.table("label-noise", headings, rows, caption)
    least = min((row[2] for row in rows), key=_mean)
    fewest = [row[0] for row in rows if _mean(row[2]) == _mean(least)]
    share = least if len(fewest) == 1 else f"{_mean(least):.1f}"
    return paragraph(f"{joined(fewest)} memorised the fewest of the wrong labels: {share}%.") + table


def _mean(shown: str) -> float:
    return float(shown.split()[0])

"""With injected label noise: how many of the wrong labels each method learned by heart."""

from adaptive_labels.analysis.format import percent_summary
from adaptive_labels.analysis.statistics import summarise
from adaptive_labels.report.page import paragraph
from adaptive_labels.report.sections import Context, section


@section(70, title="What became of the wrong labels", link="wrong labels")
def noise_section(context: Context) -> str:
    """Memorised and recovered wrong labels, one row per method; empty for runs without injected noise."""
    found, figures = context.data, context.figures
    rows, wrong = [], 0.0
    for method in found.methods:
        counted = [record for record in method.records if record.value("train", "wrong_labels")]
        if not counted:
            continue
        wrong = max(wrong, *(record.value("train", "wrong_labels") or 0.0 for record in counted))
        cells = [
            percent_summary(summarise([v for r in counted if (v := r.value("train", metric)) is not None]))
            for metric in ("memorised", "recovered")
        ]
        top1 = summarise([v for r in counted if (v := r.value("test", "top1")) is not None])
        rows.append([method.label, str(len(counted)), *cells, percent_summary(top1)])
    if not rows:
        return ""
    headings = ["method", "n", "memorised %", "recovered %", "test top-1 %"]
    caption = (
        f"Of the {wrong:,.0f} training labels that were made wrong on purpose: the share that the trained network "
        "predicts as given (memorised: less is better), and as they truly are (recovered: more is better); mean ± std."
    )
    table = figures.table("label-noise", headings, rows, caption)
    least = min(rows, key=lambda row: float(row[2].split()[0]))
    sentence = f"{least[0]} memorised the fewest of the wrong labels: {least[2]}%."
    return paragraph(sentence) + table

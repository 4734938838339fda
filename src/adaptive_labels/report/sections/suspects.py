"""Training examples whose label looks wrong, where `alr suspects RUN -o FILE` has ranked them."""

from collections.abc import Sequence

from adaptive_labels.analysis.format import percent
from adaptive_labels.analysis.suspects import Suspect, Suspects
from adaptive_labels.report.figures import Figures
from adaptive_labels.report.page import heading, paragraph, quoted
from adaptive_labels.report.sections import Context, section
from adaptive_labels.report.sections.confused_pairs import is_png

_SHOWN = 24


@section(80, title="Labels that look wrong", link="suspects")
def suspects_section(context: Context) -> str:
    """The most suspicious labels of each ranking, and how well wrong ones were found where the truth is known."""
    figures, suspects = context.figures, context.suspects
    content = [_judged(suspects, figures)]
    for ranking in suspects:
        content.append(heading(4, f"{ranking.method}, seed {ranking.seed}"))
        if context.examples:
            cards = "".join(_card(suspect) for suspect in ranking.suspects[:_SHOWN])
            content.append(f'<ul class="mistakes">{cards}</ul>')
        shown = min(len(ranking.suspects), _SHOWN)
        content.append(
            paragraph(
                f"The {shown} most suspicious of {ranking.examples:,} training examples, by the ranking "
                f"“{ranking.ranked_by}”: the label each has, what the network would say instead, and how sure it is of "
                "both.",
                "note",
            )
        )
    return "".join(content) if suspects else ""


def _judged(rankings: Sequence[Suspects], figures: Figures) -> str:
    """The area under the precision–recall curve of every ranking, for runs with injected noise."""
    judged = [ranking for ranking in rankings if ranking.average_precision]
    if not judged:
        return ""
    scores = list(dict.fromkeys(score for ranking in judged for score in ranking.average_precision or {}))
    rows = []
    for ranking in judged:
        found = ranking.average_precision or {}
        cells = [percent(found[score]) if score in found else "" for score in scores]
        chance = percent((ranking.wrong_labels or 0) / max(ranking.examples, 1))
        rows.append([f"{ranking.method}, seed {ranking.seed}", f"{ranking.wrong_labels or 0:,}", *cells, chance])
    caption = (
        "How well the labels that were made wrong on purpose are found: the area under the precision–recall curve of "
        "each ranking, in percent; 100 would put all of them first. By chance it is the share of wrong labels."
    )
    return figures.table("suspects", ["run", "wrong labels", *scores, "chance"], rows, caption)


def _card(suspect: Suspect) -> str:
    sure = (
        f"labelled {suspect.label} ({percent(suspect.label_probability, 0)}%), looks like {suspect.suggested} "
        f"({percent(suspect.suggested_probability, 0)}%)"
    )
    parts = [heading(4, f"{suspect.label} → {suspect.suggested}?"), paragraph(sure, "rate")]
    if suspect.text is not None:
        parts.append(f"<ul><li>{quoted(suspect.text)}</li></ul>")
    elif suspect.png is not None and is_png(suspect.png):
        image = f'<img src="data:image/png;base64,{suspect.png}" alt="a training image whose label looks wrong">'
        parts.append(f'<ul class="images"><li>{image}</li></ul>')
    if suspect.source is not None:
        parts.append(paragraph(suspect.source, "rate"))
    if suspect.true_label is not None:
        right = "is in truth" if suspect.true_label != suspect.label else "is rightly"
        parts.append(paragraph(f"{right} {suspect.true_label}", "rate"))
    return f"<li>{''.join(parts)}</li>"

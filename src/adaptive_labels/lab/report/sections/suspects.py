"""Training examples whose label looks wrong, where `alr suspects RUN -o FILE` has ranked them."""

from adaptive_labels.lab.analysis.format import percent
from adaptive_labels.lab.analysis.suspects import Suspect
from adaptive_labels.lab.report.page import heading, image, paragraph, quoted
from adaptive_labels.lab.report.sections import Context, section

_SHOWN = 24


@section(80, title="Labels that look wrong", link="suspects")
def suspects_section(context: Context) -> str:
    """The most suspicious labels of each ranking, and how well wrong ones were found where the truth is known."""
    content = [_judged(context)]
    for ranking in context.suspects:
        shown = ranking.suspects[:_SHOWN]
        content.append(heading(4, f"{ranking.method}, seed {ranking.seed}"))
        if context.examples:
            content.append(f'<ul class="mistakes">{"".join(_card(suspect) for suspect in shown)}</ul>')
        note = (
            f"The {len(shown)} most suspicious of {ranking.examples:,} training examples, by the ranking "
            f"“{ranking.ranked_by}”: the label each has, what the network would say instead, and how sure it is of "
            "both."
        )
        content.append(paragraph(note, "note"))
    return "".join(content)


def _judged(context: Context) -> str:
    """The area under the precision–recall curve of every ranking, for runs with injected noise."""
    judged = [(ranking, ranking.average_precision) for ranking in context.suspects if ranking.average_precision]
    if not judged:
        return ""
    scores = list(dict.fromkeys(score for _, areas in judged for score in areas))
    rows = []
    for ranking, areas in judged:
        wrong = ranking.wrong_labels or 0
        cells = [percent(areas[score]) if score in areas else "" for score in scores]
        chance = percent(wrong / max(ranking.examples, 1))
        rows.append([f"{ranking.method}, seed {ranking.seed}", f"{wrong:,}", *cells, chance])
    caption = (
        "How well the labels that were made wrong on purpose are found: the area under the precision–recall curve of "
        "each ranking, in percent; 100 would put all of them first. By chance it is the share of wrong labels."
    )
    return context.figures.table("suspects", ["run", "wrong labels", *scores, "chance"], rows, caption)


def _card(suspect: Suspect) -> str:
    sure = (
        f"labelled {suspect.label} ({percent(suspect.label_probability, 0)}%), looks like {suspect.suggested} "
        f"({percent(suspect.suggested_probability, 0)}%)"
    )
    parts = [heading(4, f"{suspect.label} → {suspect.suggested}?"), paragraph(sure, "rate")]
    if suspect.text is not None:
        parts.append(f"<ul><li>{quoted(suspect.text)}</li></ul>")
    elif drawn := image(suspect.png or "", "a training image whose label looks wrong"):
        parts.append(f'<ul class="images"><li>{drawn}</li></ul>')
    if suspect.source is not None:
        parts.append(paragraph(suspect.source, "rate"))
    if suspect.true_label is not None:
        right = "is in truth" if suspect.true_label != suspect.label else "is rightly"
        parts.append(paragraph(f"{right} {suspect.true_label}", "rate"))
    return f"<li>{''.join(parts)}</li>"

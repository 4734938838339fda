"""The most confused pairs: inputs that were mistaken, and how well residual labels predict the test errors."""

from collections.abc import Sequence
from typing import Any

from adaptive_labels.lab.analysis.confusions import (
    groups_sentence,
    one_way_cells,
    pair_cells,
    significant_pairs,
    top_pairs,
)
from adaptive_labels.lab.analysis.format import percent
from adaptive_labels.lab.analysis.records import is_number
from adaptive_labels.lab.report.group_data import MethodData
from adaptive_labels.lab.report.page import heading, image, paragraph, quoted
from adaptive_labels.lab.report.sections import Context, section

_PAIRS = 12
_EXAMPLES = 4
_DIFFERENCES = 8


@section(20, title="The most confused pairs", link="pairs")
def pairs_section(context: Context) -> str:
    """The pairs with inputs that were taken for one another, the groups, and where the two views differ."""
    main = context.data.mapped
    if main is None:
        return ""
    mistakes = _mistakes(main) if context.examples and main.confusions.counts is not None else ""
    groups = groups_sentence(main.confusions)
    parts = [mistakes, _pairs_table(context, main), paragraph(groups) if groups else "", _one_way(context, main)]
    return "".join(parts) + _agreement(context, main)


def _mistakes(method: MethodData) -> str:
    """A card for each of the most frequent pairs of the test split, with inputs from all runs."""
    kept: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for content in method.examples:
        for pair in content["pairs"]:
            if isinstance(pair, dict) and isinstance(pair.get("examples"), list):
                known = kept.setdefault((str(pair.get("true")), str(pair.get("predicted"))), [])
                known += [example for example in pair["examples"] if isinstance(example, dict)]
    cards = []
    for pair in top_pairs(method.confusions, _PAIRS, by="test"):
        if shown := _inputs(kept.get((pair.true, pair.taken_for), [])):
            rate = f"{percent(pair.rate or 0.0)}% of its {(pair.count or 0.0) / (pair.rate or 1.0):.0f} test examples"
            name = heading(4, f"{pair.true} → {pair.taken_for}")
            cards.append(f"<li>{name}{paragraph(rate, 'rate')}{shown}</li>")
    if not cards:
        return ""
    note = (
        f"{method.label}: test inputs of the first class that were taken for the second, the most confident mistakes "
        "of each run, with the probability the network gave to the wrong class."
    )
    return f'<ul class="mistakes">{"".join(cards)}</ul>{paragraph(note, "note")}'


def _inputs(examples: Sequence[dict[str, Any]]) -> str:
    """A list of texts or thumbnails, each once, the most confident first."""
    seen: set[str] = set()
    texts, images = "", ""
    for example in sorted(examples, key=lambda e: -_confidence(e)):
        content = example.get("text") or example.get("png")
        if not isinstance(content, str) or content in seen or len(seen) >= _EXAMPLES:
            continue
        seen.add(content)
        sure = f'<span class="sure">{percent(_confidence(example), 0)}%</span>'
        if "text" in example:
            texts += f"<li>{quoted(content)} {sure}</li>"
        elif drawn := image(content, "a test image that was mistaken"):
            images += f"<li>{drawn}{sure}</li>"
    shown = f"<ul>{texts}</ul>" if texts else ""
    return shown + (f'<ul class="images">{images}</ul>' if images else "")


def _confidence(example: dict[str, Any]) -> float:
    value = example.get("confidence")
    return float(value) if is_number(value) else 0.0


def _pairs_table(context: Context, method: MethodData) -> str:
    confusions = method.confusions
    headings, cells = pair_cells(confusions, top_pairs(confusions, _PAIRS))
    explained = f"{method.label}, {confusions.averaged}."
    if confusions.residual is not None:
        explained += " Residual label: of the probability a class gives to others, the share that goes to this one."
    if confusions.counts is not None:
        explained += " Test rate: of the class's test examples, the share predicted as the other."
    return context.figures.table("confused-pairs", headings, cells, explained, words=(0, 1)) if cells else ""


def _one_way(context: Context, method: MethodData) -> str:
    headings, rows = one_way_cells(significant_pairs(method.confusions)[:_DIFFERENCES])
    caption = f"{method.label}: pairs that are confused one way more than the other (binomial test on the test split)."
    return context.figures.table("one-way-pairs", headings, rows, caption, words=(0, 1)) if rows else ""


def _agreement(context: Context, method: MethodData) -> str:
    """How well residual labels and test errors agree, and the pairs on which they differ."""
    result, classes = method.confusions.agreement(_DIFFERENCES), method.confusions.classes
    if result is None or result.overall is None:
        return ""
    sentence = (
        f"Residual labels and test errors rank the pairs with a Spearman correlation of "
        f"{result.overall:.2f} (1 is the same order, 0 none)".replace("-", "−")
    )
    if result.top1 is not None:
        sentence += (
            f"; for {percent(result.top1, 0)}% of the {result.classes} classes with test errors, the largest residual "
            "label is the most frequent error"
        )
    rows = []
    for pair in result.differences:
        shares = [percent(pair.residual), percent(pair.share)]
        errors = [f"{pair.expected:.1f}", f"{pair.count:.1f}"]
        rows.append([classes[pair.true], classes[pair.taken_for], *shares, *errors])
    headings = ["class", "taken for", "residual label %", "share of errors %", "errors expected", "errors found"]
    caption = (
        f"{method.label}: the pairs on which the two differ most. Expected: the class's test errors, divided as its "
        "residual label says."
    )
    table = context.figures.table("differing-pairs", headings, rows, caption, words=(0, 1)) if rows else ""
    return heading(4, "Do residual labels foresee the test errors?") + paragraph(f"{sentence}.") + table

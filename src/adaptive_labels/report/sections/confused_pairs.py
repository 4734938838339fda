"""The most confused pairs: inputs that were mistaken, and how far residual labels foresee the test errors."""

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from adaptive_labels.analysis.confusions import Confusions, groups_sentence, one_way_pairs, pair_cells, top_pairs
from adaptive_labels.analysis.format import p_value, percent
from adaptive_labels.analysis.residual_labels import agreement
from adaptive_labels.analysis.statistics import SIGNIFICANCE
from adaptive_labels.report.figures import Figures
from adaptive_labels.report.group_data import MethodData
from adaptive_labels.report.page import heading, paragraph, quoted
from adaptive_labels.report.sections import Context, section
from adaptive_labels.report.sections.confusion_maps import shown_first

_PAIRS = 12
_EXAMPLES = 4
_DIFFERENCES = 8


@section(20, title="The most confused pairs", link="pairs")
def pairs_section(context: Context) -> str:
    """The pairs with inputs that were taken for one another, the groups, and where the two views differ."""
    found, figures = context.data, context.figures
    main = shown_first(found)
    confusions = None if main is None else main.confusions
    if main is None or confusions is None:
        return ""
    parts = []
    if context.examples and confusions.counts is not None:
        parts.append(_mistakes(main, confusions))
    parts.append(_pairs_table(main, confusions, figures))
    groups = groups_sentence(confusions)
    parts += [paragraph(groups)] if groups else []
    parts.append(_one_way(main, confusions, figures))
    parts.append(_agreement(main, confusions, figures))
    return "".join(parts)


def _mistakes(method: MethodData, confusions: Confusions) -> str:
    """A card for each pair that is most frequent on the test split, with inputs out of all runs."""
    kept: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for content in method.examples:
        for pair in content["pairs"]:
            if isinstance(pair, dict):
                known = kept.setdefault((str(pair.get("true")), str(pair.get("predicted"))), [])
                known += [e for e in pair.get("examples") or [] if isinstance(e, dict)]
    cards = []
    for pair in top_pairs(confusions, _PAIRS, by="test"):
        shown = _inputs(kept.get((pair.true, pair.taken_for), []))
        if not shown:
            continue
        rate = f"{percent(pair.rate or 0.0)}% of its {(pair.count or 0.0) / (pair.rate or 1.0):.0f} test examples"
        cards.append(
            f"<li>{heading(4, f'{pair.true} → {pair.taken_for}')}{paragraph(rate, 'rate')}{''.join(shown)}</li>"
        )
    if not cards:
        return ""
    note = (
        f"{method.label}: test inputs of the first class that were taken for the second, the most confident mistakes "
        "of each run, with the probability the network gave to the wrong class."
    )
    return f'<ul class="mistakes">{"".join(cards)}</ul>{paragraph(note, "note")}'


def _inputs(examples: Sequence[dict[str, Any]]) -> list[str]:
    """A list of texts or thumbnails, each once, the most confident first."""
    seen: set[str] = set()
    texts, images = [], []
    for example in sorted(examples, key=lambda e: -_confidence(e)):
        content = example.get("text") or example.get("png")
        if not isinstance(content, str) or content in seen or len(seen) >= _EXAMPLES:
            continue
        seen.add(content)
        sure = f'<span class="sure">{percent(_confidence(example), 0)}%</span>'
        if "text" in example:
            texts.append(f"<li>{quoted(content)} {sure}</li>")
        elif is_png(content):
            images.append(
                f'<li><img src="data:image/png;base64,{content}" alt="a test image that was mistaken">{sure}</li>'
            )
    return [
        *([f"<ul>{''.join(texts)}</ul>"] if texts else []),
        *([f'<ul class="images">{"".join(images)}</ul>'] if images else []),
    ]


def _confidence(example: dict[str, Any]) -> float:
    value = example.get("confidence")
    return float(value) if isinstance(value, int | float) else 0.0


def is_png(content: str) -> bool:
    """Whether ``content`` is a PNG in base64 and nothing else, so that it can stand in an attribute."""
    try:
        return base64.b64decode(content, validate=True).startswith(b"\x89PNG\r\n")
    except (binascii.Error, ValueError):
        return False


def _pairs_table(method: MethodData, confusions: Confusions, figures: Figures) -> str:
    pairs = top_pairs(confusions, _PAIRS)
    headings, cells = pair_cells(confusions, pairs)
    runs = max(confusions.residual_runs, confusions.test_runs)
    explained = f"{method.label}, mean over {runs} {'run' if runs == 1 else 'runs'}."
    if confusions.residual is not None:
        explained += " Residual label: of the probability a class gives to others, the share that goes to this one."
    if confusions.counts is not None:
        explained += " Test rate: of the class's test examples, the share predicted as the other."
    return figures.table("confused-pairs", headings, cells, explained, words=(0, 1)) if cells else ""


def _one_way(method: MethodData, confusions: Confusions, figures: Figures) -> str:
    """The pairs that are confused in one direction more than in the other, by more than chance."""
    pairs = [pair for pair in one_way_pairs(confusions) if pair.p_holm < SIGNIFICANCE][:_DIFFERENCES]
    if not pairs:
        return ""
    rows = [
        [
            pair.true,
            pair.taken_for,
            percent(pair.rate),
            percent(pair.reverse_rate),
            f"{pair.count} : {pair.reverse_count}",
            p_value(pair.p_holm),
        ]
        for pair in pairs
    ]
    headings = ["class", "taken for", "test rate %", "reverse %", "test examples", "p Holm"]
    caption = f"{method.label}: pairs that are confused one way more than the other (binomial test on the test split)."
    return figures.table("one-way-pairs", headings, rows, caption, words=(0, 1))


def _agreement(method: MethodData, confusions: Confusions, figures: Figures) -> str:
    """How far residual labels and test errors rank the pairs alike, and the pairs on which they differ."""
    if confusions.residual is None or confusions.counts is None:
        return ""
    result = agreement(confusions.residual, confusions.counts, pairs=_DIFFERENCES)
    if result.overall is None:
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
    rows = [
        [
            confusions.classes[pair.true],
            confusions.classes[pair.taken_for],
            percent(pair.residual),
            percent(pair.share),
            f"{pair.expected:.1f}",
            f"{pair.count:.1f}",
        ]
        for pair in result.differences
    ]
    headings = ["class", "taken for", "residual label %", "share of errors %", "errors expected", "errors found"]
    caption = (
        f"{method.label}: the pairs on which the two differ most. Expected: the class's test errors, divided as its "
        "residual label says."
    )
    table = figures.table("differing-pairs", headings, rows, caption, words=(0, 1)) if rows else ""
    return heading(4, "Do residual labels foresee the test errors?") + paragraph(f"{sentence}.") + table

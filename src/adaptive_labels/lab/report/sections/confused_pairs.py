"""The most confused pairs: inputs that were mistaken, and how well residual labels predict the test errors."""

from collections.abc import Sequence
from typing import Any

from adaptive_labels.lab.analysis.confusions import differing_pairs, significant_pairs, top_pairs
from adaptive_labels.lab.analysis.confusions_text import (
    agreement_sentence,
    groups_sentence,
    one_way_cells,
    pair_cells,
)
from adaptive_labels.lab.analysis.format import percent
from adaptive_labels.lab.analysis.records import is_number
from adaptive_labels.lab.report.figures import PageTable
from adaptive_labels.lab.report.group_data import MethodData
from adaptive_labels.lab.report.page import is_png
from adaptive_labels.lab.report.sections import Context, Values, section

_PAIRS = 12
_EXAMPLES = 4
_DIFFERENCES = 8


@section(20, title="The most confused pairs", link="pairs")
def pairs_values(context: Context) -> Values:
    """The pairs with inputs that were taken for one another, the groups, and where the two views differ."""
    main = context.data.mapped
    if main is None:
        return None
    return {
        "method": main.label,
        "cards": _cards(main) if context.examples and main.confusions.counts is not None else [],
        "pairs": _pairs(context, main),
        "groups": groups_sentence(main.confusions),
        "one_way": _one_way(context, main),
        "agreement": agreement_sentence(main.confusions),
        "differing": _differing(context, main),
    }


def _cards(method: MethodData) -> list[dict[str, Any]]:
    """A card for each of the most frequent pairs of the test split, with inputs from all runs."""
    inputs_of: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for content in method.examples:
        for pair in content["pairs"]:
            if isinstance(pair, dict) and isinstance(pair.get("examples"), list):
                known = inputs_of.setdefault((str(pair.get("true")), str(pair.get("predicted"))), [])
                known += [example for example in pair["examples"] if isinstance(example, dict)]
    cards = []
    for pair in top_pairs(method.confusions, _PAIRS, by="test").itertuples():
        texts, images = _inputs(inputs_of.get((pair.true, pair.taken_for), []))
        if texts or images:
            rate = f"{percent(pair.rate)}% of its {pair.errors / pair.rate:.0f} test examples"
            title = f"{pair.true} → {pair.taken_for}"
            cards.append({"title": title, "rate": rate, "texts": texts, "images": images})
    return cards


def _inputs(examples: Sequence[dict[str, Any]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Texts and pictures, each once and with how sure the network was, the most confident first."""
    texts: dict[str, str] = {}
    images: dict[str, str] = {}
    for example in sorted(examples, key=lambda example: -_confidence(example)):
        content = example.get("text") or example.get("png")
        if isinstance(content, str) and len(texts | images) < _EXAMPLES:
            sure = f"{percent(_confidence(example), 0)}%"
            if "text" in example:
                texts.setdefault(content, sure)
            elif is_png(content):
                images.setdefault(content, sure)
    return list(texts.items()), list(images.items())


def _confidence(example: dict[str, Any]) -> float:
    value = example.get("confidence")
    return float(value) if is_number(value) else 0.0


def _pairs(context: Context, method: MethodData) -> PageTable | None:
    confusions = method.confusions
    headings, cells = pair_cells(top_pairs(confusions, _PAIRS))
    explained = f"{method.label}, {confusions.averaged}."
    if confusions.residual is not None:
        explained += " Residual label: of the probability a class gives to others, the share that goes to this one."
    if confusions.counts is not None:
        explained += " Test rate: of the class's test examples, the share predicted as the other."
    return context.figures.table("confused-pairs", headings, cells, explained, text_columns=(0, 1)) if cells else None


def _one_way(context: Context, method: MethodData) -> PageTable | None:
    headings, rows = one_way_cells(significant_pairs(method.confusions).head(_DIFFERENCES))
    caption = f"{method.label}: pairs that are confused one way more than the other (binomial test on the test split)."
    return context.figures.table("one-way-pairs", headings, rows, caption, text_columns=(0, 1)) if rows else None


def _differing(context: Context, method: MethodData) -> PageTable | None:
    """The pairs on which residual labels and test errors differ."""
    if method.confusions.agreement is None:
        return None
    rows = [
        [
            *(pair.true, pair.taken_for, percent(pair.residual), percent(pair.share)),
            *(f"{pair.expected:.1f}", f"{pair.errors:.1f}"),
        ]
        for pair in differing_pairs(method.confusions, _DIFFERENCES).itertuples()
    ]
    headings = ["class", "taken for", "residual label %", "share of errors %", "errors expected", "errors found"]
    caption = (
        f"{method.label}: the pairs on which the two differ most. Expected: the class's test errors, divided as its "
        "residual label says."
    )
    return context.figures.table("differing-pairs", headings, rows, caption, text_columns=(0, 1)) if rows else None

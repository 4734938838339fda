"""What is taken for what: the maps of residual labels and test errors."""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from adaptive_labels.analysis.confusion_matrix import order_by_similarity, without_diagonal
from adaptive_labels.analysis.confusions import Confusions, most_confused, top_pairs
from adaptive_labels.analysis.format import percent
from adaptive_labels.analysis.residual_labels import row_entropy
from adaptive_labels.report.figures import Figures
from adaptive_labels.report.group_data import GroupData, MethodData, Residuals
from adaptive_labels.report.heatmap import Matrix, heat_map, pack
from adaptive_labels.report.page import data_block, heading, paragraph
from adaptive_labels.report.sections import Context, section
from adaptive_labels.report.sections.verdict import main_method
from adaptive_labels.report.svg import shorten

LARGEST_MAP = 120
SHOWN_OF_MANY = 100
_ROW_SHOWN = 5
_EVEN = 0.98


@section(10, title="What is taken for what", link="confusions")
def map_section(context: Context) -> str:
    """Residual labels beside test errors, with a slider over the epochs, which may take ``map_bytes`` bytes."""
    found, figures, name = context.data, context.figures, context.name
    methods = [method for method in found.methods if method.classes is not None]
    main = shown_first(found)
    if main is None or main.classes is None:
        return ""
    confusions = main.confusions
    assert confusions is not None
    ranking = _ranking(confusions)
    shown = list(range(len(main.classes)))
    notes_below = []
    if len(shown) > LARGEST_MAP:
        shown = most_confused(ranking, SHOWN_OF_MANY)
        notes_below.append(
            f"Only the {len(shown)} most confused of {len(main.classes):,} classes are drawn; the search finds all."
        )
    part = np.ix_(shown, shown)
    order = order_by_similarity(ranking[part])
    names = [main.classes[i] for i in shown]
    packed, frames_note = _methods_data(methods, shown, context.map_bytes)
    notes_below += [frames_note] if frames_note else []
    data: dict[str, Any] = {
        "classes": names,
        "first": methods.index(main),
        "orders": {
            "similarity": order.tolist(),
            "name": sorted(range(len(names)), key=lambda i: (names[i].lower(), names[i])),
        },
        "methods": packed,
        "examples": [0] * len(names) if confusions.counts is None
        else [round(float(confusions.counts[i].sum())) for i in shown],
    }  # fmt: skip
    if len(shown) < len(main.classes):
        data |= {"names": list(main.classes), "rows": _row_sentences(main.classes, confusions)}
    maps = _maps(main, confusions, shown, order.tolist(), names, figures)
    controls = _controls(name, methods, main)
    notes_below += _still_even(confusions)
    notes = "".join(paragraph(sentence, "note") for sentence in notes_below)
    content = (
        f'<div class="explorer" data-source="{name}-data">{controls}'
        f'<div class="readout" aria-live="polite"></div>{maps}</div>{notes}{data_block(data, f"{name}-data")}'
    )
    return content


def shown_first(found: GroupData) -> MethodData | None:
    """The best method if it has residual labels, else one that has, else the best."""
    main = main_method(found)
    if main is None or main.residuals is not None:
        return main
    return next((method for method in found.methods if method.residuals is not None), main)


def _still_even(confusions: Confusions) -> list[str]:
    """A warning where the residual labels have hardly moved from where they start."""
    if confusions.residual is None or len(confusions.classes) < 3:
        return []
    entropy = float(row_entropy(confusions.residual, normalised=True).mean())
    if entropy < _EVEN:
        return []
    return [
        f"The residual labels are still nearly even (entropy {percent(entropy)}% of the largest possible): there is "
        "little to read from them yet. Longer training, or a larger residual_lr, would move them."
    ]


def _ranking(confusions: Confusions) -> Matrix:
    if confusions.residual is not None:
        return confusions.residual
    assert confusions.rates is not None
    return without_diagonal(confusions.rates)


def _full_colour(residuals: Residuals) -> float:
    """The residual label drawn in full colour: the largest of all epochs, so that they can be compared.

    It is three times an even spread at least: labels that are still even must not look strong.
    """
    largest = max(float(residuals.mean(position).max()) for position in range(len(residuals.epochs)))
    return min(max(largest, 3 / max(len(residuals.runs[0].classes) - 1, 1)), 1.0)


def _methods_data(methods: Sequence[MethodData], shown: Sequence[int], budget: int) -> tuple[list[dict[str, Any]], str]:
    """What the script needs of each method; as many epochs as the budget allows, the first and last among them."""
    part = np.ix_(shown, shown)
    learned = sum(method.residuals is not None for method in methods)
    allowed = max(2, budget // (len(shown) ** 2 * 4 // 3 + 1) // max(learned, 1))
    packed, left_out = [], 0
    for method in methods:
        confusions = method.confusions
        assert confusions is not None
        entry: dict[str, Any] = {"label": method.label, "epochs": [], "residual": [], "test": None}
        if method.residuals is not None:
            count = len(method.residuals.epochs)
            kept = np.unique(np.linspace(0, count - 1, min(count, allowed)).round().astype(int))
            left_out = max(left_out, count - len(kept))
            frames = [method.residuals.mean(int(position))[part] for position in kept]
            entry |= {
                "epochs": method.residuals.epochs[kept].tolist(),
                "residual": [pack(frame) for frame in frames],
                "residualLargest": round(_full_colour(method.residuals), 4),
            }
        if confusions.rates is not None:
            rates = without_diagonal(confusions.rates)[part]
            entry |= {"test": pack(rates), "testLargest": round(float(rates.max()), 4)}
        packed.append(entry)
    note = f"To keep the file small, {left_out} of the stored epochs are left out of the slider." if left_out else ""
    return packed, note


def _maps(
    main: MethodData,
    confusions: Confusions,
    shown: Sequence[int],
    order: Sequence[int],
    names: Sequence[str],
    figures: Figures,
) -> str:
    part = np.ix_([shown[i] for i in order], [shown[i] for i in order])
    ordered = [names[i] for i in order]
    drawn = []
    if confusions.residual is not None:
        assert main.residuals is not None
        title = f"Residual labels of {main.label}, epoch {main.residuals.epochs[-1]}"
        first = " and ".join(f"{p.true} → {p.taken_for}" for p in top_pairs(confusions, 2))
        drawing = heat_map(
            confusions.residual[part], ordered, title, f"The largest: {first}.", _full_colour(main.residuals)
        )
        note = (
            "What the method has learned: of the probability that the row's class gives to others, the share that the "
            "column's gets. Mean over seeds."
        )
        drawn.append(("residual", title, figures.figure(f"residual-labels-{main.label}", drawing), note))
    if confusions.rates is not None:
        title = f"Test errors of {main.label}"
        rates = without_diagonal(confusions.rates)
        first = " and ".join(f"{p.true} → {p.taken_for}" for p in top_pairs(confusions, 2, by="test"))
        drawing = heat_map(rates[part], ordered, title, f"The largest: {first}." if first else "There are none.")
        note = (
            "What happened: the share of the row's test examples that were predicted as the column's. Mean over seeds."
        )
        drawn.append(("test", title, figures.figure(f"test-errors-{main.label}", drawing), note))
    framed = "".join(
        f'<figure data-kind="{kind}">{heading(4, title)}{drawing}<figcaption>{paragraph(note)}</figcaption></figure>'
        for kind, title, drawing, note in drawn
    )
    return f'<div class="columns maps">{framed}</div>'


def _controls(name: str, methods: Sequence[MethodData], main: MethodData) -> str:
    """Hidden until the script is there to answer them."""
    options = "".join(
        f'<option value="{i}"{" selected" if method is main else ""}>{escape(method.label)}</option>'
        for i, method in enumerate(methods)
    )
    method = f'<label><span>method</span><select name="method">{options}</select></label>' if len(methods) > 1 else ""
    search = (
        f'<label><span>find a class</span><input type="search" name="search" list="{name}-classes" autocomplete="off">'
        f'</label><datalist id="{name}-classes"></datalist>'
    )
    return (
        f'<div class="controls" role="group" aria-label="What the maps show" hidden>{method}'
        '<label><span>epoch <output></output></span><input type="range" name="epoch" min="0" max="0" step="1"></label>'
        '<button type="button" name="play">Play</button>'
        f'<fieldset><legend>order</legend><label><input type="radio" name="order-{name}" value="similarity" checked> '
        f'by similarity</label><label><input type="radio" name="order-{name}" value="name"> by name</label></fieldset>'
        '<div><button type="button" name="in" aria-label="Zoom in">+</button> '
        '<button type="button" name="out" aria-label="Zoom out">−</button> '
        f'<button type="button" name="whole">All</button></div>{search}</div>'
    )


def _row_sentences(classes: Sequence[str], confusions: Confusions) -> list[str]:
    """For each class what it is mostly taken for, so that the search answers for classes that are not drawn."""
    ranking, sentences = _ranking(confusions), []
    what = "By its residual label" if confusions.residual is not None else "On the test split"
    for row in ranking:
        order = np.argsort(-row, kind="stable")[:_ROW_SHOWN]
        first = [f"{shorten(classes[j], 40)} {percent(float(row[j]))}%" for j in order if row[j] > 0]
        sentences.append(f"{what} it is taken for: {', '.join(first) or 'nothing'}.")
    return sentences

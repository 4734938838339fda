"""What is taken for what: the maps of residual labels and test errors."""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from adaptive_labels.lab.analysis.confusion_matrix import Matrix, order_by_similarity, without_diagonal
from adaptive_labels.lab.analysis.confusions import Confusions, most_confused, top_pairs
from adaptive_labels.lab.analysis.format import percent
from adaptive_labels.lab.report.group_data import MethodData, Residuals
from adaptive_labels.lab.report.heatmap import heat_map, pack
from adaptive_labels.lab.report.page import data_block, framed, paragraph
from adaptive_labels.lab.report.sections import Context, section
from adaptive_labels.lab.words import shorten

LARGEST_MAP = 120
SHOWN_OF_MANY = 100
_ROW_SHOWN = 5


@section(10, title="What is taken for what", link="confusions")
def map_section(context: Context) -> str:
    """Residual labels beside test errors, with a slider over the epochs."""
    name, main = context.name, context.data.mapped
    if main is None:
        return ""
    methods = [method for method in context.data.methods if method.class_names]
    confusions, notes = main.confusions, []
    ranking = without_diagonal(confusions.ranking())
    shown = list(range(len(ranking)))
    if len(shown) > LARGEST_MAP:
        shown = most_confused(ranking, SHOWN_OF_MANY)
        notes.append(
            f"Only the {len(shown)} most confused of {len(ranking):,} classes are drawn; the search finds all."
        )
    order = order_by_similarity(ranking[np.ix_(shown, shown)]).tolist()
    names = [confusions.classes[i] for i in shown]
    packed, left_out = _methods_data(methods, shown, context.map_bytes)
    if left_out:
        notes.append(f"To keep the file small, {left_out} of the stored epochs are left out of the slider.")
    totals = np.zeros(len(ranking)) if confusions.counts is None else confusions.counts.sum(axis=1)
    data: dict[str, Any] = {
        "classes": names,
        "first": methods.index(main),
        "orders": {"similarity": order, "name": sorted(range(len(names)), key=lambda i: (names[i].lower(), names[i]))},
        "methods": packed,
        "examples": [round(float(totals[i])) for i in shown],
    }
    if len(shown) < len(ranking):
        data |= {"names": list(confusions.classes), "rows": _row_sentences(confusions, ranking)}
    below = "".join(paragraph(sentence, "note") for sentence in (*notes, confusions.little_learned) if sentence)
    maps = _maps(context, main, [shown[i] for i in order])
    return (
        f'<div class="explorer" data-source="{name}-data">{_controls(name, methods, main)}'
        f'<div class="readout" aria-live="polite"></div>{maps}</div>{below}{data_block(data, f"{name}-data")}'
    )


def _full_colour(residuals: Residuals) -> float:
    """The residual label drawn in full colour: the largest of all epochs, so that they can be compared.

    It is three times an even spread at least: labels that are still even must not look strong.
    """
    largest = max(float(residuals.mean(position).max()) for position in range(len(residuals.epochs)))
    return min(max(largest, 3 / max(len(residuals.runs[0].classes) - 1, 1)), 1.0)


def _methods_data(methods: Sequence[MethodData], shown: Sequence[int], budget: int) -> tuple[list[dict[str, Any]], int]:
    """What the script needs of each method, and how many epochs the budget of bytes leaves out of a method.

    The first and the last epoch are always kept.
    """
    part = np.ix_(shown, shown)
    learned = sum(method.residuals is not None for method in methods)
    allowed = max(2, budget // (len(shown) ** 2 * 4 // 3 + 1) // max(learned, 1))
    packed, left_out = [], 0
    for method in methods:
        entry: dict[str, Any] = {"label": method.label, "epochs": [], "residual": [], "test": None}
        if method.residuals is not None:
            count = len(method.residuals.epochs)
            kept = np.unique(np.linspace(0, count - 1, min(count, allowed)).round().astype(int))
            left_out = max(left_out, count - len(kept))
            entry |= {
                "epochs": method.residuals.epochs[kept].tolist(),
                "residual": [pack(method.residuals.mean(int(position))[part]) for position in kept],
                "residualLargest": round(_full_colour(method.residuals), 4),
            }
        if method.confusions.rates is not None:
            rates = without_diagonal(method.confusions.rates)[part]
            entry |= {"test": pack(rates), "testLargest": round(float(rates.max()), 4)}
        packed.append(entry)
    return packed, left_out


def _maps(context: Context, main: MethodData, order: Sequence[int]) -> str:
    confusions, part = main.confusions, np.ix_(order, order)
    names = [confusions.classes[i] for i in order]

    def drawn(kind: str, name: str, title: str, matrix: Matrix, note: str, largest: float = 0.0) -> str:
        first = " and ".join(f"{pair.true} → {pair.taken_for}" for pair in top_pairs(confusions, 2, by=kind))
        said = f"The largest: {first}." if first else "There are none."
        drawing = context.figures.figure(f"{name}-{main.label}", heat_map(matrix[part], names, title, said, largest))
        return framed(drawing, note, title, kind)

    maps = ""
    if confusions.residual is not None and main.residuals is not None:
        title = f"Residual labels of {main.label}, epoch {main.residuals.epochs[-1]}"
        note = (
            "What the method has learned: of the probability that the row's class gives to others, the share that the "
            "column's gets. Mean over seeds."
        )
        largest = _full_colour(main.residuals)
        maps += drawn("residual", "residual-labels", title, confusions.residual, note, largest)
    if confusions.rates is not None:
        note = "What happened: the share of the row's test examples that were predicted as the column's."
        title, rates = f"Test errors of {main.label}", without_diagonal(confusions.rates)
        maps += drawn("test", "test-errors", title, rates, f"{note} Mean over seeds.")
    return f'<div class="columns maps">{maps}</div>'


def _controls(name: str, methods: Sequence[MethodData], main: MethodData) -> str:
    """The controls of the maps, hidden until the script runs."""
    options = "".join(
        f'<option value="{i}"{" selected" if method is main else ""}>{escape(method.label)}</option>'
        for i, method in enumerate(methods)
    )
    method = f'<label><span>method</span><select name="method">{options}</select></label>' if len(methods) > 1 else ""
    return (
        f'<div class="controls" role="group" aria-label="What the maps show" hidden>{method}'
        '<label><span>epoch <output></output></span><input type="range" name="epoch" min="0" max="0" step="1"></label>'
        '<button type="button" name="play">Play</button>'
        f'<fieldset><legend>order</legend><label><input type="radio" name="order-{name}" value="similarity" checked> '
        f'by similarity</label><label><input type="radio" name="order-{name}" value="name"> by name</label></fieldset>'
        '<div><button type="button" name="in" aria-label="Zoom in">+</button> '
        '<button type="button" name="out" aria-label="Zoom out">−</button> '
        '<button type="button" name="whole">All</button></div>'
        f'<label><span>find a class</span><input type="search" name="search" list="{name}-classes" autocomplete="off">'
        f'</label><datalist id="{name}-classes"></datalist></div>'
    )


def _row_sentences(confusions: Confusions, ranking: Matrix) -> list[str]:
    """For each class what it is mostly taken for, so that the search answers for classes that are not drawn."""
    sentences = []
    what = "By its residual label" if confusions.ranking() is confusions.residual else "On the test split"
    for row in ranking:
        order = np.argsort(-row, kind="stable")[:_ROW_SHOWN]
        first = [f"{shorten(confusions.classes[j], 40)} {percent(float(row[j]))}%" for j in order if row[j] > 0]
        sentences.append(f"{what} it is taken for: {', '.join(first) or 'nothing'}.")
    return sentences

"""One offline page that answers: which method, by how much, and what is confused with what."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from adaptive_labels.runs import RunError, RunFolder, write_bytes

from .calibration import reliability
from .charts import Curve, curves, heat_map, legend, reliability_diagram, zoom_start
from .confusions import (
    Confusions,
    agreement_sentence,
    cluster_order,
    groups_sentence,
    most_confused,
    read_confusions,
    top_pairs,
)
from .making import making_section
from .page import folded, heading, html_table, page, paragraph, scrolling
from .records import Group, Record, group_records, read_records
from .summary import summarise_group
from .table import caption, columns, left_out
from .verdict import chosen, verdict
from .words import listed, percent

T = TypeVar("T")

_SHOWN_PAIRS = 15
_LARGEST_HEAT_MAP = 60
_SHOWN_OF_MANY = 40


def write_report(runs: Iterable[RunFolder], path: str | Path) -> Path:
    """Write the report of ``runs`` as one HTML file that needs nothing else, and return its path."""
    groups = group_records(read_records(runs))
    if not groups:
        raise RunError(f"There are no runs to report on, so {path} was not written.")
    title = f"Label regularisation on {listed(sorted({group.dataset for group in groups}))}"
    body = [heading(1, title), *(_group_section(group, number) for number, group in enumerate(groups))]
    write_bytes(path, page(title, "\n".join(body)).encode("utf-8", errors="replace"))
    return Path(path)


def _group_section(group: Group, number: int) -> str:
    parts = [heading(2, group.title), paragraph(verdict(group), "verdict")]
    rows = summarise_group(group)
    if rows:
        headings, cells = columns(rows)
        best = chosen(rows)
        parts.append(html_table(headings, cells, caption=" ".join(caption(rows)), best=best.label if best else None))
        if best is not None and len(rows) > 1:
            parts.append(paragraph(f"The marked row, {best.label}, is best by validation accuracy.", "note"))
    parts += [paragraph(f"Left out: {sentence}", "note") for sentence in left_out(group)]
    parts += [paragraph(sentence, "note") for sentence in _damages(group)]
    parts += [_curves_section(group, number), _confusions_section(group), _reliability_section(group)]
    parts.append(making_section(group))
    return f'<section class="group">{"".join(parts)}</section>'


def _damages(group: Group) -> list[str]:
    """A sentence for each file of a counted run that cannot be read."""
    problems = []
    for record in group.counted:
        for read in (record.run.history, record.run.load_residual_labels, record.run.load_predictions):
            try:
                read()
            except RunError as error:
                problems.append(f"Left out of the figures: {error}")
    return problems


def _curves_section(group: Group, number: int) -> str:
    lines = {label: line for label, records in group.by_label().items() if (line := _curve(records)) is not None}
    if not lines:
        return ""
    skipped = zoom_start(max(len(line.epochs) for line in lines.values()))
    note = "Validation accuracy in percent, mean over seeds; the band is one standard deviation."
    if skipped:
        note += f" The scale fits the epochs after {skipped}; earlier ones may run off the bottom."
    title = f"Validation accuracy by epoch, {group.title}"
    return _section(
        "Learning curves", f"<figure>{legend(list(lines))}{curves(lines, title, number)}{_figcaption(note)}</figure>"
    )


def _curve(records: Sequence[Record]) -> Curve | None:
    """Mean and spread of validation accuracy at the epochs that every seed with a readable history has."""
    by_seed = []
    for record in records:
        history = _readable(record.run.history)
        if not history:
            continue
        by_seed.append(
            {
                line["epoch"]: line["validation_accuracy"]
                for line in history
                if line.get("validation_accuracy") is not None
            }
        )
    shared = sorted(set.intersection(*(set(line) for line in by_seed))) if by_seed else []
    if not shared:
        return None
    values = np.array([[line[epoch] for epoch in shared] for line in by_seed], dtype=np.float64)  # (seeds, epochs)
    std = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(len(shared))
    return Curve(np.array(shared), values.mean(axis=0), std)


def _confusions_section(group: Group) -> str:
    found = {}
    for label, records in group.by_label().items():
        confusions = _readable(partial(read_confusions, [record.run for record in records]))
        if confusions is not None:
            found[label] = confusions
    with_residual = {label: confusions for label, confusions in found.items() if confusions.residual is not None}
    if not found:
        return ""
    parts = []
    shown = with_residual or {label: found[label] for label in list(found)[:1]}
    for position, (label, confusions) in enumerate(shown.items()):
        content = _confusions_of(label, confusions)
        parts.append(content if len(shown) == 1 else folded(label, content, opened=position == 0))
    return _section("What is taken for what", "".join(parts))


def _confusions_of(label: str, confusions: Confusions) -> str:
    parts = []
    pairs = top_pairs(confusions, _SHOWN_PAIRS)
    headings, cells = ["class", "taken for"], [[pair.true, pair.taken_for] for pair in pairs]
    if confusions.residual is not None:
        headings.append("residual label %")
        cells = [[*row, percent(pair.residual or 0)] for row, pair in zip(cells, pairs, strict=True)]
    if confusions.counts is not None:
        headings += ["test rate %", "test examples"]
        cells = [
            [*row, percent(pair.rate or 0), f"{pair.count:.1f}".removesuffix(".0")]
            for row, pair in zip(cells, pairs, strict=True)
        ]
    runs = max(confusions.residual_runs, confusions.test_runs)
    explained = f"{label}, mean over {runs} {'run' if runs == 1 else 'runs'}."
    if confusions.residual is not None:
        explained += " Residual label: of the probability a class gives to others, the share that goes to this one."
    if confusions.counts is not None:
        explained += " Test rate: of the class's test examples, the share predicted as the other."
    parts.append(html_table(headings, cells, caption=explained, words=(0, 1)))
    sentence = agreement_sentence(confusions)
    parts += [paragraph(sentence)] if sentence else []
    groups = groups_sentence(confusions)
    parts += [paragraph(groups)] if groups else []
    if confusions.residual is not None:
        parts.append(_heat_map(label, confusions.residual, confusions.classes))
    return "".join(parts)


def _heat_map(label: str, matrix: np.ndarray, classes: Sequence[str]) -> str:
    note = (
        "Residual labels at the last stored epoch, mean over seeds: the stronger the colour, the more of the row's "
        "class goes to the column's. Confused classes stand together. Point at a square for its value."
    )
    chosen_classes = list(range(len(classes)))
    if len(classes) > _LARGEST_HEAT_MAP:
        chosen_classes = most_confused(matrix, _SHOWN_OF_MANY)
        note = f"Only the {_SHOWN_OF_MANY} most confused of {len(classes)} classes are shown. {note}"
    part = matrix[np.ix_(chosen_classes, chosen_classes)]
    order = cluster_order(part)
    names = [classes[chosen_classes[i]] for i in order]
    title = f"Residual labels of {label}"
    drawing = heat_map(part[np.ix_(order, order)], names, title, "The largest values are in the table of pairs.")
    return f"<figure>{scrolling(drawing, title)}{_figcaption(note)}</figure>"


def _reliability_section(group: Group) -> str:
    diagrams = []
    for label, records in group.by_label().items():
        predictions = [found for record in records if (found := _readable(record.run.load_predictions)) is not None]
        if not predictions:
            continue
        pooled = reliability(
            np.concatenate([found.test_logits for found in predictions]),
            np.concatenate([found.test_labels for found in predictions]),
        )
        ece = np.mean([reliability(found.test_logits, found.test_labels).ece for found in predictions])
        words = f"{label}: ECE {percent(float(ece))}%"
        diagrams.append(f"<div>{heading(4, words)}{reliability_diagram(pooled, f'Reliability of {label}')}</div>")
    if not diagrams:
        return ""
    note = (
        "Share of right test predictions (percent) by confidence, all seeds together, before temperature scaling; "
        "15 bins, fainter where there are fewer predictions. Bars below the dashed line: too confident; above it: "
        "not enough."
    )
    return _section(
        "Can the confidence be believed?",
        f'<figure><div class="small">{"".join(diagrams)}</div>{_figcaption(note)}</figure>',
    )


def _readable(read: Callable[[], T]) -> T | None:
    """What a run's file holds, or None: a missing or damaged one costs its figure, not the whole report."""
    try:
        return read()
    except RunError:
        return None


def _section(title: str, content: str) -> str:
    return f"<section>{heading(3, title)}{content}</section>"


def _figcaption(text: str) -> str:
    return f"<figcaption>{paragraph(text)}</figcaption>"

"""Which method, by how much, and is it noise: the report's first screen."""

from collections.abc import Sequence
from html import escape

import numpy as np

from adaptive_labels.analysis.confusions import Pair, top_pairs
from adaptive_labels.analysis.format import difference, p_value, percent, signed
from adaptive_labels.analysis.records import Group
from adaptive_labels.analysis.statistics import bootstrap_difference
from adaptive_labels.analysis.table import (
    Row,
    baseline_label,
    caption,
    chosen,
    columns as table_columns,
    left_out,
    summarise_group,
    verdict,
)
from adaptive_labels.report.charts import Difference, difference_chart
from adaptive_labels.report.figures import Figures
from adaptive_labels.report.group_data import GroupData, MethodData
from adaptive_labels.report.page import columns, folded, framed, heading, paragraph
from adaptive_labels.report.sections import Context, section

_FIRST_PAIRS = 6


@section(0, title="", link="answer")
def answer_section(context: Context) -> str:
    """The verdict, the differences and the first confusions at a glance, then the table with its tests."""
    found, figures = context.data, context.figures
    group = found.group
    rows = summarise_group(group)
    parts = [heading(2, group.title), paragraph(verdict(group), "verdict")]
    best = chosen(rows)
    parts.append(columns(_differences(group, rows, best, figures), _first_pairs(found, best)))
    if rows:
        headings, cells = table_columns(rows)
        text = " ".join(caption(rows))
        if best is not None and len(rows) > 1:
            text += f" The marked row, {best.label}, is best by validation accuracy."
        parts.append(figures.table("results", headings, cells, text, best=best.label if best else None))
    parts.append(_tests(found, rows, figures))
    parts += [paragraph(f"Left out: {sentence}", "note") for sentence in left_out(group)]
    parts += [paragraph(f"Left out of the figures: {sentence}", "note") for sentence in found.problems]
    return "".join(parts)


def main_method(found: GroupData) -> MethodData | None:
    """The method whose confusions are shown first: the best by validation, else the last that has any."""
    best = chosen(summarise_group(found.group))
    usable = [method for method in found.methods if method.classes is not None]
    return next((m for m in usable if best is not None and m.label == best.label), usable[-1] if usable else None)


def _differences(group: Group, rows: Sequence[Row], best: Row | None, figures: Figures) -> str:
    baseline = baseline_label(group)
    if baseline is None or len(rows) < 2:
        return ""
    by_label = {
        label: {record.seed: record.metrics["test"]["top1"] for record in records}
        for label, records in group.by_label().items()
    }
    drawn = []
    for row in rows:
        compared = row.comparison
        if compared is None or compared.difference is None:
            continue
        shared = sorted(by_label[row.label].keys() & by_label[baseline].keys())
        by_seed = [by_label[row.label][seed] - by_label[baseline][seed] for seed in shared]
        words = difference(compared)
        drawn.append(
            Difference(row.label, by_seed, compared.difference, compared.low, compared.high, words, row is best)
        )
    if not drawn:
        return ""
    title = f"Test accuracy against {baseline}, {group.title}"
    note = (
        "A ring is a seed, the thick bar their mean, the line its 95% interval. "
        "Right of the dashed line is better; an interval that crosses it can be noise."
    )
    chart = figures.figure("differences", difference_chart(drawn, title, baseline))
    return framed(chart, note, f"Test accuracy against {baseline}")


def _first_pairs(found: GroupData, best: Row | None) -> str:
    method = main_method(found)
    confusions = None if method is None else method.confusions
    if method is None or confusions is None or confusions.counts is None:
        return ""
    pairs = top_pairs(confusions, _FIRST_PAIRS, by="test")
    if not pairs:
        return heading(4, "What is taken for what") + paragraph("No test example is taken for another class.")
    items = "".join(_bar(pair) for pair in pairs)
    note = f"{method.label}: share of the class's test examples that are predicted as the other; a full bar is 100%."
    return (
        f'<figure>{heading(4, "Most confused on the test split")}<ol class="pairs">{items}</ol>'
        f"<figcaption>{paragraph(note)}</figcaption></figure>"
    )


def _bar(pair: Pair) -> str:
    rate = pair.rate or 0.0
    return (
        f'<li><span class="share">{percent(rate, 0)}%</span>{escape(pair.true)} → {escape(pair.taken_for)}'
        f'<span class="track"><span class="fill" style="width:{100 * rate:.1f}%"></span></span></li>'
    )


def _tests(found: GroupData, rows: Sequence[Row], figures: Figures) -> str:
    """Every test of every method against the baseline, over seeds and over test examples."""
    baseline = baseline_label(found.group)
    compared = [row for row in rows if row.comparison is not None and row.comparison.difference is not None]
    if baseline is None or not compared:
        return ""
    cells = []
    for row in compared:
        result = row.comparison
        assert result is not None
        cells.append(
            [
                row.label,
                str(result.n),
                difference(result, 2),
                p_value(result.p),
                p_value(result.p_holm),
                p_value(result.p_flip),
                _over_examples(found, row.label, baseline),
            ]
        )
    headings = ["method", "n", "difference [95%]", "p", "p Holm", "p sign flip", "[95%] over examples"]
    text = (
        f"Differences from {baseline} in points of test top-1, on the n seeds both have. p: paired t test; Holm: "
        "corrected for the number of methods; sign flip: exact permutation test, which cannot be below 2/2ⁿ. Over "
        "examples: 95% bootstrap interval over the test examples for these networks, the noise of the test split."
    )
    return folded("All paired tests", figures.table("paired-tests", headings, cells, text))


def _over_examples(found: GroupData, label: str, baseline: str) -> str:
    by_seed = {
        method.label: {run.seed: run for run in method.predictions}
        for method in found.methods
        if method.label in (label, baseline)
    }
    shared = sorted(by_seed[label].keys() & by_seed[baseline].keys())
    runs = {name: [by_seed[name][seed] for seed in shared] for name in (label, baseline)}
    if not shared or any(not np.array_equal(runs[label][0].labels, run.labels) for one in runs.values() for run in one):
        return ""
    scores = [np.mean([run.logits.argmax(axis=1) == run.labels for run in one], axis=0) for one in runs.values()]
    found_interval = bootstrap_difference(scores[0], scores[1], repeats=1000)
    return f"[{signed(found_interval.low, 2)}, {signed(found_interval.high, 2)}]"

"""The report's first screen: which method is best, by how much, and whether that is more than noise."""

from html import escape

import numpy as np

from adaptive_labels.lab.analysis.confusions import top_pairs
from adaptive_labels.lab.analysis.format import difference, p_value, percent, signed
from adaptive_labels.lab.analysis.statistics import PairedDifference, bootstrap_difference
from adaptive_labels.lab.analysis.table import caption, left_out, shown_rows, table_cells
from adaptive_labels.lab.analysis.verdict import verdict
from adaptive_labels.lab.report.charts import difference_chart
from adaptive_labels.lab.report.group_data import GroupData
from adaptive_labels.lab.report.page import columns, folded, framed, heading, paragraph
from adaptive_labels.lab.report.sections import Context, section

_FIRST_PAIRS = 6
_LEVEL = 3  # of its headings, which come right below the group's own


@section(0, title="", link="answer")
def answer_section(context: Context) -> str:
    """The verdict, the differences and the first confusions at a glance, then the table with its tests."""
    found = context.data
    parts = [heading(2, found.group.title), _verdict(found)]
    compared = {row.label: row.versus for row in found.rows if row.versus and row.versus.n}
    parts.append(columns(_differences(context, compared), _first_pairs(found)))
    if found.rows:
        shown = shown_rows(found.group)
        cells = table_cells(shown)
        headings, lines = list(cells), [list(line) for line in zip(*cells.values(), strict=True)]
        text, best = " ".join(caption(shown)), found.best.label if found.best else None
        if best is not None and len(found.rows) > 1:
            text += f" The marked row, {best}, is best by validation accuracy."
        parts.append(context.figures.table("results", headings, lines, text, best=best))
    parts.append(_tests(context, compared))
    parts += [paragraph(f"Left out: {sentence}", "note") for sentence in left_out(found.group)]
    parts += [paragraph(f"Left out of the figures: {sentence}", "note") for sentence in found.problems]
    return "".join(parts)


def _verdict(found: GroupData) -> str:
    said = verdict(found.group)
    bullets = "".join(f"<li>{escape(bullet)}</li>" for bullet in said.bullets)
    listed = f"<ul>{bullets}</ul>" if bullets else ""
    return f'<div class="verdict">{paragraph(said.headline)}{listed}</div>'


def _differences(context: Context, compared: dict[str, PairedDifference]) -> str:
    found, baseline = context.data, context.data.baseline
    if baseline is None or not compared:
        return ""
    top1 = {
        label: {record.seed: record.figures["test_top1"] for record in records}
        for label, records in found.group.by_label().items()
    }
    shared = {label: sorted(top1[label].keys() & top1[baseline].keys()) for label in compared}
    by_seed = {label: [top1[label][seed] - top1[baseline][seed] for seed in shared[label]] for label in compared}
    note = (
        "A ring is a seed, the thick bar their mean, the line its 95% interval. "
        "Right of the dashed line is better; an interval that crosses it can be noise."
    )
    title = f"Test accuracy against {baseline}"
    best = None if found.best is None else found.best.label
    chart = difference_chart(compared, by_seed, f"{title}, {found.group.title}", baseline, best)
    return context.framed("differences", chart, note, title, _LEVEL)


def _first_pairs(found: GroupData) -> str:
    if found.main is None or found.main.confusions.counts is None:
        return ""
    pairs = top_pairs(found.main.confusions, _FIRST_PAIRS, by="test")
    if not pairs:
        return heading(_LEVEL, "What is taken for what") + paragraph("No test example is taken for another class.")
    items = "".join(
        f'<li><span class="share">{percent(pair.rate or 0, 0)}%</span>{escape(pair.true)} → {escape(pair.taken_for)}'
        f'<span class="track"><span class="fill" style="width:{100 * (pair.rate or 0):.1f}%"></span></span></li>'
        for pair in pairs
    )
    note = (
        f"{found.main.label}: share of the class's test examples that are predicted as the other; a full bar is 100%."
    )
    return framed(f'<ol class="pairs">{items}</ol>', note, "Most confused on the test split", level=_LEVEL)


def _tests(context: Context, compared: dict[str, PairedDifference]) -> str:
    """Every test of every method against the baseline, over seeds and over test examples."""
    baseline = context.data.baseline
    if baseline is None or not compared:
        return ""
    cells = [
        [
            label,
            str(result.n),
            difference(result, 2),
            *(p_value(p) for p in (result.p, result.p_holm, result.p_flip)),
            _over_examples(context.data, label, baseline),
        ]
        for label, result in compared.items()
    ]
    headings = ["method", "n", "difference [95%]", "p", "p Holm", "p sign flip", "[95%] over examples"]
    text = (
        f"Differences from {baseline} in points of test top-1, on the n seeds both have. p: paired t test; Holm: "
        "corrected for the number of methods; sign flip: exact permutation test, which cannot be below 2/2ⁿ. Over "
        "examples: 95% bootstrap interval over the test examples for these networks, the noise of the test split."
    )
    return folded("All paired tests", context.figures.table("paired-tests", headings, cells, text))


def _over_examples(found: GroupData, label: str, baseline: str) -> str:
    by_seed = {method.label: {run.seed: run for run in method.predictions} for method in found.methods}
    shared = sorted(by_seed[label].keys() & by_seed[baseline].keys())
    runs = {name: [by_seed[name][seed] for seed in shared] for name in (label, baseline)}
    if not shared or any(not np.array_equal(runs[label][0].labels, run.labels) for one in runs.values() for run in one):
        return ""
    own, other = (np.mean([run.logits.argmax(axis=1) == run.labels for run in one], axis=0) for one in runs.values())
    interval = bootstrap_difference(own, other, repeats=1000)
    return f"[{signed(interval.low, 2)}, {signed(interval.high, 2)}]"

"""The report's first screen: which method is best, by how much, and whether that is more than noise."""

from typing import Any

import numpy as np

from adaptive_labels.lab.analysis.confusions import top_pairs
from adaptive_labels.lab.analysis.format import difference, p_value, percent, signed
from adaptive_labels.lab.analysis.statistics import PairedDifference, bootstrap_difference
from adaptive_labels.lab.analysis.table import caption, group_rows, left_out, table_cells
from adaptive_labels.lab.analysis.verdict import mean_correct, verdict
from adaptive_labels.lab.report.charts import difference_chart
from adaptive_labels.lab.report.figures import Chart, PageTable
from adaptive_labels.lab.report.group_data import GroupData
from adaptive_labels.lab.report.sections import Context, Values, section

_FIRST_PAIRS = 6
_FIRST_COLUMNS = 9  # of the table; the others are folded away, so that it fits a laptop's screen


@section(0, link="answer")
def verdict_values(context: Context) -> Values:
    """The verdict, the differences and the first confusions at a glance, then the table with its tests."""
    data = context.data
    versus = {row.label: row.versus for row in data.rows if row.versus and row.versus.n}
    results, more = _results(context)
    sentences = [f"Left out: {sentence}" for sentence in left_out(data.group)]
    return {
        "title": data.group.title,
        "verdict": verdict(data.group),
        "differences": _differences(context, versus) if data.baseline and versus else None,
        "pairs": _first_pairs(data),
        "main": data.main.label if data.main else "",
        "results": results,
        "more": more,
        "tests": _tests(context, versus) if data.baseline and versus else None,
        "left_out": [*sentences, *(f"Left out of the figures: {sentence}" for sentence in data.problems)],
    }


def _results(context: Context) -> tuple[PageTable | None, PageTable | None]:
    """The table of results, and its less important columns if there are any."""
    data = context.data
    if not data.rows:
        return None, None
    headings, cells = table_cells(data.rows)
    text, best = " ".join(caption(data.group, data.rows)), data.best.label if data.best else None
    if best is not None and len(data.rows) > 1:
        text += f" The marked row, {best}, is best by validation accuracy."
    context.figures.table("results", headings, cells, text)
    table = PageTable(headings[:_FIRST_COLUMNS], [row[:_FIRST_COLUMNS] for row in cells], text, best=best)
    rest = ["method", *headings[_FIRST_COLUMNS:]]
    if len(rest) == 1:
        return table, None
    text = "The same runs: time in seconds, and parameters of the network and of the criterion."
    return table, PageTable(rest, [[row[0], *row[_FIRST_COLUMNS:]] for row in cells], text, best=best)


def _differences(context: Context, versus: dict[str, PairedDifference]) -> Chart:
    data, baseline = context.data, context.data.baseline or ""
    top1 = {row.label: row.values("test_top1") for row in data.rows}
    by_seed = {
        label: [top1[label][seed] - top1[baseline][seed] for seed in sorted(top1[label].keys() & top1[baseline].keys())]
        for label in versus
    }
    note = (
        "A ring is a seed, the thick bar their mean, the line its 95% interval. "
        "Right of the dashed line is better; an interval that crosses it can be noise."
    )
    title = f"Test accuracy against {baseline}"
    best = None if data.best is None else data.best.label
    drawing = difference_chart(versus, by_seed, f"{title}, {data.group.title}", baseline, best)
    return context.figures.chart("differences", drawing, title, note)


def _first_pairs(data: GroupData) -> list[dict[str, Any]] | None:
    if data.main is None or data.main.confusions.counts is None:
        return None
    return [
        {
            "true": pair.true,
            "taken_for": pair.taken_for,
            "share": f"{percent(pair.rate, 0)}%",
            "width": f"{100 * pair.rate:.1f}",
        }
        for pair in top_pairs(data.main.confusions, _FIRST_PAIRS, by="test").itertuples()
    ]


def _tests(context: Context, versus: dict[str, PairedDifference]) -> PageTable:
    """Every test of every method against the baseline, over seeds and over test examples."""
    baseline = context.data.baseline or ""
    likelihoods = {row.label: row.versus for row in group_rows(context.data.group, "test_nll")}
    rows = []
    for label, gain in versus.items():
        cells = [label, str(gain.n), difference(gain, 2), *(p_value(p) for p in (gain.p, gain.p_holm, gain.p_flip))]
        rows.append([*cells, _over_examples(context.data, label, baseline), *_of_likelihood(likelihoods.get(label))])
    headings = ["method", "n", f"vs. {baseline} [95%]", "p", "p Holm", "p sign flip", "[95%] over examples"]
    headings += ["NLL [95%]", "p Holm"]
    text = (
        f"Differences from {baseline} in points of test top-1, on the n seeds both have. p: paired t test; Holm: "
        "corrected for the number of methods; sign flip: exact permutation test, which cannot be below 2/2ⁿ. Over "
        "examples: 95% bootstrap interval over the test examples for these networks, the noise of the test split. "
        "NLL: its difference on the same seeds; less is better."
    )
    return context.figures.table("paired-tests", headings, rows, text)


def _of_likelihood(gain: PairedDifference | None) -> list[str]:
    """The difference in NLL with its interval, and its corrected p value."""
    if gain is None or gain.difference is None:
        return ["", ""]
    figures = [
        f"{value:+.3f}".replace("-", "−") for value in (gain.difference, gain.low, gain.high) if value is not None
    ]
    return [f"{figures[0]} [{', '.join(figures[1:])}]" if len(figures) == 3 else figures[0], p_value(gain.p_holm)]


def _over_examples(data: GroupData, label: str, baseline: str) -> str:
    by_label = data.group.by_label()
    shared = {record.seed for record in by_label[label]} & {record.seed for record in by_label[baseline]}
    method, other = (
        mean_correct([record for record in by_label[name] if record.seed in shared]) for name in (label, baseline)
    )
    if method is None or other is None or not np.array_equal(method[1], other[1]):
        return ""
    interval = bootstrap_difference(method[0], other[0], repeats=1000)
    return f"[{signed(interval.low, 2)}, {signed(interval.high, 2)}]"

"""What to do about the confusions of a test split: merge classes, get more examples, or look at one direction.

Each suggestion stands on a test of the split's own counts; the fewer test examples, the fewer rows.
"""

import numpy as np
import pandas as pd
from scipy import stats

from adaptive_labels.lab.analysis.confusion_matrix import without_diagonal
from adaptive_labels.lab.analysis.confusions import Confusions, group_frame, significant_pairs
from adaptive_labels.lab.analysis.format import p_phrase, percent
from adaptive_labels.lab.analysis.statistics import SIGNIFICANCE, holm

Suggestion = tuple[str, tuple[str, ...], str]
MOSTLY = 0.5  # the share of errors from which they are with a group, or with one other class


def advice_frame(confusions: Confusions) -> pd.DataFrame:
    """One row per suggestion: ``kind`` (merge, one-way or more-data), ``classes``, and the ``sentence`` that shows why.

    merge: classes whose errors are mostly with each other, in both directions. one-way: a class is taken for another
    more often than the reverse, and that is most of its errors. more-data: a class is right less often than all
    examples are, and its errors are spread over several classes. Each is said only beyond chance.
    """
    rows: list[Suggestion] = []
    if confusions.counts is not None:
        merge = _merge(confusions)
        merged = {name for _, classes, _ in merge for name in classes}
        rows = [*merge, *_one_way(confusions, merged), *_more_data(confusions, merged)]
    return pd.DataFrame(rows, columns=["kind", "classes", "sentence"])


def _merge(confusions: Confusions) -> list[Suggestion]:
    rows: list[Suggestion] = []
    for group in group_frame(confusions, "test").itertuples():
        size, taken = len(confusions.classes), round(group.mass / group.within)
        chance = (len(group.classes) - 1) / (size - 1)
        p = float(stats.binomtest(round(group.mass), taken, chance, alternative="greater").pvalue)
        p = min(1.0, p * size * (size - 1) / 2)  # the group was found among all pairs
        if group.within >= MOSTLY and p < SIGNIFICANCE:
            figures = f"{percent(group.within, 0)}% of their {taken} test errors are with each other ({p_phrase(p)})"
            names = ", ".join(group.classes)
            rows.append(("merge", group.classes, f"Merge, or tell apart by a clearer definition: {names}. {figures}."))
    return rows


def _one_way(confusions: Confusions, merged: set[str]) -> list[Suggestion]:
    assert confusions.counts is not None
    rows: list[Suggestion] = []
    for pair in significant_pairs(confusions).itertuples():
        others = without_diagonal(confusions.counts)[confusions.classes.index(pair.true)].sum()
        if pair.true in merged or pair.errors < MOSTLY * others:
            continue
        figures = (
            f"{percent(pair.rate)}% of its test examples ({pair.errors}) against {percent(pair.reverse_rate)}% "
            f"({pair.reverse_errors}) the other way, {p_phrase(pair.p_holm)}"
        )
        words = f"Look at examples of {pair.true}: it is taken for {pair.taken_for} more than the reverse: {figures}."
        rows.append(("one-way", (pair.true, pair.taken_for), words))
    return rows


def _more_data(confusions: Confusions, merged: set[str]) -> list[Suggestion]:
    """Classes that are hard by more than chance, of which no other class is the reason; the hardest first."""
    assert confusions.counts is not None
    counts = np.rint(confusions.counts)
    totals, right = counts.sum(axis=1), counts.diagonal()
    overall = float(right.sum() / max(totals.sum(), 1))
    tested = np.flatnonzero(totals)
    ps = holm([
        float(stats.binomtest(int(right[k]), int(totals[k]), overall, alternative="less").pvalue) for k in tested
    ])  # fmt: skip
    rows: list[Suggestion] = []
    for k, p in sorted(zip(tested.tolist(), ps, strict=True), key=lambda one: right[one[0]] / totals[one[0]]):
        errors = np.delete(counts[k], k)
        name, spread = confusions.classes[k], errors.max(initial=0) < MOSTLY * errors.sum()
        if p is not None and p < SIGNIFICANCE and spread and name not in merged:
            figures = (
                f"{percent(right[k] / totals[k], 0)}% of its {totals[k]:.0f} test examples are right, of all "
                f"{percent(overall, 0)}% ({p_phrase(p)}), and its errors go to {np.count_nonzero(errors)} classes"
            )
            rows.append(("more-data", (name,), f"Get more examples of {name}: {figures}."))
    return rows

"""Which classes are taken for which, by the residual labels and by the test split, as data, text, JSON and CSV.

Shapes: K classes. Row k of a matrix is the true class k. The residual label of a pair (k, j) is the learned share of j
in the probability that k gives to other classes; the test rate is the share of k's test examples predicted as j.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from adaptive_labels.errors import UserError
from adaptive_labels.lab import tables
from adaptive_labels.lab.analysis.confusion_matrix import (
    AsymmetricPair,
    Matrix,
    asymmetric_pairs,
    confused_groups,
    row_shares,
    without_diagonal,
)
from adaptive_labels.lab.analysis.format import p_value, percent
from adaptive_labels.lab.analysis.residual_labels import Agreement, agreement, row_entropy
from adaptive_labels.lab.analysis.statistics import SIGNIFICANCE
from adaptive_labels.lab.runs import Predictions, RunError, RunFolder
from adaptive_labels.lab.words import plural
from adaptive_labels.metrics import confusion_matrix

FORMATS = ("text", "json", "csv")
LISTS = ("pairs", "one-way", "groups")
NOTHING = "No class is taken for another.\n"
NEARLY_EVEN, FLAT = 0.98, 0.9999  # shares of the largest entropy that residual labels can have


@dataclass(frozen=True)
class Confusions:
    """Both views of the confusions of some runs, means over the runs; a view is None if no run has it."""

    classes: tuple[str, ...]
    residual: Matrix | None  # (K, K) residual labels at the last stored epoch
    counts: Matrix | None  # (K, K) test examples of the row's class predicted as the column's
    residual_runs: int = 0  # how many runs ``residual`` is the mean of
    test_runs: int = 0  # how many runs ``counts`` is the mean of

    @cached_property
    def rates(self) -> Matrix | None:
        """(K, K) test counts as shares of the row's examples; rows of classes without examples are 0."""
        return None if self.counts is None else row_shares(self.counts)

    @cached_property
    def evenness(self) -> float:
        """How even the residual labels are: their mean entropy as a share of the largest possible; 1 of two classes."""
        if self.residual is None or len(self.classes) == 2:
            return 1.0
        return float(row_entropy(self.residual, normalised=True).mean())

    @property
    def little_learned(self) -> str:
        """Why there is little to read from the residual labels, in a sentence; empty where there is more."""
        if self.residual is None or self.evenness < NEARLY_EVEN:
            return ""
        if len(self.classes) == 2:
            return "With two classes a residual label has one entry: there is nothing to learn, and ALR is its L_hard."
        return (
            f"The residual labels are still nearly even (entropy {percent(self.evenness)}% of the largest possible): "
            "there is little to read from them yet. Longer training, or a larger residual_lr, would move them."
        )

    @property
    def averaged(self) -> str:
        """How many runs the figures are means of, in words."""
        if self.residual_runs and self.test_runs and self.residual_runs != self.test_runs:
            residual, test = plural(self.residual_runs, "run"), plural(self.test_runs, "run")
            return f"mean over {residual} of the residual labels, over {test} of the test figures"
        return f"mean over {plural(max(self.residual_runs, self.test_runs), 'run')}"

    def ranking(self, by: str | None = None) -> Matrix:
        """(K, K) residual labels or test rates, as ``by`` says; without it, residual labels that are not flat."""
        if by not in (None, "residual", "test"):
            raise UserError(f"by is {by!r}; it must be residual or test.")
        if by is None and self.evenness >= FLAT and self.rates is not None:
            return self.rates
        if by != "test" and self.residual is not None:
            return self.residual
        if by != "residual" and self.rates is not None:
            return self.rates
        raise RunError(f"These runs have no {'residual labels' if by == 'residual' else 'test predictions'}.")

    def agreement(self, pairs: int = 0) -> Agreement | None:
        """How well residual labels and test errors agree; None where one of the two is missing."""
        if self.residual is None or self.counts is None:
            return None
        return agreement(self.residual, self.counts, pairs=pairs)


@dataclass(frozen=True)
class ConfusedPair:
    """``true`` is taken for ``taken_for``: the figures of both directions, None for a view that is not there."""

    true: str
    taken_for: str
    residual: float | None  # the residual label
    rate: float | None  # the share of the test examples of ``true`` predicted as ``taken_for``
    count: float | None  # the number of those examples, a mean over the runs
    reverse_residual: float | None
    reverse_rate: float | None
    reverse_count: float | None


@dataclass(frozen=True)
class NamedGroup:
    """A `ConfusedGroup` with class names; ``by`` is residual or test."""

    by: str
    classes: tuple[str, ...]
    mass: float
    within: float
    weakest: float


def read_confusions(runs: Sequence[RunFolder]) -> Confusions:
    """Average residual labels and test confusion matrices over ``runs``, usually the seeds of one method.

    The matrices are dense: (K, K) float64, which is 8 MB for 1,000 classes.
    """
    classes: tuple[str, ...] | None = None
    residuals, counts = [], []
    for run in runs:
        labels, predictions = run.load_residual_labels(), run.load_predictions()
        if labels is not None and len(labels.epochs):
            residuals.append(labels.matrix().astype(np.float64))
            classes = _same(classes, labels.classes, run)
        if predictions is not None:
            counts.append(count_confusions(run, predictions))
            classes = _same(classes, predictions.classes, run)
    sizes = sorted({len(matrix) for matrix in [*residuals, *counts]})
    if not sizes:
        where = str(runs[0].path) if len(runs) == 1 else f"any of the {len(runs)} runs"
        raise RunError(f"There is neither a residual_labels.npz nor a predictions.npz in {where}.")
    if len(sizes) > 1:
        raise RunError(f"The runs have {' and '.join(map(str, sizes))} classes; give runs of one data set.")
    return Confusions(
        classes or tuple(str(i) for i in range(sizes[0])),
        np.mean(residuals, axis=0) if residuals else None,
        np.mean(counts, axis=0) if counts else None,
        len(residuals),
        len(counts),
    )


def _same(known: tuple[str, ...] | None, names: tuple[str, ...] | None, run: RunFolder) -> tuple[str, ...] | None:
    if known is not None and names is not None and known != names:
        raise RunError(f"{run.path} has other classes than the runs before it; give runs of one data set.")
    return known or names


def count_confusions(run: RunFolder, predictions: Predictions) -> Matrix:
    """(K, K) test examples of the row's class predicted as the column's; unusable predictions are a `RunError`."""
    try:
        return confusion_matrix(predictions.test_logits, predictions.test_labels).astype(np.float64)
    except ValueError as error:
        raise RunError(f"{run.path / 'predictions.npz'} holds no usable predictions: {error}.") from None


def top_pairs(confusions: Confusions, top: int = 10, by: str | None = None) -> list[ConfusedPair]:
    """The pairs with most confusion by `Confusions.ranking`, largest first; pairs with none are left out."""
    ranking = without_diagonal(confusions.ranking(by))
    views = [confusions.residual, confusions.rates, confusions.counts]
    pairs = []
    for cell in np.argsort(-ranking, axis=None, kind="stable")[:top].tolist():
        i, j = divmod(cell, len(ranking))
        if ranking[i, j] > 0:
            figures = [_cell(view, *place) for place in ((i, j), (j, i)) for view in views]
            pairs.append(ConfusedPair(confusions.classes[i], confusions.classes[j], *figures))
    return pairs


def _cell(view: Matrix | None, i: int, j: int) -> float | None:
    return None if view is None else float(view[i, j])


def one_way_pairs(confusions: Confusions, top: int | None = None) -> list[AsymmetricPair[str]]:
    """Pairs that the test split confuses more in one direction, smallest p first; empty without test predictions."""
    if confusions.counts is None:
        return []
    names, pairs = confusions.classes, []
    for pair in asymmetric_pairs(confusions.counts, top):
        i, j, *figures = astuple(pair)[:-2]
        learned = [_cell(confusions.residual, i, j), _cell(confusions.residual, j, i)]
        pairs.append(AsymmetricPair(names[i], names[j], *figures, *learned))
    return pairs


def significant_pairs(confusions: Confusions) -> list[AsymmetricPair[str]]:
    """The `one_way_pairs` whose two directions differ by more than chance."""
    return [pair for pair in one_way_pairs(confusions) if pair.p_holm < SIGNIFICANCE]


def _groups(confusions: Confusions, by: str | None) -> list[NamedGroup]:
    """The groups of one view; the smallest threshold is a residual label of 0.1 or a test rate of 0.05."""
    view, matrix, least = "residual", confusions.ranking(by), 0.1
    if matrix is not confusions.residual:
        assert confusions.counts is not None
        view, matrix, least = "test", confusions.counts, 0.05
    return [
        NamedGroup(view, tuple(confusions.classes[i] for i in group.members), group.mass, group.within, group.weakest)
        for group in confused_groups(matrix, least=least)
    ]


def named_groups(confusions: Confusions, by: str | None = None) -> list[NamedGroup]:
    """Groups of classes that are confused with each other, by either view unless ``by`` names one."""
    views = {"residual": confusions.residual, "test": confusions.counts}
    chosen = [name for name, matrix in views.items() if matrix is not None] if by is None else [by]
    return [group for view in chosen for group in _groups(confusions, view)]


def mutual_groups(confusions: Confusions, by: str | None = None) -> list[list[str]]:
    """The names of the classes in each group of one view, the largest group first."""
    return sorted((list(group.classes) for group in _groups(confusions, by)), key=lambda names: (-len(names), names))


def groups_sentence(confusions: Confusions, by: str | None = None, most: int = 8) -> str | None:
    """The largest mutual groups in one sentence, or None where there is none."""
    groups = mutual_groups(confusions, by)
    if not groups:
        return None
    more = f"; and {len(groups) - most} more" if len(groups) > most else ""
    return f"Confused with each other: {'; '.join(', '.join(members) for members in groups[:most])}{more}."


def most_confused(matrix: Matrix, n: int) -> list[int]:
    """The n classes that take part in the strongest confusions, in their own order."""
    others = without_diagonal(matrix)
    strength = np.maximum(others.max(axis=0), others.max(axis=1))
    return sorted(np.argsort(-strength, kind="stable")[:n].tolist())


def summarise_confusions(confusions: Confusions, top: int = 10, by: str | None = None) -> str:
    """The most confused pairs as a table, the agreement of the two views and the groups as sentences."""
    pairs = top_pairs(confusions, top, by)
    groups = groups_sentence(confusions, by)
    return "\n".join([*_pair_lines(confusions, pairs), *([groups] if groups else [])]) + "\n" if pairs else NOTHING


def format_confusions(
    confusions: Confusions, top: int = 10, format: str = "text", by: str | None = None, only: str | None = None
) -> str:
    """Pairs, pairs confused one way more than the other, and groups: the ``top`` of each list, as one text.

    Args:
        format: text, json or csv. CSV holds one list, the pairs unless ``only`` says otherwise.
        by: which view pairs are ranked and groups found by: residual or test; groups by both unless given.
        only: pairs, one-way or groups, to leave the others out.
    """
    if format not in FORMATS:
        raise UserError(f"format is {format!r}; it must be one of {', '.join(FORMATS)}.")
    if only not in (None, *LISTS):
        raise UserError(f"only is {only!r}; it must be one of {', '.join(LISTS)}.")
    pairs = top_pairs(confusions, top, by)  # refuses a view that is not there, whatever is shown
    if format == "json":
        return json.dumps(_data(confusions, pairs, top, by, only), indent=2, ensure_ascii=False) + "\n"
    if format == "csv":
        return _csv(confusions, pairs, top, by, only or "pairs")
    if not pairs:
        return NOTHING
    parts = {
        "pairs": lambda: _pair_lines(confusions, pairs),
        "one-way": lambda: _one_way_lines(confusions, top),
        "groups": lambda: _group_lines(confusions, top, by),
    }
    texts = ["\n".join(parts[name]()) for name in ([only] if only else LISTS)]
    return "\n\n".join(text for text in texts if text) + "\n"


def pair_cells(
    confusions: Confusions, pairs: Sequence[ConfusedPair], *, for_terminal: bool = False
) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of the pairs; views that are not there have no column.

    A page has the unit in the heading; the terminal has residual labels as fractions, and rates with their sign.
    """
    unit, sign = ("", "%") if for_terminal else (" %", "")
    columns: dict[str, list[str]] = {}
    if confusions.residual is not None:
        shares = [pair.residual or 0.0 for pair in pairs]
        columns[f"residual label{unit}"] = [f"{share:.3f}" if for_terminal else percent(share) for share in shares]
    if confusions.counts is not None:
        columns[f"test rate{unit}"] = [f"{percent(pair.rate or 0)}{sign}" for pair in pairs]
        columns["test examples"] = [f"{pair.count:.1f}".removesuffix(".0") for pair in pairs]
    figures = zip(pairs, *columns.values(), strict=True)
    return ["class", "taken for", *columns], [[pair.true, pair.taken_for, *cells] for pair, *cells in figures]


def one_way_cells(
    pairs: Sequence[AsymmetricPair[str]], *, for_terminal: bool = False
) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of pairs confused one way; a page has the unit in the heading, the terminal in the cells."""
    unit, sign = ("", "%") if for_terminal else (" %", "")
    p = "p (Holm)" if for_terminal else "p Holm"
    rows = []
    for pair in pairs:
        rates = [f"{percent(rate)}{sign}" for rate in (pair.rate, pair.reverse_rate)]
        counts = f"{pair.count} : {pair.reverse_count}"
        rows.append([pair.true, pair.taken_for, *rates, counts, p_value(pair.p_holm)])
    return ["class", "taken for", f"test rate{unit}", f"reverse{unit}", "test examples", p], rows


def _data(
    confusions: Confusions, pairs: Sequence[ConfusedPair], top: int, by: str | None, only: str | None
) -> dict[str, Any]:
    data: dict[str, Any] = {"residual_runs": confusions.residual_runs, "test_runs": confusions.test_runs}
    if only in (None, "pairs"):
        found, names = confusions.agreement(top), confusions.classes
        data["pairs"] = [asdict(pair) for pair in pairs]
        data["agreement"] = None if found is None else found.overall
        data["agreement_details"] = None
        if found is not None:
            details = {"by_class_median": found.median, "same_top_confusion": found.top1, "classes": found.classes}
            differences = [
                {**asdict(pair), "true": names[pair.true], "taken_for": names[pair.taken_for]}
                for pair in found.differences
            ]
            data["agreement_details"] = {**details, "differences": differences}
    if only in (None, "one-way"):
        data["one_way"] = [asdict(pair) for pair in one_way_pairs(confusions, top)]
    if only in (None, "groups"):
        data["groups"] = mutual_groups(confusions, by)[:top]
        data["group_details"] = [asdict(group) for group in named_groups(confusions, by)[:top]]
    return data


def _csv(confusions: Confusions, pairs: Sequence[ConfusedPair], top: int, by: str | None, only: str) -> str:
    if only == "pairs":
        views = ["residual_label", "test_rate", "test_count"]
        headings = ["class", "taken_for", *views, *(f"reverse_{view}" for view in views)]
        return tables.as_csv(headings, [astuple(pair) for pair in pairs])
    if only == "one-way":
        figures = ["test_count", "reverse_test_count", "test_rate", "reverse_test_rate", "p", "p_holm"]
        headings = ["class", "taken_for", *figures, "residual_label", "reverse_residual_label"]
        return tables.as_csv(headings, [astuple(pair) for pair in one_way_pairs(confusions, top)])
    # One line per class, so that names with any separator in them stay whole.
    rows = [
        [number, group.by, name, group.mass, group.within, group.weakest]
        for number, group in enumerate(named_groups(confusions, by)[:top], start=1)
        for name in group.classes
    ]
    return tables.as_csv(["group", "by", "class", "mass", "within", "weakest"], rows)


def _pair_lines(confusions: Confusions, pairs: Sequence[ConfusedPair]) -> list[str]:
    lines = tables.aligned(*pair_cells(confusions, pairs, for_terminal=True), left=(0, 1))
    one = max(confusions.residual_runs, confusions.test_runs) == 1
    lines.append(f"{'One run' if one else confusions.averaged.capitalize()}; last stored epoch.")
    found = confusions.agreement()
    if confusions.little_learned:
        lines.append(confusions.little_learned)
    elif sentence := agreement_sentence(found):
        lines.append(sentence)
    return lines


def agreement_sentence(found: Agreement | None) -> str:
    """How well residual labels and test errors agree; empty where that is not known."""
    if found is None or found.overall is None:
        return ""
    rho = f"{found.overall:.2f}".replace("-", "−")
    order = f"with a Spearman correlation of {rho} (1 is the same order)"
    sentence = f"Residual labels and test errors rank the pairs {order}"
    if found.top1 is None:
        return f"{sentence}."
    share = f"{percent(found.top1, 0)}% of the {found.classes} classes with test errors"
    return f"{sentence}; for {share}, the largest residual label is the most frequent error."


def _one_way_lines(confusions: Confusions, top: int) -> list[str]:
    if confusions.counts is None:
        return []
    pairs = significant_pairs(confusions)
    if not pairs:
        return ["No pair is confused one way more than the other by more than chance (binomial test, Holm, p < 0.05)."]
    more = f" {len(pairs)} such pairs, {top} shown." if len(pairs) > top else ""
    table = tables.aligned(*one_way_cells(pairs[:top], for_terminal=True), left=(0, 1))
    return ["One way more than the other:", *table, f"Binomial test on the test split, p < 0.05.{more}"]


def _group_lines(confusions: Confusions, top: int, by: str | None) -> list[str]:
    groups = named_groups(confusions, by)
    if not groups:
        return ["No classes are confused with each other enough to form a group."]
    rows = [
        [group.by, ", ".join(group.classes), f"{percent(group.within, 0)}%", f"{percent(group.weakest)}%"]
        for group in groups[:top]
    ]
    more = f" {len(groups)} groups, {top} shown." if len(groups) > top else ""
    explained = (
        "Within: the share of the confusions of these classes that are with each other. Weakest: the smallest "
        f"share of one of them that is taken for another.{more}"
    )
    table = tables.aligned(["by", "classes", "within", "weakest"], rows, left=(0, 1))
    return ["Confused with each other:", *table, explained]

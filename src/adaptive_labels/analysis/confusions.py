"""Which classes are taken for which: by the residual labels, and by the test split.

Shapes: K classes. Row k of a matrix is the true class k. The residual label of a pair is the share of class k's other
probability that goes to j, as training left it; the test rate is the share of k's test examples predicted as j.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adaptive_labels.analysis import residual_labels
from adaptive_labels.analysis.confusion_matrix import (
    ConfusedGroup,
    Matrix,
    asymmetric_pairs,
    confused_groups,
    row_shares,
    without_diagonal,
)
from adaptive_labels.errors import UserError
from adaptive_labels.metrics import confusion_matrix
from adaptive_labels.runs import Predictions, RunError, RunFolder


@dataclass(frozen=True)
class Confusions:
    """Both views of a few runs' confusions, means over the runs.

    Attributes:
        classes: K names.
        residual: (K, K) residual labels at the last stored epoch, or None if no run has any.
        counts: (K, K) test examples of the row's class predicted as the column's, or None without predictions.
        residual_runs: how many runs ``residual`` is the mean of.
        test_runs: how many runs ``counts`` is the mean of.
    """

    classes: tuple[str, ...]
    residual: Matrix | None
    counts: Matrix | None
    residual_runs: int = 0
    test_runs: int = 0

    @property
    def rates(self) -> Matrix | None:
        """(K, K) test counts as shares of the row's examples; rows of classes without examples are 0."""
        return None if self.counts is None else row_shares(self.counts)


@dataclass(frozen=True)
class Pair:
    """``true`` is taken for ``taken_for``; the reverse is another pair, and its figures stand beside this one's.

    Attributes:
        residual: the residual label, or None without any.
        rate: the share of the test examples of ``true`` predicted as ``taken_for``, or None without predictions.
        count: the number of those examples, a mean over the runs.
        reverse_residual: the residual label of the reverse pair.
        reverse_rate: the rate of the reverse pair.
        reverse_count: the count of the reverse pair.
    """

    true: str
    taken_for: str
    residual: float | None
    rate: float | None
    count: float | None
    reverse_residual: float | None
    reverse_rate: float | None
    reverse_count: float | None


@dataclass(frozen=True)
class OneWay:
    """A pair that the test split confuses more in one direction; see `AsymmetricPair`.

    The residual labels of both directions stand beside the rates, or None without any.
    """

    true: str
    taken_for: str
    count: int
    reverse_count: int
    rate: float
    reverse_rate: float
    p: float
    p_holm: float
    residual: float | None
    reverse_residual: float | None


@dataclass(frozen=True)
class NamedGroup:
    """A group of classes that are confused with each other; see `ConfusedGroup`. ``by`` is residual or test."""

    by: str
    classes: tuple[str, ...]
    mass: float
    within: float
    weakest: float


def read_confusions(runs: Sequence[RunFolder]) -> Confusions:
    """Average residual labels and test confusion matrices over ``runs``, usually the seeds of one method.

    The matrices are dense: (K, K) float64, which 1,000 classes fit in 8 MB.
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
    sizes = {len(matrix) for matrix in [*residuals, *counts]}
    if not sizes:
        where = str(runs[0].path) if len(runs) == 1 else f"any of the {len(runs)} runs"
        raise RunError(f"There is neither a residual_labels.npz nor a predictions.npz in {where}.")
    if len(sizes) > 1:
        raise RunError(f"The runs have {_sizes(sizes)} classes; give runs of one data set.")
    return Confusions(
        classes or tuple(str(i) for i in range(sizes.pop())),
        np.mean(residuals, axis=0) if residuals else None,
        np.mean(counts, axis=0) if counts else None,
        len(residuals),
        len(counts),
    )


def count_confusions(run: RunFolder, predictions: Predictions) -> Matrix:
    """(K, K) test examples of the row's class predicted as the column's; unusable predictions are a `RunError`."""
    try:
        return confusion_matrix(predictions.test_logits, predictions.test_labels).astype(np.float64)
    except ValueError as error:
        raise RunError(f"{run.path / 'predictions.npz'} holds no usable predictions: {error}.") from None


def top_pairs(confusions: Confusions, top: int = 10, by: str | None = None) -> list[Pair]:
    """The pairs with most confusion, largest first, pairs with none left out.

    ``by`` is ``"residual"`` (the default where there are residual labels) or ``"test"`` (the test rate).
    """
    ranking = without_diagonal(_ranking(confusions, by))
    size = len(confusions.classes)
    order = np.argsort(-ranking, axis=None, kind="stable")[:top]
    views = [confusions.residual, confusions.rates, confusions.counts]
    pairs = []
    for i, j in (divmod(int(cell), size) for cell in order):
        if ranking[i, j] > 0:
            cells = [None if view is None else float(view[i, j]) for view in views]
            reverse = [None if view is None else float(view[j, i]) for view in views]
            pairs.append(Pair(confusions.classes[i], confusions.classes[j], *cells, *reverse))
    return pairs


def one_way_pairs(confusions: Confusions, top: int | None = None) -> list[OneWay]:
    """Pairs that the test split confuses more in one direction, smallest p first; empty without test predictions."""
    if confusions.counts is None:
        return []
    q, names = confusions.residual, confusions.classes
    return [
        OneWay(
            names[pair.true],
            names[pair.taken_for],
            pair.count,
            pair.reverse,
            pair.rate,
            pair.reverse_rate,
            pair.p,
            pair.p_holm,
            None if q is None else float(q[pair.true, pair.taken_for]),
            None if q is None else float(q[pair.taken_for, pair.true]),
        )
        for pair in asymmetric_pairs(confusions.counts, top)
    ]


def agreement(confusions: Confusions) -> float | None:
    """Spearman's rank correlation of residual labels and test errors over the off-diagonal pairs.

    See `residual_labels.agreement`, which says more. None where one of the two is missing or does not vary.
    """
    if confusions.residual is None or confusions.counts is None:
        return None
    return residual_labels.agreement(confusions.residual, confusions.counts, pairs=0).overall


def groups_of(confusions: Confusions, threshold: float | None = None, by: str | None = None) -> list[ConfusedGroup]:
    """Sets of classes in which every two are confused with each other, most confusion first.

    See `confused_groups`. Of test rates the smallest threshold is 0.05, a share of a class's examples; of
    residual labels it is 0.1, a share of what a class is taken for.
    """
    ranking = _ranking(confusions, by)
    if ranking is confusions.residual:
        return confused_groups(ranking, threshold=threshold, least=0.1)
    assert confusions.counts is not None
    return confused_groups(confusions.counts, threshold=threshold)


def named_groups(confusions: Confusions, by: str | None = None) -> list[NamedGroup]:
    """Groups of classes that are confused with each other, by either view unless ``by`` names one."""
    views = {"residual": confusions.residual, "test": confusions.counts}
    return [
        NamedGroup(view, tuple(confusions.classes[i] for i in group.members), group.mass, group.within, group.weakest)
        for view in ([name for name, matrix in views.items() if matrix is not None] if by is None else [by])
        for group in groups_of(confusions, by=view)
    ]


def mutual_groups(confusions: Confusions, threshold: float | None = None, by: str | None = None) -> list[list[str]]:
    """The names of the classes in each of `groups_of`, the largest set first."""
    names = [[confusions.classes[i] for i in group.members] for group in groups_of(confusions, threshold, by)]
    return sorted(names, key=lambda members: (-len(members), members))


def most_confused(matrix: Matrix, n: int) -> list[int]:
    """The n classes that take part in the strongest confusions, in their own order."""
    others = without_diagonal(matrix)
    strength = np.maximum(others.max(axis=0), others.max(axis=1))
    return sorted(int(i) for i in np.argsort(-strength, kind="stable")[:n])


def groups_sentence(confusions: Confusions, by: str | None = None, most: int = 8) -> str | None:
    """The largest mutual groups in one sentence, or None where there is none."""
    groups = mutual_groups(confusions, by=by)
    if not groups:
        return None
    more = f"; and {len(groups) - most} more" if len(groups) > most else ""
    return f"Confused with each other: {'; '.join(', '.join(members) for members in groups[:most])}{more}."


def _ranking(confusions: Confusions, by: str | None) -> Matrix:
    if by not in (None, "residual", "test"):
        raise UserError(f"by is {by!r}; it must be residual or test.")
    if by != "test" and confusions.residual is not None:
        return confusions.residual
    if by != "residual" and confusions.rates is not None:
        return confusions.rates
    raise RunError(f"These runs have no {'residual labels' if by == 'residual' else 'test predictions'}.")


def _same(known: tuple[str, ...] | None, names: tuple[str, ...] | None, run: RunFolder) -> tuple[str, ...] | None:
    if known is not None and names is not None and known != names:
        raise RunError(f"{run.path} has other classes than the runs before it; give runs of one data set.")
    return known or names


def _sizes(sizes: set[int]) -> str:
    return " and ".join(str(size) for size in sorted(sizes))

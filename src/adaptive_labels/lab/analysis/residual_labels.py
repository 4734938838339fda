"""How residual labels change over the epochs, and how well they agree with the test confusions.

Shapes: E stored epochs, K classes. Row k of a matrix is the true class k; the residual label of (k, j) is the share of
j in the probability that k gives to other classes. The diagonal is 0 and not counted.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from adaptive_labels.lab.analysis.confusion_matrix import Matrix, off_diagonal, row_shares, square, without_diagonal

_ROUNDING = 1e-3  # by which the sum of a row stored as float32 may be above 1


def row_entropy(labels: ArrayLike, *, normalised: bool = False) -> Matrix:
    """How even each residual label is: the entropy of the row, in nats.

    H_k = −Σ_j q_kj log q_kj: 0 if all mistakes are the same one, log(K − 1) if they are spread evenly. Runs with more
    than 256 classes keep only the largest 32 of a row: what is missing to a sum of 1 is spread evenly over the entries
    that are 0, which gives the largest entropy that the row can have had.

    (…, K, K) residual labels → (…, K) entropies; ``normalised`` ones are divided by log(K − 1), and 0 for K ≤ 2.

    >>> row_entropy([[0, 0.5, 0.5], [1, 0, 0], [0.5, 0.5, 0]], normalised=True).round(3).tolist()
    [1.0, 0.0, 1.0]
    """
    q = off_diagonal(square(labels, "labels", stacked=True))  # (…, K, K−1)
    totals = q.sum(axis=-1)
    if (totals > 1 + _ROUNDING).any():
        raise ValueError(f"labels has a row that sums to {totals.max():g}; it must hold probabilities.")
    missing, empty = np.maximum(1 - totals, 0.0), (q == 0).sum(axis=-1)
    spread = empty * special.entr(missing / np.maximum(empty, 1))
    entropy = np.maximum(special.entr(q).sum(axis=-1) + spread, 0.0)
    if not normalised:
        return np.asarray(entropy)
    others = q.shape[-1]
    return np.asarray(np.minimum(entropy / np.log(others), 1.0) if others > 1 else np.zeros_like(entropy))


def mean_residual_labels(logits: ArrayLike, labels: ArrayLike) -> Matrix:
    """(K, K) an estimate of the residual labels of a method that learns none, from its predictions.

    Row y is the mean of p_j / (1 − p_y) over the examples labelled y, 0 on the diagonal; even for a class without any.
    Learned residual labels would become this if training went on.

    >>> mean_residual_labels(np.log([[0.5, 0.4, 0.1], [0.8, 0.1, 0.1]]), [0, 0]).round(2).tolist()
    [[0.0, 0.65, 0.35], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]]
    """
    others, given = np.array(logits, dtype=np.float64), np.asarray(labels, dtype=np.int64)  # (N, K), (N,)
    others[np.arange(len(given)), given] = -np.inf
    p_res, size = special.softmax(others, axis=1), others.shape[1]
    means = (1 - np.eye(size)) / (size - 1)
    for k in np.unique(given):
        means[k] = p_res[given == k].mean(axis=0)
    return np.asarray(means)


def top_confusions(labels: ArrayLike, n: int = 1) -> tuple[NDArray[np.intp], Matrix]:
    """The n classes that each class is most taken for, most first; of equal ones, the lower index.

    (…, K, K) residual labels or confusion counts → (…, K, n) columns and (…, K, n) values, n at most K − 1.

    >>> top_confusions([[0, 0.3, 0.7], [0.5, 0, 0.5], [0.9, 0.1, 0]])[0].ravel().tolist()
    [2, 0, 0]
    """
    values = square(labels, "labels", stacked=True).copy()
    size = values.shape[-1]
    if not 1 <= n <= size - 1:
        raise ValueError(f"n is {n}; with {size} classes it must be between 1 and {size - 1}.")
    values[..., np.eye(size, dtype=bool)] = -1.0  # behind every other, zeros included
    order = np.argsort(-values, axis=-1, kind="stable")[..., :n]
    return order, np.take_along_axis(values, order, axis=-1)


@dataclass(frozen=True)
class Consistency:
    """How similar the residual labels of each epoch are to those of the last epoch."""

    top_share: Matrix  # (E,) share of the classes whose top confusion is already that of the last epoch
    correlation: Matrix  # (E,) mean over the classes of the rank correlation of their row with that of the last epoch
    chance: float  # what ``top_share`` would be by chance, 1 / (K − 1)
    classes: int  # how many classes were counted


def consistency(labels_over_epochs: ArrayLike) -> Consistency:
    """Compare the residual labels (E, K, K) of every stored epoch with those of the last one.

    A class whose row does not vary at the last epoch (never seen, or K = 2) has no top confusion and is not counted. A
    row that does not vary at an earlier epoch, as at the start, has a top share and a correlation of 0 there.

    >>> early = [[0, 0.6, 0.4], [0.3, 0, 0.7], [0.2, 0.8, 0]]
    >>> late = [[0, 0.9, 0.1], [0.8, 0, 0.2], [0.1, 0.9, 0]]
    >>> found = consistency([early, late])
    >>> found.top_share.round(3).tolist(), found.correlation.round(3).tolist(), found.chance
    ([0.667, 1.0], [0.333, 1.0], 0.5)
    """
    labels = square(labels_over_epochs, "labels_over_epochs", stacked=True)
    if labels.ndim != 3 or not len(labels):
        raise ValueError(f"labels_over_epochs has shape {labels.shape}; it must be (E, K, K), E at least 1.")
    rows = off_diagonal(labels)  # (E, K, K−1)
    counted = _varies(rows[-1])
    chance = 1 / max(labels.shape[-1] - 1, 1)
    if not counted.any():
        return Consistency(np.zeros(len(rows)), np.zeros(len(rows)), chance, 0)
    last = rows[-1][counted]
    last_ranks, last_top = _centred_ranks(last), last.argmax(axis=1)
    shares, correlations = [], []
    for epoch in rows[:, counted]:  # (K, K−1), one epoch at a time: 1,000 classes are 8 MB each
        shares.append(float(((epoch.argmax(axis=1) == last_top) & _varies(epoch)).mean()))
        correlations.append(float(_correlation(_centred_ranks(epoch), last_ranks).mean()))
    return Consistency(np.array(shares), np.array(correlations), chance, int(counted.sum()))


@dataclass(frozen=True)
class Agreement:
    """How well residual labels and test errors agree; None where there is nothing to compare."""

    overall: float | None  # Spearman's rank correlation over all off-diagonal pairs of classes with errors
    median: float | None  # over those classes, of the correlation within their row
    top1: float | None  # share of classes with errors whose largest residual label is a most frequent error
    classes: int  # how many classes have test errors and a residual label that varies


def agreement(residual_labels: ArrayLike, confusion_counts: ArrayLike) -> Agreement:
    """Compare what training learned to expect with what the test split shows.

    Both are distributions over the wrong classes: the errors of a class are divided by their number. Classes without a
    test error are left out. ``residual_labels`` (K, K); ``confusion_counts`` (K, K) are test examples of the row's
    class predicted as the column's, or means over runs.

    >>> found = agreement([[0, 0.7, 0.3], [0.6, 0, 0.4], [0.2, 0.8, 0]], [[5, 4, 1], [1, 7, 2], [0, 0, 9]])
    >>> round(found.overall, 3), found.median, found.top1, found.classes
    (0.8, 0.0, 0.5, 2)
    """
    q, errors = map(off_diagonal, _both(residual_labels, confusion_counts))  # (K, K−1)
    shares = row_shares(errors)
    wrong = errors.sum(axis=1) > 0
    ranked = wrong & _varies(q)
    usable = ranked & _varies(shares)
    within = _correlation(_centred_ranks(q[usable]), _centred_ranks(shares[usable]))
    every = np.stack([q[wrong].ravel(), shares[wrong].ravel()])
    overall = top1 = None
    if every.shape[1] >= 3 and _varies(every).all():
        overall = float(stats.spearmanr(*every).statistic)
    if ranked.any():
        of_top = np.take_along_axis(errors, q.argmax(axis=1, keepdims=True), axis=1)[:, 0]
        top1 = float((of_top == errors.max(axis=1, initial=0.0))[ranked].mean())
    return Agreement(overall, float(np.median(within)) if usable.any() else None, top1, int(ranked.sum()))


def largest_differences(residual_labels: ArrayLike, confusion_counts: ArrayLike, n: int) -> pd.DataFrame:
    """The n pairs about which residual labels and test errors differ most, as `agreement` takes them.

    Ranked by |expected − errors|, in test examples, so that a class with one error does not lead the list.

    Returns:
        ``true`` and ``taken_for`` (class indices), the ``residual`` label, the ``share`` of the class's errors, and how
        many ``errors`` were ``expected`` if those of the class were divided as its residual label says, and were found.

    >>> largest_differences([[0, 0.7, 0.3], [0.6, 0, 0.4], [0.2, 0.8, 0]], [[5, 4, 1], [1, 7, 2], [0, 0, 9]], 1)
       true  taken_for  residual     share  expected  errors
    0     1          0       0.6  0.333333       1.8     1.0
    """
    residual, counts = _both(residual_labels, confusion_counts)
    expected = counts.sum(axis=1, keepdims=True) * without_diagonal(residual)
    gap = np.abs(expected - counts).ravel()
    first = np.argsort(-gap, kind="stable")[:n]
    cell = np.divmod(first[gap[first] > 0], max(len(counts), 1))
    columns = {"residual": residual, "share": row_shares(counts), "expected": expected, "errors": counts}
    where = {"true": cell[0], "taken_for": cell[1]}
    return pd.DataFrame(where | {name: matrix[cell] for name, matrix in columns.items()})


def _both(residual_labels: ArrayLike, confusion_counts: ArrayLike) -> tuple[Matrix, Matrix]:
    """Both as (K, K) of the same K, the counts without their diagonal."""
    residual = square(residual_labels, "residual_labels")
    counts = without_diagonal(square(confusion_counts, "confusion_counts"))
    if residual.shape != counts.shape:
        raise ValueError(f"residual_labels has shape {residual.shape} and confusion_counts {counts.shape}.")
    return residual, counts


def _varies(rows: Matrix) -> NDArray[np.bool_]:
    """Which rows (…, M) hold more than one value."""
    return np.asarray(rows.max(axis=-1, initial=-np.inf) > rows.min(axis=-1, initial=np.inf))


def _centred_ranks(rows: Matrix) -> Matrix:
    """Ranks 1 … M of each row (…, M), ties shared, less their mean."""
    return np.asarray(stats.rankdata(rows, axis=-1) - (rows.shape[-1] + 1) / 2)


def _correlation(first: Matrix, second: Matrix) -> Matrix:
    """Correlation of centred rows; 0 where one of the two does not vary."""
    scale = np.sqrt((first**2).sum(axis=-1) * (second**2).sum(axis=-1))
    products = (first * second).sum(axis=-1)
    return np.asarray(np.divide(products, scale, out=np.zeros_like(products), where=scale > 0))

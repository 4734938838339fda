"""Shares, an order of the classes, groups and one-way pairs, from one confusion matrix.

Shapes: K classes. Row k of a matrix is the true class k, column j what it is taken for.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from adaptive_labels.lab.analysis.statistics import holm

Matrix = NDArray[np.float64]

OPTIMAL_UP_TO = 512  # classes whose leaves are ordered optimally: 0.9 s there, 9 s for 1,000 classes
LEAST = 0.05  # the smallest threshold of a group
LIFT = 2.0  # a group's threshold is this many times the odds of chance


def square(matrix: ArrayLike, name: str = "matrix", *, stacked: bool = False) -> Matrix:
    """``matrix`` as (K, K) float64, or (…, K, K) if ``stacked``; a ValueError names the argument."""
    values = np.asarray(matrix, dtype=np.float64)
    if values.ndim < 2 or values.shape[-1] != values.shape[-2] or (values.ndim > 2 and not stacked):
        raise ValueError(f"{name} has shape {values.shape}; it must {'end in' if stacked else 'be'} (K, K).")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise ValueError(f"{name} holds a negative or non-finite value; confusions and labels have none.")
    return values


def row_shares(matrix: Matrix) -> Matrix:
    """Every row divided by its sum; rows of zeros stay zeros."""
    totals = matrix.sum(axis=-1, keepdims=True)
    shares: Matrix = np.divide(matrix, totals, out=np.zeros_like(matrix), where=totals > 0)
    return shares


def without_diagonal(matrix: Matrix) -> Matrix:
    """A copy of (K, K) with zeros on the diagonal."""
    copy = matrix.copy()
    np.fill_diagonal(copy, 0.0)
    return copy


def off_diagonal(matrix: Matrix) -> Matrix:
    """(…, K, K) → (…, K, K−1): the diagonal erased, as in the residual correlation matrix S."""
    size = matrix.shape[-1]
    off_diagonal = matrix[..., ~np.eye(size, dtype=bool)]  # (…, K·(K−1))
    return off_diagonal.reshape(*matrix.shape[:-2], size, max(size - 1, 0))


def order_by_similarity(matrix: ArrayLike) -> NDArray[np.intp]:
    """(K,) an order of the classes that puts together what is confused, by hierarchical clustering.

    Two classes are as similar as they are confused: with r the rows as shares, s_ij = (r_ij + r_ji) / 2. Clusters are
    merged by average linkage of max s − s. Up to `OPTIMAL_UP_TO` classes, the order has the smallest sum of distances
    between neighbours that the tree allows, which takes too long for more. An order and its reverse are equally good:
    the one that begins with the lower class index is returned, so that the same matrix always gives the same order.

    ``matrix`` (K, K) holds confusion counts or residual labels; its diagonal counts in the sum of its row only.

    >>> order_by_similarity([[0, 0, 9, 1], [0, 0, 1, 9], [9, 1, 0, 0], [1, 9, 0, 0]]).tolist()
    [0, 2, 1, 3]
    """
    shares = without_diagonal(row_shares(square(matrix)))
    size = len(shares)
    if size < 3:
        return np.arange(size)
    similar = (shares + shares.T) / 2
    condensed = squareform(without_diagonal(similar.max() - similar), checks=False)
    tree = hierarchy.linkage(condensed, method="average")
    if size <= OPTIMAL_UP_TO:
        tree = hierarchy.optimal_leaf_ordering(tree, condensed)
    order = np.asarray(hierarchy.leaves_list(tree), dtype=np.intp)
    return order if order[0] < order[-1] else order[::-1].copy()


@dataclass(frozen=True)
class ConfusedGroup:
    """Classes of which every two are confused with each other: candidates for merging, or for more data."""

    members: tuple[int, ...]  # class indices, rising
    mass: float  # how much the members are taken for each other, in the matrix's unit (examples, for counts)
    within: float  # the same as a share of all that the members are taken for: what merging them would put right
    weakest: float  # the smallest min(r_ij, r_ji) of two members


def group_threshold(matrix: ArrayLike, least: float = LEAST) -> float:
    """The mutual confusion from which two classes belong together: ``least``, or `LIFT` times the odds of chance.

    Chance c is the mean off-diagonal share: 1 / (K − 1) for residual labels, the error rate / (K − 1) for test counts.
    The threshold is max(least, LIFT · c / (1 + (LIFT − 1) · c)), which stays below 1 for any number of classes.

    >>> round(group_threshold(1 - np.eye(5)), 3)  # chance is 1/4, its odds 1 : 3, twice that is 2 : 3
    0.4
    """
    shares = without_diagonal(row_shares(square(matrix)))
    size = len(shares)
    chance = shares.sum() / (size * (size - 1)) if size > 1 else 0.0
    return float(max(least, LIFT * chance / (1 + (LIFT - 1) * chance)))


def confused_groups(matrix: ArrayLike, *, threshold: float | None = None, least: float = LEAST) -> list[ConfusedGroup]:
    """Sets of classes in which every two are confused with each other, most confusion first.

    With r the rows as shares (the diagonal included), two classes are mutually confused by m_ij = min(r_ij, r_ji): a
    class that is taken for another without the reverse is no candidate for merging. Complete linkage over 1 − m joins
    classes as long as every two of the set have m_ij ≥ threshold, so that a chain of neighbours does not become one
    set. Every class is in one set at most. The threshold is `group_threshold` with ``least`` unless given. ``matrix``
    (K, K) holds confusion counts or residual labels.

    >>> counts = [[8, 2, 0, 0], [3, 7, 0, 0], [5, 0, 5, 0], [0, 0, 0, 9]]
    >>> confused_groups(counts, threshold=0.1)
    [ConfusedGroup(members=(0, 1), mass=5.0, within=1.0, weakest=0.2)]
    """
    values = square(matrix)
    if len(values) < 3:
        return []
    least_mutual = group_threshold(values, least) if threshold is None else threshold
    shares, others = without_diagonal(row_shares(values)), without_diagonal(values)
    mutual = np.minimum(shares, shares.T)
    tree = hierarchy.linkage(squareform(without_diagonal(1.0 - mutual), checks=False), method="complete")
    member_of = hierarchy.fcluster(tree, t=1.0 - least_mutual + 1e-9, criterion="distance")
    groups = []
    for cluster in np.flatnonzero(np.bincount(member_of) > 1):
        members = np.flatnonzero(member_of == cluster)
        inside = np.ix_(members, members)
        weakest = float(mutual[inside][np.triu_indices(len(members), 1)].min())
        if weakest > 0:  # so that the members are taken for each other
            mass, taken = float(others[inside].sum()), float(others[members].sum())
            groups.append(ConfusedGroup(tuple(members.tolist()), mass, mass / taken, weakest))
    return sorted(groups, key=lambda group: (-group.mass, group.members))


def asymmetric_pairs(counts: ArrayLike) -> pd.DataFrame:
    """Pairs that are confused more in one direction than in the other, smallest p first.

    If i were taken for j at the same rate as j for i, then of the n = C_ij + C_ji confusions C_ij would be binomial
    with N_i / (N_i + N_j), N the number of examples of a class. The test is exact; it takes the confusions as
    independent, which those of several runs on one test split are not. Pairs confused at equal rates are left out.

    ``counts`` (K, K) has the diagonal too; fractions, as in means over runs, are rounded.

    Returns:
        ``true`` and ``taken_for`` (class indices), ``errors`` and ``rate`` (share of the class's examples) with their
        ``reverse_…``, and ``p`` with ``p_holm``, which is corrected over all pairs with a confusion.

    >>> pairs = asymmetric_pairs([[20, 9, 1], [1, 29, 0], [1, 0, 29]])
    >>> pairs.head(1)[["true", "taken_for", "errors", "p_holm"]].round(3)
       true  taken_for  errors  p_holm
    0     0          1       9   0.043
    """
    values = np.rint(square(counts, "counts"))
    totals, errors = values.sum(axis=1), without_diagonal(values)
    test = cache(stats.binomtest)  # many pairs of 1,000 classes have the same counts
    rows = []
    for i, j in np.argwhere(np.triu(errors + errors.T, 1)).tolist():
        # A class without test examples cannot be taken for another, nor show that it is not.
        if totals[i] == 0 or totals[j] == 0:
            continue
        a, b = (i, j) if errors[i, j] / totals[i] >= errors[j, i] / totals[j] else (j, i)
        there, back = int(errors[a, b]), int(errors[b, a])
        p = float(test(there, there + back, float(totals[a] / (totals[a] + totals[b]))).pvalue)
        rows.append((a, b, there, back, there / totals[a], back / totals[b], p))
    columns = ["true", "taken_for", "errors", "reverse_errors", "rate", "reverse_rate", "p"]
    pairs = pd.DataFrame(rows, columns=columns)
    pairs["p_holm"] = holm(pairs["p"].tolist())
    pairs["gap"] = pairs["reverse_rate"] - pairs["rate"]
    return pairs[pairs["gap"] < 0].sort_values(["p", "gap", *columns[:2]]).drop(columns="gap").reset_index(drop=True)

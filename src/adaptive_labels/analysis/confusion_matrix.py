"""What can be read from one confusion matrix: shares, an order of the classes, groups and one-way pairs.

Shapes: K classes. Row k of a matrix is the true class k, column j what it is taken for.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from adaptive_labels.analysis.statistics import holm

Matrix = NDArray[np.float64]


def square(matrix: ArrayLike, name: str = "matrix") -> Matrix:
    """``matrix`` as (K, K) float64, or a ValueError that names the argument."""
    values = np.asarray(matrix, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise ValueError(f"{name} has shape {values.shape}; it must be (K, K).")
    return non_negative(values, name)


def non_negative(values: Matrix, name: str) -> Matrix:
    """``values`` themselves, unless one is negative, NaN or infinite."""
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise ValueError(f"{name} holds a negative or non-finite value; confusions and labels have none.")
    return values


def row_shares(matrix: Matrix) -> Matrix:
    """Every row divided by its sum; rows of zeros stay zeros.

    >>> row_shares(np.array([[3.0, 1.0], [0.0, 0.0]])).tolist()
    [[0.75, 0.25], [0.0, 0.0]]
    """
    totals = matrix.sum(axis=-1, keepdims=True)
    shares: Matrix = np.divide(matrix, totals, out=np.zeros_like(matrix), where=totals > 0)
    return shares


def without_diagonal(matrix: Matrix) -> Matrix:
    """A copy with zeros on the diagonal; (…, K, K).

    >>> without_diagonal(np.array([[3.0, 1.0], [2.0, 5.0]])).tolist()
    [[0.0, 1.0], [2.0, 0.0]]
    """
    copy = matrix.copy()
    diagonal = np.arange(matrix.shape[-1])
    copy[..., diagonal, diagonal] = 0.0
    return copy


def off_diagonal(matrix: Matrix) -> Matrix:
    """(…, K, K) → (…, K, K−1): the diagonal erased, as in the residual correlation matrix S.

    >>> off_diagonal(np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 4.0], [5.0, 6.0, 0.0]])).tolist()
    [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    """
    size = matrix.shape[-1]
    kept = matrix[..., ~np.eye(size, dtype=bool)]  # (…, K·(K−1))
    return kept.reshape(*matrix.shape[:-2], size, max(size - 1, 0))


OPTIMAL_UP_TO = 512
"""Classes up to which the leaves are ordered optimally: 0.9 s there, and 9 s at 1,000 classes."""


def order_by_similarity(matrix: ArrayLike) -> NDArray[np.intp]:
    """A permutation of the classes that puts together what is confused, by hierarchical clustering.

    Two classes are as similar as they are confused: with r the rows as shares, s_ij = (r_ij + r_ji) / 2. Clusters are
    merged by average linkage of max s − s. Up to `OPTIMAL_UP_TO` classes the leaves stand in the order with the
    smallest sum of distances between neighbours that the tree allows; above that, each merge puts the two closest
    ends together. The same matrix always gives the same order; of an order and its reverse, the one that begins with
    the lower class is given.

    Args:
        matrix: (K, K) confusion counts or residual labels, not negative. The diagonal is part of a row's sum (the
            share of a class that is confused at all), and does not count otherwise.

    Returns:
        (K,) ``matrix[np.ix_(order, order)]`` is the matrix in the new order.

    >>> order_by_similarity([[0, 0, 9, 1], [0, 0, 1, 9], [9, 1, 0, 0], [1, 9, 0, 0]]).tolist()
    [0, 2, 1, 3]
    """
    shares = without_diagonal(row_shares(square(matrix)))
    size = len(shares)
    if size < 3:
        return np.arange(size)
    similar = (shares + shares.T) / 2
    distance = similar.max() - similar
    np.fill_diagonal(distance, 0.0)
    condensed = squareform(distance, checks=False)
    tree = hierarchy.linkage(condensed, method="average")
    if size <= OPTIMAL_UP_TO:
        order = np.asarray(hierarchy.leaves_list(hierarchy.optimal_leaf_ordering(tree, condensed)), dtype=np.intp)
    else:
        order = _closest_ends(tree, distance)
    return order if order[0] < order[-1] else order[::-1].copy()


def _closest_ends(tree: Matrix, distance: Matrix) -> NDArray[np.intp]:
    """The leaves of a linkage, each merge turned so that the closest of the clusters' ends touch."""
    clusters: dict[int, list[int]] = {leaf: [leaf] for leaf in range(len(distance))}
    for number, (first, second) in enumerate(tree[:, :2].astype(int), start=len(distance)):
        left, right = clusters.pop(first), clusters.pop(second)
        turns = [(left, right), (left, right[::-1]), (left[::-1], right), (left[::-1], right[::-1])]
        begin, end = min(turns, key=lambda pair: distance[pair[0][-1], pair[1][0]])
        clusters[number] = begin + end
    (order,) = clusters.values()
    return np.array(order, dtype=np.intp)


LEAST = 0.05
LIFT = 2.0


@dataclass(frozen=True)
class ConfusedGroup:
    """Classes of which every two are confused with each other: candidates for merging, or for more data.

    Attributes:
        members: class indices, rising.
        mass: how much the members are taken for each other, in the matrix's unit (examples, for counts).
        within: the same as a share of all that the members are taken for: what merging them would put right.
        total: the sum of the members' rows (their examples, for counts).
        weakest: the smallest min(r_ij, r_ji) of two members.
    """

    members: tuple[int, ...]
    mass: float
    within: float
    total: float
    weakest: float

    @property
    def size(self) -> int:
        """The number of classes."""
        return len(self.members)


def group_threshold(matrix: ArrayLike, *, least: float = LEAST, lift: float = LIFT) -> float:
    """The mutual confusion from which two classes belong together: ``least``, or ``lift`` times the odds of chance.

    Chance c is the mean off-diagonal share: 1 / (K − 1) for residual labels, the error rate / (K − 1) for test counts.
    The threshold is max(least, lift · c / (1 + (lift − 1) · c)), which stays below 1 however few classes there are.

    >>> round(group_threshold(1 - np.eye(5), lift=3.0), 3)  # chance is 1/4, odds 1 : 3, three times that is 1 : 1
    0.5
    """
    shares = without_diagonal(row_shares(square(matrix)))
    size = len(shares)
    chance = shares.sum() / (size * (size - 1)) if size > 1 else 0.0
    return float(max(least, lift * chance / (1 + (lift - 1) * chance)))


def confused_groups(
    matrix: ArrayLike, *, threshold: float | None = None, least: float = LEAST, lift: float = LIFT
) -> list[ConfusedGroup]:
    """Sets of classes in which every two are confused with each other, most confusion first.

    With r the rows as shares (the diagonal included), two classes are mutually confused by m_ij = min(r_ij, r_ji): a
    class that is taken for another without the reverse is no candidate for merging. Complete linkage over 1 − m joins
    classes as long as every two of the set have m_ij ≥ threshold, so that a chain of neighbours does not become one
    set; every class is in one set at most.

    Args:
        matrix: (K, K) confusion counts or residual labels.
        threshold: see `group_threshold` for what it is unless given.
        least: the smallest threshold that chance may lead to.
        lift: how many times the odds of chance.

    >>> counts = [[8, 2, 0, 0], [3, 7, 0, 0], [5, 0, 5, 0], [0, 0, 0, 9]]
    >>> confused_groups(counts, threshold=0.1)
    [ConfusedGroup(members=(0, 1), mass=5.0, within=1.0, total=20.0, weakest=0.2)]
    """
    values = square(matrix)
    size = len(values)
    if size < 3:
        return []
    least_mutual = group_threshold(values, least=least, lift=lift) if threshold is None else threshold
    shares = without_diagonal(row_shares(values))
    mutual = np.minimum(shares, shares.T)
    apart = 1.0 - mutual
    np.fill_diagonal(apart, 0.0)
    tree = hierarchy.linkage(squareform(apart, checks=False), method="complete")
    member_of = hierarchy.fcluster(tree, t=1.0 - least_mutual + 1e-9, criterion="distance")
    groups = [_group(np.flatnonzero(member_of == cluster), values, mutual) for cluster in np.unique(member_of)]
    real = [group for group in groups if group.size > 1 and group.weakest > 0]
    return sorted(real, key=lambda group: (-group.mass, group.members))


def _group(members: np.ndarray, values: Matrix, mutual: Matrix) -> ConfusedGroup:
    inside, others = np.ix_(members, members), without_diagonal(values)
    mass, taken = float(others[inside].sum()), float(others[members].sum())
    pairs = mutual[inside][np.triu_indices(len(members), 1)]
    return ConfusedGroup(
        members=tuple(int(i) for i in members),
        mass=mass,
        within=mass / taken if taken > 0 else 0.0,
        total=float(values[members].sum()),
        weakest=float(pairs.min()) if pairs.size else 0.0,
    )


@dataclass(frozen=True)
class AsymmetricPair:
    """Class ``true`` is taken for ``taken_for`` at a higher rate than the reverse; both are class indices.

    Attributes:
        count: examples of ``true`` predicted as ``taken_for``.
        reverse: examples of ``taken_for`` predicted as ``true``.
        rate: ``count`` as a share of the examples of ``true``.
        reverse_rate: ``reverse`` as a share of the examples of ``taken_for``.
        p: two-sided p value of the binomial test that both rates are the same.
        p_holm: the same after Holm's correction over all pairs with a confusion in either direction.
    """

    true: int
    taken_for: int
    count: int
    reverse: int
    rate: float
    reverse_rate: float
    p: float
    p_holm: float


def asymmetric_pairs(counts: ArrayLike, top: int | None = None) -> list[AsymmetricPair]:
    """Pairs that are confused more in one direction than in the other, smallest p first.

    If i were taken for j at the same rate as j for i, then of the n = C_ij + C_ji confusions C_ij would be binomial
    with N_i / (N_i + N_j), N the number of examples of a class. The test is exact; it takes the confusions as
    independent, which those of several runs on one test split are not.

    Args:
        counts: (K, K) confusion counts of one run, diagonal included. Fractions, as in means over runs, are rounded.
        top: how many pairs to give; all by default. Pairs confused at equal rates are left out.

    >>> first = asymmetric_pairs([[20, 9, 1], [1, 29, 0], [1, 0, 29]])[0]
    >>> (first.true, first.taken_for, first.count, first.reverse), round(first.p, 4), round(first.p_holm, 4)
    ((0, 1, 9, 1), 0.0215, 0.043)
    """
    values = np.rint(square(counts, "counts"))
    totals, errors = values.sum(axis=1), without_diagonal(values)
    first, second = np.nonzero(np.triu(errors + errors.T, 1))
    found, ps = [], []
    for i, j in zip(first.tolist(), second.tolist(), strict=True):
        # A class without test examples cannot be taken for another, nor show that it is not.
        if totals[i] == 0 or totals[j] == 0:
            continue
        rates = errors[i, j] / totals[i], errors[j, i] / totals[j]
        a, b = (i, j) if rates[0] >= rates[1] else (j, i)
        share = totals[a] / (totals[a] + totals[b])
        test = stats.binomtest(int(errors[a, b]), int(errors[a, b] + errors[b, a]), float(share))
        ps.append(float(test.pvalue))
        found.append((a, b, int(errors[a, b]), int(errors[b, a]), float(max(rates)), float(min(rates)), ps[-1]))
    corrected = holm(ps)
    pairs = [AsymmetricPair(*pair, p_holm=p or 0.0) for pair, p in zip(found, corrected, strict=True)]
    uneven = [pair for pair in pairs if pair.rate > pair.reverse_rate]
    uneven.sort(key=lambda pair: (pair.p, pair.reverse_rate - pair.rate, pair.true, pair.taken_for))
    return uneven[:top]

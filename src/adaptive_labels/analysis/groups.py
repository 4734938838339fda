"""Sets of classes that are confused with each other, and pairs that are confused in one direction only.

Shapes: K classes. Row k of a matrix is the true class k, column j what it is taken for.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from adaptive_labels.analysis.matrices import Matrix, row_shares, square, without_diagonal
from adaptive_labels.analysis.statistics import holm

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

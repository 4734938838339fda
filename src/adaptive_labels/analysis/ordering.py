"""Orders of the classes in which confused ones are neighbours.

Shapes: K classes. Row k of a matrix is the true class k, column j what it is taken for.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from adaptive_labels.analysis.matrices import Matrix, row_shares, square, without_diagonal

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

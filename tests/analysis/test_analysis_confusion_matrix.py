import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from adaptive_labels.lab.analysis import confusion_matrix
from adaptive_labels.lab.analysis.confusion_matrix import (
    asymmetric_pairs,
    confused_groups,
    group_threshold,
    order_by_similarity,
)


@pytest.mark.parametrize("size", [12, 60])
@pytest.mark.parametrize("optimal", [True, False])
def test_classes_confused_within_hidden_blocks_stand_together(
    size: int, optimal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not optimal:
        monkeypatch.setattr(confusion_matrix, "OPTIMAL_UP_TO", 3)
    draw = np.random.default_rng(size)
    member_of = draw.permutation(np.repeat(np.arange(size // 4), 4))
    matrix = (member_of[:, None] == member_of) * draw.uniform(0.3, 1.0, (size, size)) + 0.01 * draw.random((size, size))
    np.fill_diagonal(matrix, 0.0)
    order = order_by_similarity(matrix)
    assert sorted(order) == list(range(size))
    assert len(list(itertools.groupby(member_of[order]))) == size // 4


def test_rows_count_by_their_shares_and_the_diagonal_as_right() -> None:
    # Class 0 has a hundred times the examples; by counts it would seem closest to class 2.
    counts = np.array([[9700.0, 0, 300, 0], [0, 50, 0, 50], [10, 0, 90, 0], [0, 40, 0, 60]])
    order = order_by_similarity(counts).tolist()
    assert abs(order.index(1) - order.index(3)) == 1
    assert abs(order.index(0) - order.index(2)) == 1


@pytest.mark.parametrize("matrix", [np.zeros((0, 0)), [[0]], [[0, 1], [1, 0]], np.zeros((40, 40)), np.eye(3)])
def test_every_class_is_in_the_order_even_if_there_is_none_or_no_confusion(matrix: object) -> None:
    assert sorted(order_by_similarity(matrix)) == list(range(len(np.array(matrix))))


@given(st.integers(3, 9), st.integers(0, 10_000))
def test_always_the_same_permutation_that_begins_low(size: int, seed: int) -> None:
    matrix = np.random.default_rng(seed).integers(0, 3, (size, size))
    order = order_by_similarity(matrix)
    assert sorted(order) == list(range(size))
    assert order[0] < order[-1]
    assert order.tolist() == order_by_similarity(matrix.copy()).tolist()


def test_bad_matrices() -> None:
    with pytest.raises(ValueError, match=r"matrix has shape \(2, 3\); it must be \(K, K\)"):
        order_by_similarity(np.zeros((2, 3)))
    for bad in (np.nan, -1):
        with pytest.raises(ValueError, match="matrix holds a negative or non-finite value"):
            order_by_similarity([[0, bad], [1, 0]])


#                   a    b   c   d   e
COUNTS = np.array([
    [70, 12, 18, 0, 0],
    [20, 70, 10, 0, 0],
    [15, 25, 60, 0, 0],
    [30, 0, 0, 70, 0],  # d is taken for a, but a never for d
    [0, 0, 0, 0, 200],
])  # fmt: skip


def test_groups_by_hand() -> None:
    (group,) = confused_groups(COUNTS, threshold=0.1)
    assert group.members == (0, 1, 2)
    assert (group.mass, group.within) == (100, 1.0)
    assert group.weakest == pytest.approx(0.10)  # b for c
    assert [pair.members for pair in confused_groups(COUNTS)] == [(0, 2)]  # the threshold is 0.122 here
    (pair,) = confused_groups(COUNTS, threshold=0.15)
    assert pair.members == (0, 2)
    assert pair.mass == 33
    assert pair.within == pytest.approx(33 / 70)  # of the 30 errors of a and the 40 of c
    assert confused_groups(COUNTS, threshold=0.2) == []


def test_the_threshold_follows_chance() -> None:
    uniform = (1 - np.eye(11)) / 10
    assert group_threshold(uniform) == pytest.approx(2 * 0.1 / (1 + 0.1))
    assert confused_groups(uniform) == []
    many = (1 - np.eye(1001)) / 1000
    assert group_threshold(many) == 0.05
    assert group_threshold(COUNTS) == pytest.approx(2 * 0.065 / 1.065)  # errors .3 .3 .4 .3 0, each over 4


@given(st.integers(3, 9), st.integers(0, 10_000), st.floats(0.01, 0.5))
def test_every_two_of_a_group_are_confused_with_each_other(size: int, seed: int, threshold: float) -> None:
    matrix = np.random.default_rng(seed).gamma(0.5, size=(size, size))
    shares = matrix / matrix.sum(axis=1, keepdims=True)
    groups = confused_groups(matrix, threshold=threshold)
    members = [member for group in groups for member in group.members]
    assert len(members) == len(set(members))
    for group in groups:
        mutual = [min(shares[i, j], shares[j, i]) for i, j in itertools.combinations(group.members, 2)]
        assert min(mutual) == pytest.approx(group.weakest)
        assert group.weakest >= threshold - 1e-8
    assert [group.mass for group in groups] == sorted((group.mass for group in groups), reverse=True)


def test_a_chain_of_neighbours_is_not_one_group() -> None:
    matrix = np.eye(8, k=1) + np.eye(8, k=-1) + 10 * np.eye(8)
    assert {len(group.members) for group in confused_groups(matrix, threshold=0.01)} == {2}


@pytest.mark.parametrize("matrix", [[[3.0]], [[1, 1], [1, 1]], np.zeros((4, 4)), np.eye(4)])
def test_nothing_to_group(matrix: object) -> None:
    assert confused_groups(matrix) == []
    assert confused_groups(matrix, threshold=0.0) == []


def rows(counts: object) -> list[tuple[object, ...]]:
    return [tuple(row) for row in asymmetric_pairs(counts).itertuples(index=False)]


def test_asymmetric_pairs_are_scipys_binomial_test() -> None:
    first, second, *_ = rows(COUNTS)
    p = stats.binomtest(30, 30, 0.5).pvalue
    # d for a, 30 to none; four pairs were tested: a-b, a-c, b-c and a-d
    assert first == (3, 0, 30, 0, 0.3, 0.0, pytest.approx(p), pytest.approx(4 * p))
    assert second[:3] == (2, 1, 25)
    assert second[6] == pytest.approx(stats.binomtest(25, 35, 0.5).pvalue)


def test_asymmetry_is_of_rates_not_of_counts() -> None:
    # 20 of 200 against 20 of 40: more than twice as many classes' worth of errors the other way.
    (pair,) = rows([[180, 20], [20, 20]])
    assert pair[:6] == (1, 0, 20, 20, 0.5, 0.1)
    assert pair[6] == pytest.approx(stats.binomtest(20, 40, 40 / 240).pvalue)
    assert rows([[180, 20], [4, 36]]) == []  # 10% both ways


def test_classes_without_examples_and_fractions() -> None:
    assert rows([[5, 5], [0, 0]]) == rows(np.eye(3)) == []
    (pair,) = rows([[10, 8.7], [0.3, 19]])
    assert pair[2:4] == (9, 0)
    with pytest.raises(ValueError, match="counts holds a negative"):
        asymmetric_pairs([[1, -1], [0, 1]])

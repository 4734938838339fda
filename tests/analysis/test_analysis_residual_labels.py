import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from adaptive_labels.lab.analysis.confusion_matrix import off_diagonal
from adaptive_labels.lab.analysis.residual_labels import (
    agreement,
    consistency,
    largest_differences,
    row_entropy,
    top_confusions,
)


def random_labels(size: int, seed: int, *leading: int) -> np.ndarray:
    values = np.random.default_rng(seed).gamma(0.3, size=(*leading, size, size)) + 1e-6
    values[..., np.arange(size), np.arange(size)] = 0.0
    return np.asarray(values / values.sum(axis=-1, keepdims=True))


@given(st.integers(2, 12), st.integers(0, 1000))
def test_entropy_is_scipys(size: int, seed: int) -> None:
    labels = random_labels(size, seed, 3)
    expected = stats.entropy(labels, axis=-1)
    np.testing.assert_allclose(row_entropy(labels), expected, atol=1e-9)
    if size > 2:
        normalised = row_entropy(labels, normalised=True)
        np.testing.assert_allclose(normalised, expected / np.log(size - 1), atol=1e-9)
        assert normalised.shape == (3, size)


def test_entropy_at_its_ends() -> None:
    uniform = (1 - np.eye(5)) / 4
    np.testing.assert_allclose(row_entropy(uniform), np.log(4))
    np.testing.assert_allclose(row_entropy(uniform.astype(np.float32), normalised=True), 1.0, atol=1e-6)
    assert row_entropy(np.roll(np.eye(5), 1, axis=1)).tolist() == [0.0] * 5
    assert row_entropy([[0, 1], [1, 0]], normalised=True).tolist() == [0.0, 0.0]


def test_what_was_not_kept_of_a_row_is_spread_over_the_rest() -> None:
    size, kept = 9, 3
    uniform = (1 - np.eye(size)) / (size - 1)
    cut = np.where(np.cumsum(uniform > 0, axis=1) <= kept, uniform, 0.0)
    np.testing.assert_allclose(row_entropy(cut, normalised=True), 1.0)
    row = np.zeros((size, size))
    row[:, 0], row[0, 0], row[0, 1] = 0.6, 0.0, 0.6
    expected = stats.entropy([0.6, *[0.4 / 7] * 7])
    np.testing.assert_allclose(row_entropy(row), expected)
    one_left = np.array([[0, 0.5, 0.3, 0], [0.5, 0, 0.3, 0], [0.5, 0.3, 0, 0], [0.5, 0.3, 0, 0]])
    np.testing.assert_allclose(row_entropy(one_left), stats.entropy([0.5, 0.3, 0.2]))


def test_what_is_no_distribution_or_no_epoch_is_refused() -> None:
    with pytest.raises(ValueError, match=r"labels_over_epochs has shape \(3, 3\); it must be \(E, K, K\)"):
        consistency(np.zeros((3, 3)))
    with pytest.raises(ValueError, match="labels has a row that sums to 3; it must hold probabilities"):
        row_entropy([[0, 3], [1, 0]])
    with pytest.raises(ValueError, match=r"labels has shape \(3,\); it must end in \(K, K\)"):
        row_entropy([0.1, 0.2, 0.7])


def test_top_confusions_leave_the_diagonal_out_and_prefer_the_lower_index() -> None:
    counts = np.array([[90, 3, 7, 0], [5, 80, 5, 10], [0, 0, 50, 0], [1, 2, 3, 0]])
    indices, values = top_confusions(counts, 2)
    assert indices.tolist() == [[2, 1], [3, 0], [0, 1], [2, 1]]
    assert values.tolist() == [[7, 3], [10, 5], [0, 0], [3, 2]]
    over_epochs, _ = top_confusions(np.stack([counts, counts[::-1, ::-1]]), 1)
    assert over_epochs.shape == (2, 4, 1)
    with pytest.raises(ValueError, match="n is 4; with 4 classes it must be between 1 and 3"):
        top_confusions(counts, 4)


def test_consistency_by_hand_and_by_scipy() -> None:
    labels = random_labels(7, 1, 4)
    found = consistency(labels)
    rows = off_diagonal(labels)
    for epoch in range(4):
        same = np.mean([row.argmax() == last.argmax() for row, last in zip(rows[epoch], rows[3], strict=True)])
        rho = np.mean([stats.spearmanr(rows[epoch, k], rows[3, k]).statistic for k in range(7)])
        assert found.top_share[epoch] == pytest.approx(same)
        assert found.correlation[epoch] == pytest.approx(rho)
    assert (found.top_share[-1], found.correlation[-1]) == (1.0, pytest.approx(1.0))
    assert (found.chance, found.classes) == (1 / 6, 7)


def test_consistency_of_rows_that_do_not_vary() -> None:
    uniform = (1 - np.eye(4)) / 3
    late = random_labels(4, 0)
    late[2] = uniform[2]  # a class that was never seen
    found = consistency([uniform, late])
    assert found.classes == 3
    assert found.top_share.tolist() == [0.0, 1.0]  # the start knows nothing, whatever argmax makes of it
    assert found.correlation.tolist() == [0.0, pytest.approx(1.0)]
    nothing = consistency([uniform, uniform])
    assert (nothing.classes, nothing.top_share.tolist()) == (0, [0.0, 0.0])
    two = consistency([[[0, 1], [1, 0]]])
    assert (two.classes, two.chance) == (0, 1.0)


def test_agreement_is_scipys_overall_and_within_rows() -> None:
    generator = np.random.default_rng(3)
    residual = random_labels(8, 3)
    counts = generator.poisson(20 * residual) + 50 * np.eye(8, dtype=int)
    counts[4] = 0
    counts[4, 4] = 9  # no error, so nothing is known of it
    found = agreement(residual, counts)
    rows, errors = off_diagonal(residual), off_diagonal(counts.astype(float))
    with_errors = [k for k in range(8) if k != 4]
    shares = errors[with_errors] / errors[with_errors].sum(axis=1, keepdims=True)
    expected = stats.spearmanr(rows[with_errors].ravel(), shares.ravel()).statistic
    assert found.overall == pytest.approx(expected)
    within = [stats.spearmanr(rows[k], errors[k]).statistic for k in with_errors]
    assert found.median == pytest.approx(np.median(within))
    hits = [errors[k, rows[k].argmax()] == errors[k].max() for k in with_errors]
    assert found.top1 == pytest.approx(np.mean(hits))
    assert found.classes == 7


def test_the_largest_differences_are_counted_in_examples() -> None:
    residual = np.array([[0, 0.9, 0.1], [0.5, 0, 0.5], [0.5, 0.5, 0]])
    counts = np.array([[60, 10, 30], [0, 99, 1], [0, 0, 5]])
    found = largest_differences(residual, counts, 2)
    assert list(zip(found["true"], found["taken_for"], strict=True)) == [(0, 1), (0, 2)]
    first = found.iloc[0]
    assert (first.residual, first.share, first.expected, first.errors) == (0.9, 0.25, pytest.approx(36), 10)


def test_agreement_where_there_is_nothing_to_compare() -> None:
    perfect = agreement(random_labels(4, 0), np.eye(4))
    assert (perfect.overall, perfect.median, perfect.top1, perfect.classes) == (None, None, None, 0)
    assert largest_differences(random_labels(4, 0), np.eye(4), 9).empty
    uniform = agreement((1 - np.eye(4)) / 3, np.ones((4, 4)))
    assert (uniform.overall, uniform.top1) == (None, None)
    single = agreement([[0.0]], [[3.0]])
    assert (single.overall, single.top1, single.classes) == (None, None, 0)
    with pytest.raises(ValueError, match=r"residual_labels has shape \(4, 4\) and confusion_counts \(3, 3\)"):
        agreement(random_labels(4, 0), np.eye(3))

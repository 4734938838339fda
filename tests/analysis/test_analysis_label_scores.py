import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.special import log_softmax, softmax

from adaptive_labels.lab.analysis.suspects import (
    EVEN_SHARE,
    SCORES,
    average_precision,
    label_scores,
    mean_residual_labels,
    suggested_labels,
)

LOGITS = np.array([[2.0, 1.0, -1.0, 0.0], [0.5, 3.0, 0.0, 2.5], [-1.0, 0.0, 4.0, 1.0]])
LABELS = np.array([1, 3, 2])
RESIDUAL = np.array([[0, 0.5, 0.3, 0.2], [0.7, 0, 0.2, 0.1], [0.1, 0.1, 0, 0.8], [0.05, 0.05, 0.9, 0]])


def test_scores_one_by_one() -> None:
    """The formulas again, an example and a class at a time."""
    found = label_scores(LOGITS, LABELS, RESIDUAL)
    assert found.keys() == SCORES.keys()
    log_p = log_softmax(LOGITS, axis=1)
    for n, y in enumerate(LABELS):
        gaps = {j: log_p[n, j] - log_p[n, y] for j in range(4) if j != y}
        lifts = {j: np.log((1 - EVEN_SHARE) * 3 * RESIDUAL[y, j] + EVEN_SHARE) for j in gaps}
        assert found["loss"][n] == pytest.approx(-log_p[n, y])
        assert found["margin"][n] == pytest.approx(max(gaps.values()))
        assert found["residual"][n] == pytest.approx(max(gaps[j] - lifts[j] for j in gaps))
        assert suggested_labels(LOGITS, LABELS)[n] == max(gaps, key=gaps.get)


@given(st.integers(2, 6), st.integers(0, 1000))
def test_an_even_residual_label_changes_nothing(size: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    logits, labels = generator.normal(size=(20, size)), generator.integers(0, size, 20)
    found = label_scores(logits, labels, (1 - np.eye(size)) / (size - 1))
    np.testing.assert_allclose(found["residual"], found["margin"], atol=1e-9)


def test_a_plausible_mistake_is_less_suspicious() -> None:
    logits = np.log([[0.2, 0.7, 0.1], [0.2, 0.1, 0.7]])
    often_one = [[0, 0.9, 0.1], [0.5, 0, 0.5], [0.5, 0.5, 0]]
    first, second = label_scores(logits, [0, 0], often_one)["residual"]
    assert first < second
    kept = label_scores(logits, [0, 0], [[0, 0, 1], [1, 0, 0], [1, 0, 0]])["residual"]  # 0 is not impossible
    assert np.isfinite(kept).all()


def test_the_mean_stands_in_where_nothing_was_learned() -> None:
    generator = np.random.default_rng(0)
    logits, labels = generator.normal(size=(50, 4)), generator.integers(0, 3, 50)  # no example of class 3
    p = softmax(logits, axis=1)
    means = mean_residual_labels(logits, labels)
    for k in range(3):
        others = p[labels == k].copy()
        others[:, k] = 0
        np.testing.assert_allclose(means[k], (others / others.sum(axis=1, keepdims=True)).mean(axis=0))
    np.testing.assert_allclose(means[3], [1 / 3, 1 / 3, 1 / 3, 0])
    without = label_scores(logits, labels)
    np.testing.assert_array_equal(without["residual"], label_scores(logits, labels, means)["residual"])


def test_very_sure_networks_give_finite_scores() -> None:
    found = label_scores([[5000.0, 0.0, 0.0], [0.0, 5000.0, 0.0]], [0, 0])
    assert all(np.isfinite(values).all() for values in found.values())
    assert all(values[1] > values[0] for values in found.values())


def test_the_residual_score_finds_evenly_wrong_labels_better_than_the_loss() -> None:
    """Classes 2i and 2i + 1 look alike, and a tenth of the labels is drawn anew, as the derivation assumes."""
    generator = np.random.default_rng(0)
    size, count = 20, 4000
    true = generator.integers(0, size, count)
    wrong = generator.random(count) < 0.1
    labels = np.where(wrong, (true + generator.integers(1, size, count)) % size, true)
    twin = generator.random(count) < 0.5  # half of the examples look like the other of the two
    looks = np.where(twin, true ^ 1, true)
    logits = generator.normal(size=(count, size))
    logits[np.arange(count), looks] += 4
    found = label_scores(logits, labels)
    area = {name: average_precision(values, wrong) for name, values in found.items()}
    assert area["residual"] > area["margin"] + 0.1
    assert area["residual"] > area["loss"] + 0.1


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match=r"logits has shape \(3, 4\) and labels \(2,\)"):
        label_scores(LOGITS, [0, 1])
    with pytest.raises(ValueError, match="labels must be within 0 and 3"):
        label_scores(LOGITS, [0, 1, 4])
    with pytest.raises(ValueError, match="logits holds NaN or infinity"):
        label_scores(np.full((1, 2), np.inf), [0])
    with pytest.raises(ValueError, match=r"residual_labels has shape \(2, 2\); logits of 4 classes need \(4, 4\)"):
        label_scores(LOGITS, LABELS, np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"need \(N, K\), K ≥ 2"):
        suggested_labels([[1.0]], [0])

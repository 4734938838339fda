from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from adaptive_labels.analysis.selective import confidence_and_correct, risk_coverage
from adaptive_labels.metrics import aurc


def test_a_curve_by_hand() -> None:
    # Sorted by confidence: wrong, then two that tie with one error between them, then right.
    curve = risk_coverage([0.5, 0.5, 0.9, 0.1], [True, False, False, True])
    np.testing.assert_allclose(curve.risk, [1, 1.5 / 2, 2 / 3, 2 / 4])
    assert curve.coverage.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert curve.threshold.tolist() == [0.9, 0.5, 0.5, 0.1]
    assert curve.area == pytest.approx(np.mean([1, 0.75, 2 / 3, 0.5]))
    assert curve.risk_at(0.5) == 0.75
    assert curve.risk_at(0.51) == pytest.approx(2 / 3)
    assert curve.risk_at(1.0) == 0.5


@given(st.integers(1, 60), st.integers(2, 6), st.integers(0, 10_000))
def test_the_area_is_that_of_the_metrics(examples: int, classes: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(examples, classes))
    logits = logits[generator.integers(0, examples, 2 * examples)]  # equal rows tie in confidence, not in being right
    labels = generator.integers(0, classes, 2 * examples)
    found = risk_coverage(*confidence_and_correct(logits, labels)).area
    assert found == pytest.approx(aurc(torch.from_numpy(logits), torch.from_numpy(labels)), abs=1e-12)


def test_the_area_of_a_stored_run(maker: Any) -> None:
    run = maker.whole("alr", 0, classes=["a", "b", "c"])
    stored = run.load_predictions()
    curve = risk_coverage(*confidence_and_correct(stored.test_logits, stored.test_labels))
    expected = aurc(torch.from_numpy(stored.test_logits), torch.from_numpy(stored.test_labels))
    assert curve.area == pytest.approx(expected, abs=1e-12)
    assert curve.risk[-1] == pytest.approx(1 - run.result["metrics"]["test"]["top1"])


def test_thinning_keeps_the_ends_and_the_area() -> None:
    generator = np.random.default_rng(0)
    curve = risk_coverage(generator.random(5000), generator.random(5000) < 0.8)
    thin = curve.thin(101)
    assert len(thin.coverage) == len(thin.risk) == len(thin.threshold) == 101
    assert (thin.coverage[0], thin.coverage[-1], thin.area) == (1 / 5000, 1.0, curve.area)
    assert set(zip(thin.coverage, thin.risk, strict=True)) <= set(zip(curve.coverage, curve.risk, strict=True))
    assert curve.thin(5000) is curve
    with pytest.raises(ValueError, match="points is 1; it must be at least 2"):
        curve.thin(1)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match=r"confidence has shape \(2,\) and correct \(1,\)"):
        risk_coverage([0.1, 0.2], [True])
    with pytest.raises(ValueError, match=r"both must be \(N,\), N ≥ 1"):
        risk_coverage([], [])
    with pytest.raises(ValueError, match="confidence holds NaN"):
        risk_coverage([np.nan], [True])
    with pytest.raises(ValueError, match="coverage is 0; it must be above 0"):
        risk_coverage([0.5], [True]).risk_at(0)

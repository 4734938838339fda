"""What is gained by leaving out the predictions that are least sure: the risk–coverage curve.

Shapes: N examples.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class RiskCoverage:
    """The error rate of the most confident predictions, by how many are kept.

    Attributes:
        coverage: (N,) share of the examples kept, 1/N … 1.
        risk: (N,) share of them that are wrong.
        threshold: (N,) the least confidence among them.
        area: the mean risk over all N coverages, which is `metrics.aurc`; thinning does not change it.
    """

    coverage: Vector
    risk: Vector
    threshold: Vector
    area: float

    def thin(self, points: int = 200) -> "RiskCoverage":
        """The curve with at most ``points`` points, evenly spread, the first and the last among them."""
        if points < 2:
            raise ValueError(f"points is {points}; it must be at least 2.")
        if len(self.coverage) <= points:
            return self
        kept = np.unique(np.linspace(0, len(self.coverage) - 1, points).round().astype(np.int64))
        return RiskCoverage(self.coverage[kept], self.risk[kept], self.threshold[kept], self.area)

    def risk_at(self, coverage: float) -> float:
        """The risk of the least number of examples that is at least this share of all."""
        if not 0 < coverage <= 1:
            raise ValueError(f"coverage is {coverage}; it must be above 0 and at most 1.")
        return float(self.risk[np.searchsorted(self.coverage, coverage - 1e-12)])


def risk_coverage(confidence: ArrayLike, correct: ArrayLike) -> RiskCoverage:
    """The risk–coverage curve: risk_i = (errors among the i most confident) / i at coverage i / N.

    Examples of equal confidence share their mean error, which is what a random order of them gives on average.

    Args:
        confidence: (N,) how sure each prediction is, usually its largest probability.
        correct: (N,) whether it is right.

    >>> curve = risk_coverage([0.9, 0.6, 0.8, 0.7], [True, False, True, True])
    >>> curve.coverage.tolist(), curve.risk.tolist(), curve.area
    ([0.25, 0.5, 0.75, 1.0], [0.0, 0.0, 0.0, 0.25], 0.0625)
    """
    sure, right = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if sure.ndim != 1 or sure.shape != right.shape or not sure.size:
        raise ValueError(f"confidence has shape {sure.shape} and correct {right.shape}; both must be (N,), N ≥ 1.")
    if not np.isfinite(sure).all():
        raise ValueError("confidence holds NaN or infinity.")
    levels, level_of, count = np.unique(sure, return_inverse=True, return_counts=True)  # levels rise
    shared = np.bincount(level_of, weights=1.0 - right, minlength=len(levels)) / count
    wrong = np.repeat(shared, count)[::-1]
    kept = np.arange(1, len(wrong) + 1)
    risk = wrong.cumsum() / kept
    return RiskCoverage(kept / len(wrong), risk, np.repeat(levels, count)[::-1].copy(), float(risk.mean()))


def confidence_and_correct(logits: ArrayLike, labels: ArrayLike) -> tuple[Vector, NDArray[np.bool_]]:
    """From stored predictions: (N,) the largest probability of each row, and whether that class is the label.

    >>> confidence, correct = confidence_and_correct(np.log([[0.8, 0.2], [0.3, 0.7]]), [0, 0])
    >>> confidence.round(6).tolist(), correct.tolist()
    ([0.8, 0.7], [True, False])
    """
    scores = np.asarray(logits, dtype=np.float64)
    shifted = scores - scores.max(axis=1, keepdims=True)
    confidence = 1.0 / np.exp(shifted).sum(axis=1)
    return confidence, np.asarray(scores.argmax(axis=1) == np.asarray(labels))

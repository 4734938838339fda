"""How far confidence can be believed, from stored predictions.

Shapes: N examples, K classes, B bins of equal width.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

BINS = 15


@dataclass(frozen=True)
class Reliability:
    """Mean confidence and accuracy in bins of equal width; empty bins are 0 in all three.

    Attributes:
        count: (B,) examples.
        confidence: (B,) mean probability of the predicted class.
        accuracy: (B,) share of right predictions.
    """

    count: NDArray[np.int64]
    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]

    @property
    def ece(self) -> float:
        """Expected calibration error: the gap between confidence and accuracy, weighted by the counts; 0 for none."""
        if not self.count.any():
            return 0.0
        return float(np.average(np.abs(self.confidence - self.accuracy), weights=self.count))


def reliability(logits: ArrayLike, labels: ArrayLike, bins: int = BINS) -> Reliability:
    """Bin the predictions by confidence: bin b holds the confidences in (b/B, (b+1)/B].

    >>> reliability(np.log([[0.8, 0.2], [0.7, 0.3]]), [0, 1], bins=2).accuracy.tolist()
    [0.0, 0.5]
    """
    scores: NDArray[Any] = np.asarray(logits, dtype=np.float64)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    confidence = weights.max(axis=1) / weights.sum(axis=1)
    right = scores.argmax(axis=1) == np.asarray(labels)
    place = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    divisor = np.maximum(count, 1)
    return Reliability(
        count,
        np.bincount(place, weights=confidence, minlength=bins) / divisor,
        np.bincount(place, weights=right.astype(np.float64), minlength=bins) / divisor,
    )

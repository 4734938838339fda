"""How suspicious a label is, given what a trained network says of the example.

Shapes: N examples, K classes. p is the softmax of the logits, y the label an example has, and q_y the residual label of
class y: what y is taken for.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax, logsumexp

from adaptive_labels.analysis.matrices import Matrix, square

Vector = NDArray[np.float64]
SCORES: Mapping[str, str] = {
    "residual": "log p_j / p_y over how often y is mistaken for j, for the best j ≠ y",
    "margin": "log p_j / p_y for the best j ≠ y",
    "loss": "−log p_y",
}
"""The rankings by name, each in a line."""

EVEN_SHARE = 0.1
"""The share of a residual label that is spread evenly, so that no class is an impossible mistake."""


def label_scores(logits: ArrayLike, labels: ArrayLike, residual_labels: ArrayLike | None = None) -> dict[str, Vector]:
    """How suspicious each label is, by every ranking of `SCORES`; larger is more suspicious.

    A network that is sure of another class j has met a wrong label, or a right one that is easily mistaken. Say that a
    share of the labels is wrong, each wrong label as likely as another; then the odds that an example labelled y is
    truly of class j, against being a y that is taken for j, are, up to a constant,

        p_j / p_y  ·  (1 / (K − 1)) / q_y(j)

    The logarithm of this, for the best j, is the score ``residual``: it forgives what the class is often mistaken
    for. Without q_y it is ``margin``, and ``loss`` compares y with all other classes at once.

    Args:
        logits: (N, K) of the examples.
        labels: (N,) the labels they have.
        residual_labels: (K, K) as training left them; estimated by `mean_residual_labels` if None.

    Returns:
        (N,) scores by name.

    >>> scores = label_scores(np.log([[0.3, 0.6, 0.1], [0.3, 0.1, 0.6]]), [0, 0], [[0, 0.8, 0.2], [1, 0, 0], [1, 0, 0]])
    >>> {name: values.round(2).tolist() for name, values in scores.items()}  # both alike, but 0 is often taken for 1
    {'residual': [0.26, 1.47], 'margin': [0.69, 0.69], 'loss': [1.2, 1.2]}
    """
    log_p, given = _log_probabilities(logits, labels)
    own, others = _split(log_p, given)
    size = log_p.shape[1]
    q = mean_residual_labels(logits, labels) if residual_labels is None else square(residual_labels, "residual_labels")
    if q.shape != (size, size):
        raise ValueError(f"residual_labels has shape {q.shape}; logits of {size} classes need {(size, size)}.")
    lift = np.log((1 - EVEN_SHARE) * q * (size - 1) + EVEN_SHARE)  # (K, K): 0 for an even spread
    return {
        "residual": (others - lift[given]).max(axis=1) - own,
        "margin": others.max(axis=1) - own,
        "loss": -own,
    }


def suggested_labels(logits: ArrayLike, labels: ArrayLike) -> NDArray[np.intp]:
    """(N,) the most probable class beside the label each example has; the lower one of equals.

    >>> suggested_labels(np.log([[0.3, 0.6, 0.1], [0.3, 0.6, 0.1]]), [0, 1]).tolist()
    [1, 0]
    """
    _, others = _split(*_log_probabilities(logits, labels))
    return np.asarray(others.argmax(axis=1))


def mean_residual_labels(logits: ArrayLike, labels: ArrayLike) -> Matrix:
    """(K, K) what residual labels would become if training went on: for each class, the mean over its examples.

    Row y is the mean of p_j / (1 − p_y) over the examples labelled y, 0 on the diagonal; even for a class without any.
    It stands in for residual labels where the method learned none.

    >>> mean_residual_labels(np.log([[0.5, 0.4, 0.1], [0.8, 0.1, 0.1]]), [0, 0]).round(2).tolist()
    [[0.0, 0.65, 0.35], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]]
    """
    log_p, given = _log_probabilities(logits, labels)
    size = log_p.shape[1]
    _, others = _split(log_p, given)
    p_res = np.exp(others - logsumexp(others, axis=1, keepdims=True))  # (N, K)
    means = (1 - np.eye(size)) / (size - 1)
    for k in np.unique(given):
        means[k] = p_res[given == k].mean(axis=0)
    return np.asarray(means)


def _log_probabilities(logits: ArrayLike, labels: ArrayLike) -> tuple[Matrix, NDArray[np.int64]]:
    scores, given = np.asarray(logits, dtype=np.float64), np.asarray(labels, dtype=np.int64)
    if scores.ndim != 2 or given.shape != scores.shape[:1] or scores.shape[1] < 2:
        raise ValueError(f"logits has shape {scores.shape} and labels {given.shape}; need (N, K), K ≥ 2, and (N,).")
    if not np.isfinite(scores).all():
        raise ValueError("logits holds NaN or infinity.")
    if given.size and not 0 <= given.min() <= given.max() < scores.shape[1]:
        raise ValueError(f"labels must be within 0 and {scores.shape[1] - 1}.")
    return np.asarray(log_softmax(scores, axis=1)), given


def _split(log_p: Matrix, labels: NDArray[np.int64]) -> tuple[Vector, Matrix]:
    """The label's own log p (N,), and all log p with the label's set to −∞ (N, K)."""
    rows = np.arange(len(labels))
    others = log_p.copy()
    others[rows, labels] = -np.inf
    return log_p[rows, labels], others

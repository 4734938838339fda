"""How good a ranking of suspects is, where the truth is known.

Shapes: N examples.
"""

import numpy as np
from numpy.typing import ArrayLike


def average_precision(scores: ArrayLike, wrong: ArrayLike) -> float:
    """The area under the precision–recall curve of a ranking, as average precision.

    AP = Σ_n (R_n − R_{n−1}) P_n over the distinct scores, largest first: P_n and R_n are precision and recall of
    everything with at least that score, so that equal scores count as one step whatever their order. 1 is a perfect
    ranking; a random one has the share of wrong labels, on average.

    Args:
        scores: (N,) larger is more suspicious.
        wrong: (N,) whether the label is wrong; at least one must be.

    >>> average_precision([0.9, 0.8, 0.7, 0.1], [True, False, True, False])  # 1/2 · 1 + 1/2 · 2/3
    0.8333333333333333
    """
    values, truth = np.asarray(scores, dtype=np.float64), np.asarray(wrong, dtype=bool)
    if values.ndim != 1 or values.shape != truth.shape:
        raise ValueError(f"scores has shape {values.shape} and wrong {truth.shape}; both must be (N,).")
    if np.isnan(values).any():
        raise ValueError("scores holds NaN.")
    if not truth.any():
        raise ValueError("wrong names no example; a ranking cannot be judged without one.")
    order = np.argsort(-values, kind="stable")
    values, found = values[order], np.cumsum(truth[order])
    last = np.flatnonzero(np.append(values[1:] != values[:-1], True))  # the last place of each score
    precision, recall = found[last] / (last + 1), found[last] / found[-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))


def precision_at(scores: ArrayLike, wrong: ArrayLike, top: int) -> float:
    """The share of wrong labels among the ``top`` most suspicious examples; equal scores in their given order.

    >>> precision_at([0.9, 0.8, 0.7, 0.1], [True, False, True, False], 3)
    0.6666666666666666
    """
    truth = np.asarray(wrong, dtype=bool)
    if not 1 <= top <= len(truth):
        raise ValueError(f"top is {top}; with {len(truth)} examples it must be between 1 and {len(truth)}.")
    return float(truth[np.argsort(-np.asarray(scores, dtype=np.float64), kind="stable")[:top]].mean())

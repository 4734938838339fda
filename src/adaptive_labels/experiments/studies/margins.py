"""What a trained network does to the classes it confuses, from its test logits.

N examples, K classes; z are logits, y labels. The logits' scale is taken out by dividing by their standard deviation
over all entries, so that a more confident network does not look like one that separates better.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def describe_margins(logits: NDArray[Any], labels: NDArray[np.int64]) -> dict[str, float]:
    """Margins, and where the probability of the wrong classes goes.

    * ``rival_margin``: mean of z_y − max of the others: how far the nearest rival is behind.
    * ``confused_margin``: mean of z_y − z_c with c the class that y is most confused with (by mean residual
      probability over the class); ``other_margin``: z_y minus the mean of all others.
    * ``residual_entropy``: of the class means of p_res, over log(K − 1): 1 if a class's other probability goes
      everywhere alike.
    * ``errors_to_confused``: the share of all errors that go to the class's most confused one.

    >>> z = np.array([[3.0, 1.0, 0.0], [2.0, 3.0, 0.0], [0.0, 0.0, 3.0]])
    >>> {k: round(v, 3) for k, v in describe_margins(z, np.array([0, 1, 2])).items()}["errors_to_confused"]
    0.0
    """
    z = np.asarray(logits, dtype=np.float64)
    n, classes = z.shape
    if classes < 3 or n == 0:
        return {}
    z = z / max(float(z.std()), 1e-12)
    rows = np.arange(n)
    own = z[rows, labels]
    others = np.asarray(logits, dtype=np.float64).copy()
    others[rows, labels] = -np.inf
    p_res = np.exp(others - others.max(1, keepdims=True))
    p_res /= p_res.sum(1, keepdims=True)
    sums = np.zeros((classes, classes))
    np.add.at(sums, labels, p_res)
    counts = np.bincount(labels, minlength=classes)
    seen = counts > 0
    means = sums[seen] / counts[seen, None]
    entropy = -(means * np.log(np.maximum(means, 1e-300))).sum(1).mean() / np.log(classes - 1)
    confused = np.where(seen, sums.argmax(1), 0)[labels]
    hidden = z.copy()
    hidden[rows, labels] = -np.inf
    rival = hidden.max(1)
    predicted = z.argmax(1)
    wrong = predicted != labels
    return {
        "rival_margin": float((own - rival).mean()),
        "confused_margin": float((own - z[rows, confused]).mean()),
        "other_margin": float((own - (z.sum(1) - own) / (classes - 1)).mean()),
        "residual_entropy": float(entropy),
        "errors_to_confused": float((predicted[wrong] == confused[wrong]).mean()) if wrong.any() else 0.0,
    }

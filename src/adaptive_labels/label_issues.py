"""Labels that look wrong: which, how many, and with what probability. numpy only.

The names and shapes are cleanlab's, so that one import is swapped::

    from adaptive_labels.label_issues import find_label_issues, get_label_quality_scores

Shapes: N examples, K classes, D features. ``labels`` (N,) are the given labels y, 0 … K − 1. ``pred_probs`` (N, K) are
probabilities by models that did not see the example (cross-validation); ``features`` (N, D) are any embedding of the
examples, in which equal classes are near. `docs/suspects.md` compares the scores with cleanlab's.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

NEIGHBOURS = 100  # fewer where classes have fewer examples
_NEARNESS = 4  # the power of the cosine similarity with which a neighbour votes
_PRIOR_VOTES = 4.0  # votes of the class frequencies beside those of the neighbours
_EQUAL = 1 - 1e-5  # the cosine similarity above which two examples are the same one
_POOL = 50_000  # of more examples, neighbours are looked for among so many
_ROWS = 512  # whose similarities are in memory together
_EVEN = 1e-3  # spread over all classes, so that no logarithm is infinite
_STEPS = 20


def get_label_quality_scores(labels: ArrayLike, pred_probs: ArrayLike, features: ArrayLike | None = None) -> Array:
    r"""How well each label fits: (N,) from 0 to 1, and the lower, the more likely the label is wrong.

    With p the consensus of ``pred_probs`` and the neighbours in ``features`` (`consensus`, `neighbour_probs`), it is
    :math:`p_y / (p_y + \max_{j \ne y} p_j)`: below ½ where another class fits better.

    >>> get_label_quality_scores([0, 0], [[0.6, 0.3, 0.1], [0.1, 0.8, 0.1]]).round(2).tolist()
    [0.67, 0.11]
    """
    given, p = _judged(labels, pred_probs, features)
    return _sigmoid(-log_margins(given, p))


def find_label_issues(
    labels: ArrayLike,
    pred_probs: ArrayLike,
    features: ArrayLike | None = None,
    return_indices_ranked_by: str | None = None,
) -> NDArray[np.bool_] | NDArray[np.intp]:
    """The examples whose label is probably wrong: as many of the lowest scores as `num_label_issues` estimates.

    Args:
        labels: (N,).
        pred_probs: (N, K), out of sample.
        features: (N, D); neighbours in them are asked as well.
        return_indices_ranked_by: None returns a mask, (N,). ``"label_quality"`` returns indices, worst first;
            ``"self_confidence"`` and ``"normalized_margin"`` order the same indices by p_y and by p_y − max_{j≠y} p_j
            of ``pred_probs``.
    """
    given, p = _judged(labels, pred_probs, features)
    rows, own_view = np.arange(len(given)), np.array(pred_probs, dtype=np.float64)
    scores = {"label_quality": -log_margins(given, p), "self_confidence": own_view[rows, given]}
    own_view[rows, given] = -np.inf
    scores["normalized_margin"] = scores["self_confidence"] - own_view.max(axis=1)
    if return_indices_ranked_by not in (None, *scores):
        raise ValueError(
            f"return_indices_ranked_by is {return_indices_ranked_by!r}; it must be None or one of {', '.join(scores)}."
        )
    count = round(float(_wrong(given, p).sum()))
    worst = np.argsort(scores["label_quality"], kind="stable")[:count]
    if return_indices_ranked_by is None:
        mask = np.zeros(len(given), dtype=bool)
        mask[worst] = True
        return mask
    return np.asarray(worst[np.argsort(scores[return_indices_ranked_by][worst], kind="stable")])


def num_label_issues(labels: ArrayLike, pred_probs: ArrayLike, features: ArrayLike | None = None) -> int:
    """An estimate of how many labels are wrong: the sum of `probabilities_wrong`, rounded."""
    return round(float(probabilities_wrong(labels, pred_probs, features).sum()))


def probabilities_wrong(labels: ArrayLike, pred_probs: ArrayLike, features: ArrayLike | None = None) -> Array:
    r"""The probability that each label is wrong, (N,).

    Probabilities learned from noisy labels are of noisy labels: :math:`p = q T`, where :math:`q_k` is the probability
    that k is the true class and :math:`T_{kj}` how often a true k is labelled j. T comes from `confident_joint`, and q
    from p by the steps :math:`q_k \leftarrow q_k \sum_j T_{kj} p_j / (qT)_j` (EM). Then a label y is right with
    probability :math:`q_y T_{yy} / (qT)_y`. That counts too few where people's errors can be predicted, and the
    off-diagonal of the confident joint too many where they cannot: the odds are shifted so that the sum is their mean.
    """
    return _wrong(*_judged(labels, pred_probs, features))


def consensus(*probs: Array) -> Array:
    """The geometric mean of probabilities by several judges, each (N, K): (N, K).

    >>> consensus(np.array([[0.5, 0.5]]), np.array([[0.9, 0.1]])).round(2).tolist()
    [[0.75, 0.25]]
    """
    size = probs[0].shape[1]
    return _softmax(np.mean([np.log((1 - _EVEN) * p + _EVEN / size) for p in probs], axis=0))


def neighbour_probs(
    labels: ArrayLike, features: ArrayLike, num_classes: int, among: NDArray[np.int64] | None = None
) -> Array:
    """The classes of the nearest other examples, as probabilities (N, K).

    Up to 100 neighbours by cosine similarity s, after the mean is taken away, vote with s⁴; the class frequencies have
    4 votes. Equal examples are no neighbours of each other. With ``among`` (indices) only these vote.

    >>> neighbour_probs([0, 0, 1, 1], [[1, 0], [1, 0.1], [-1, 0], [-1, 0.1]], 2).round(1).tolist()
    [[0.7, 0.3], [0.7, 0.3], [0.3, 0.7], [0.3, 0.7]]
    """
    given, x = np.asarray(labels, dtype=np.int64), np.array(features, dtype=np.float32)
    if x.ndim != 2 or given.shape != x.shape[:1]:
        raise ValueError(f"features has shape {x.shape}; labels {given.shape} need (N, D).")
    if not np.isfinite(x).all():
        raise ValueError("features holds NaN or infinity.")
    x -= x.mean(axis=0)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    pool = np.arange(len(x)) if among is None else among
    if len(pool) > _POOL:
        pool = np.random.default_rng(0).choice(pool, _POOL, replace=False)
    others, their = x[pool], given[pool]
    frequencies = np.bincount(their, minlength=num_classes) / max(len(pool), 1)
    count = min(NEIGHBOURS, -(-len(x) // num_classes), len(pool))
    votes = np.zeros((len(x), num_classes))
    for start in range(0, len(x), _ROWS):
        near = x[start : start + _ROWS] @ others.T  # (n, pool)
        near[near > _EQUAL] = 0.0
        chosen = np.argpartition(-near, count - 1, axis=1)[:, :count]  # (n, count)
        weight = np.take_along_axis(near, chosen, axis=1).clip(0).astype(np.float64) ** _NEARNESS
        cells = np.arange(len(near))[:, None] * num_classes + their[chosen]
        cast = np.bincount(cells.ravel(), weight.ravel(), minlength=len(near) * num_classes)
        votes[start : start + _ROWS] = cast.reshape(len(near), num_classes)
    total = votes.sum(axis=1, keepdims=True)
    votes *= np.where(total > 0, count / np.maximum(total, 1e-300), 0)
    return np.asarray((votes + _PRIOR_VOTES * frequencies) / (votes.sum(axis=1, keepdims=True) + _PRIOR_VOTES))


def confident_joint(labels: ArrayLike, pred_probs: ArrayLike) -> Array:
    """(K, K) how many examples labelled j (row) are surely a k (column), by confident learning.

    An example is surely a k if p_k reaches its mean over the examples labelled k; of several such classes the most
    probable one counts. The diagonal is at least 1. Northcutt et al., "Confident Learning", 2021.
    """
    given, p = _checked(labels, pred_probs)
    size = p.shape[1]
    thresholds = np.array([p[given == k, k].mean() if (given == k).any() else 2.0 for k in range(size)])
    sure = p >= thresholds - 1e-6
    guess = np.where(sure.sum(axis=1) > 1, p.argmax(axis=1), sure.argmax(axis=1))
    counted = sure.any(axis=1)
    cells = given[counted] * size + guess[counted]
    joint = np.bincount(cells, minlength=size * size).reshape(size, size).astype(np.float64)
    np.fill_diagonal(joint, joint.diagonal().clip(min=1))
    return joint


def log_margins(labels: ArrayLike, pred_probs: ArrayLike) -> Array:
    """(N,) log p_j − log p_y for the best class j ≠ y: the larger, the more suspicious; 0 if both are as probable."""
    given, p = _checked(labels, pred_probs)
    logs, rows = np.log(np.maximum(p, 1e-300)), np.arange(len(given))
    own = logs[rows, given]
    logs[rows, given] = -np.inf
    return np.asarray(logs.max(axis=1) - own)


def calibrated(margins: Array, wrong: Array) -> Array:
    """Probabilities (N,) that rise with ``margins`` and come nearest to those in ``wrong``: a logistic regression.

    Their sum is that of ``wrong``, so that a ranking by other evidence keeps the estimated number.
    """
    x = np.stack([margins, np.ones_like(margins)], axis=1)
    theta = np.array([1.0, 0.0])
    for _ in range(50):
        p = _sigmoid(x @ theta)
        curvature = (x * (p * (1 - p))[:, None]).T @ x + 1e-6 * np.eye(2)
        step = np.linalg.solve(curvature, x.T @ (wrong - p))
        theta += step * min(1.0, 1.0 / max(np.abs(step).max(), 1e-12))
    return _sigmoid(x @ np.maximum(theta, [0.0, -np.inf]))


def _wrong(given: NDArray[np.int64], probs: Array) -> Array:
    size, rows = probs.shape[1], np.arange(len(given))
    joint = confident_joint(given, probs)
    joint *= (np.bincount(given, minlength=size) / joint.sum(axis=1))[:, None]
    channel = joint.T / np.maximum(joint.sum(axis=0), 1e-12)[:, None] + _EVEN / size  # (true, given)
    channel /= channel.sum(axis=1, keepdims=True)
    p = _tempered(given, probs)
    q = np.full_like(p, 1 / size)
    for _ in range(_STEPS):
        q *= (p / (q @ channel)) @ channel.T
    right = q[rows, given] * channel.diagonal()[given] / (q @ channel)[rows, given]
    wrong = np.asarray((1 - right).clip(0, 1))
    return _with_sum(wrong, (wrong.sum() + joint.sum() - joint.trace()) / 2)


def _with_sum(probs: Array, total: float) -> Array:
    """Probabilities whose odds are multiplied by one number, that for which their sum is ``total``."""
    log_odds = np.log(probs.clip(1e-12)) - np.log((1 - probs).clip(1e-12))
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _sigmoid(log_odds + middle).sum() < total else (low, middle)
    return _sigmoid(log_odds + low)


def _tempered(given: NDArray[np.int64], probs: Array) -> Array:
    """The probabilities at the temperature, from ⅓ to 3, at which the given labels are most likely."""
    logs, rows = np.log(np.maximum(probs, 1e-300)), np.arange(len(given))
    best = min(np.geomspace(1 / 3, 3, 25), key=lambda t: -np.log(_softmax(logs / t)[rows, given].clip(1e-300)).mean())
    return _softmax(logs / best)


def _judged(labels: ArrayLike, pred_probs: ArrayLike, features: ArrayLike | None) -> tuple[NDArray[np.int64], Array]:
    given, p = _checked(labels, pred_probs)
    if features is None:
        return given, p
    return given, consensus(p, neighbour_probs(given, features, p.shape[1]))


def _checked(labels: ArrayLike, pred_probs: ArrayLike) -> tuple[NDArray[np.int64], Array]:
    given, p = np.asarray(labels), np.asarray(pred_probs, dtype=np.float64)
    if p.ndim != 2 or given.shape != p.shape[:1] or p.shape[1] < 2:
        raise ValueError(f"pred_probs has shape {p.shape} and labels {given.shape}; need (N, K), K ≥ 2, and (N,).")
    if not np.isfinite(p).all() or (p.size and (p.min() < 0 or p.max() > 1 + 1e-6)):
        raise ValueError("pred_probs must hold probabilities, from 0 to 1.")
    if given.size and not (np.issubdtype(given.dtype, np.integer) and 0 <= given.min() <= given.max() < p.shape[1]):
        raise ValueError(f"labels must be integers from 0 to {p.shape[1] - 1}.")
    return given.astype(np.int64), p


def _softmax(logs: Array) -> Array:
    exponentials = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))

"""Suspects: training examples whose label looks wrong. Their scores, how good a ranking is, and their file.

Shapes: N examples, K classes. p is the softmax of the logits, y the label an example has, and q_y the residual label of
class y: what y is taken for.

`alr suspects RUN -o FILE` writes the file: JSON, an object with the keys of `Suspects`, ``format`` and ``version``. It
is no part of the run's folder, because finished runs never change.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax, logsumexp

from adaptive_labels.lab.analysis.confusion_matrix import Matrix, square
from adaptive_labels.lab.analysis.records import is_number
from adaptive_labels.lab.files import read_json
from adaptive_labels.lab.runs import RunError, write_json

Vector = NDArray[np.float64]
FORMAT, VERSION = "adaptive-labels suspects", 1
EVEN_SHARE = 0.1  # of a residual label, spread evenly, so that no class is an impossible mistake
SCORES: Mapping[str, str] = {
    "residual": "log p_j / p_y over how often y is mistaken for j, for the best j ≠ y",
    "margin": "log p_j / p_y for the best j ≠ y",
    "loss": "−log p_y",
}


def label_scores(logits: ArrayLike, labels: ArrayLike, residual_labels: ArrayLike | None = None) -> dict[str, Vector]:
    """How suspicious each label is, by every ranking of `SCORES`; larger is more suspicious.

    A network that is sure of another class j has met a wrong label, or a right one that is easily mistaken. If wrong
    labels fall on all classes alike, the odds that an example labelled y is truly a j, against being a y that is taken
    for j, are, up to a constant,

        p_j / p_y  ·  (1 / (K − 1)) / q_y(j)

    The logarithm of this, for the best j, is the score ``residual``: it forgives what the class is often mistaken
    for. Without q_y it is ``margin``, and ``loss`` compares y with all other classes at once.

    ``logits`` is (N, K), ``labels`` (N,), and ``residual_labels`` (K, K) as training left them; `mean_residual_labels`
    are used if it is None.

    >>> scores = label_scores(np.log([[0.3, 0.6, 0.1], [0.3, 0.1, 0.6]]), [0, 0], [[0, 0.8, 0.2], [1, 0, 0], [1, 0, 0]])
    >>> {name: values.round(2).tolist() for name, values in scores.items()}  # both alike, but 0 is often taken for 1
    {'residual': [0.26, 1.47], 'margin': [0.69, 0.69], 'loss': [1.2, 1.2]}
    """
    own, others, given = _log_probabilities(logits, labels)
    size = others.shape[1]
    q = _mean_residual_labels(others, given) if residual_labels is None else square(residual_labels, "residual_labels")
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
    return np.asarray(_log_probabilities(logits, labels)[1].argmax(axis=1))


def mean_residual_labels(logits: ArrayLike, labels: ArrayLike) -> Matrix:
    """(K, K) an estimate of the residual labels of a method that learns none, from its predictions.

    Row y is the mean of p_j / (1 − p_y) over the examples labelled y, 0 on the diagonal; even for a class without any.
    Learned residual labels would become this if training went on.

    >>> mean_residual_labels(np.log([[0.5, 0.4, 0.1], [0.8, 0.1, 0.1]]), [0, 0]).round(2).tolist()
    [[0.0, 0.65, 0.35], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]]
    """
    _, others, given = _log_probabilities(logits, labels)
    return _mean_residual_labels(others, given)


def _mean_residual_labels(others: Matrix, given: NDArray[np.int64]) -> Matrix:
    size = others.shape[1]
    p_res = np.exp(others - logsumexp(others, axis=1, keepdims=True))  # (N, K)
    means = (1 - np.eye(size)) / (size - 1)
    for k in np.unique(given):
        means[k] = p_res[given == k].mean(axis=0)
    return np.asarray(means)


def _log_probabilities(logits: ArrayLike, labels: ArrayLike) -> tuple[Vector, Matrix, NDArray[np.int64]]:
    """The label's own log p (N,), all log p with the label's set to −∞ (N, K), and the labels (N,)."""
    scores, given = np.asarray(logits, dtype=np.float64), np.asarray(labels, dtype=np.int64)
    if scores.ndim != 2 or given.shape != scores.shape[:1] or scores.shape[1] < 2:
        raise ValueError(f"logits has shape {scores.shape} and labels {given.shape}; need (N, K), K ≥ 2, and (N,).")
    if not np.isfinite(scores).all():
        raise ValueError("logits holds NaN or infinity.")
    if given.size and not 0 <= given.min() <= given.max() < scores.shape[1]:
        raise ValueError(f"labels must be within 0 and {scores.shape[1] - 1}.")
    others, rows = np.asarray(log_softmax(scores, axis=1)), np.arange(len(given))
    own = others[rows, given]
    others[rows, given] = -np.inf
    return own, others, given


def average_precision(scores: ArrayLike, wrong: ArrayLike) -> float:
    """The area under the precision–recall curve of a ranking, Σ_n (R_n − R_{n−1}) P_n over the distinct scores.

    P_n and R_n are precision and recall of everything with at least the n-th largest score, so that the order of equal
    scores does not matter. 1 is a perfect ranking; a random one has the share of wrong labels, on average.

    ``scores`` (N,) are larger for more suspicious labels; ``wrong`` (N,) says which are wrong, at least one.

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


@dataclass(frozen=True)
class Suspect:
    """One training example whose label looks wrong."""

    rank: int  # 1 is the most suspicious
    index: int  # its place in the training split
    source: str | None  # the file, and for tables the line, it came from, if the data says so
    text: str | None  # None for images
    png: str | None  # a small picture of an image, PNG in base64; None for texts
    label: str  # the label it has
    suggested: str  # the class that the network prefers among the others
    score: float  # how suspicious the label is, by ``Suspects.ranked_by``
    label_probability: float  # what the network gives the label
    suggested_probability: float  # what it gives the suggestion
    true_label: str | None = None  # the label before noise was injected; None where none was


@dataclass(frozen=True)
class Suspects:
    """A ranking of a run's training examples, the most suspicious first."""

    run: str  # the name of the run folder
    dataset: str  # the name or path of the data set
    method: str
    seed: int
    fingerprint: str  # of the data's content
    ranked_by: str  # the name of the ranking
    examples: int  # how many training examples were ranked
    suspects: tuple[Suspect, ...]  # the first of them
    wrong_labels: int | None = None  # how many labels injected noise made wrong; None without it
    average_precision: Mapping[str, float] | None = None  # of each ranking in finding these; None without noise


# What JSON has for types that it does not know.
_JSON_KINDS: dict[Any, Any] = {float: int | float, tuple[Suspect, ...]: list, Mapping[str, float] | None: dict | None}


def write_suspects(suspects: Suspects, path: str | Path) -> None:
    """Write the file that `read_suspects` reads, atomically."""
    write_json(path, suspects_to_dict(suspects))


def suspects_to_dict(suspects: Suspects) -> dict[str, Any]:
    """What the file holds, as plain data."""
    return {"format": FORMAT, "version": VERSION, **asdict(suspects)}


def read_suspects(path: str | Path) -> Suspects:
    """Read what `alr suspects RUN -o FILE` wrote; anything else is a `RunError` that names the file."""
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise RunError(f"{path} holds no suspects; `alr suspects RUN -o FILE` writes such a file.")
    if content.get("version") != VERSION:
        raise RunError(f"{path} has the version {content.get('version')!r}; this program reads version {VERSION}.")
    entries = content.get("suspects")
    if not isinstance(entries, list):
        raise RunError(f"{path} has no list of suspects.")
    numbered = enumerate(entries, start=1)
    suspects = tuple(Suspect(**_checked(entry, Suspect, f"{path}, suspect {number}")) for number, entry in numbered)
    known = {key: value for key, value in content.items() if key not in ("format", "version")}
    return Suspects(**{**_checked(known, Suspects, str(path)), "suspects": suspects})


def _checked(entry: object, kind: type[Any], where: str) -> dict[str, Any]:
    """The values of a dataclass, complete and of the right types: a report must not fail on them later."""
    if not isinstance(entry, dict):
        raise RunError(f"{where} is no JSON object.")
    hints = get_type_hints(kind)
    if entry.keys() != hints.keys():
        wrong = ", ".join(sorted(hints.keys() ^ entry.keys()))
        raise RunError(f"{where} must have the keys {', '.join(sorted(hints))}; missing or too many: {wrong}.")
    for name, hint in hints.items():
        value, allowed = entry[name], _JSON_KINDS.get(hint, hint)
        figures = value.values() if isinstance(value, dict) else ()
        if not isinstance(value, allowed) or isinstance(value, bool) or not all(map(is_number, figures)):
            raise RunError(f"{where} has {value!r} as its {name}.")
    return entry

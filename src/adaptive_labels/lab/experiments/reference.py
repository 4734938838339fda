"""The reference of a comparison: the accuracy of a plain scikit-learn classifier on the same splits, in seconds.

Texts are read as TF-IDF of words and pairs of words, names as that of pieces of words; images as the features of the
frozen encoder, where one is used, or else as small pictures; rows as the numbers that the network reads.

Shapes: N examples, D features, K classes.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from adaptive_labels.lab.config import RunConfig
from adaptive_labels.lab.data import Dataset, Examples, ImageFiles, Progress
from adaptive_labels.lab.data.encoders.embeddings import Pretrained, Vectors
from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.machine import TimeBudget
from adaptive_labels.lab.runs import read_reference, reference_path, write_reference
from adaptive_labels.metrics import evaluate, fit_temperature, nll, top_k_accuracy

SECONDS = 15.0  # after so many no further penalty is tried
LEAST_SECONDS = 0.3  # with less than that there is none
# What training may cost: characters of texts, examples × classes of sparse features, and × features of dense ones.
CHARACTERS, SPARSE, DENSE = 4_000_000, 2_000_000, 1_500_000_000
READ_CHARACTERS = 2_000  # of each text
FEW_WORDS, LOOKED_AT = 3, 1_000  # texts of fewer words, by so many of them, are read in pieces of words
ITERATIONS = 25  # of a fit between two looks at the clock
SIDE = 16  # of the small pictures
_PENALTIES = {"sparse": (1.0, 10.0, 100.0), "dense": (0.001, 0.01, 0.1, 1.0, 10.0)}  # scikit-learn's C
_TEXTS, _OTHERS = "TF-IDF + logistic regression", "logistic regression"

Fitted = tuple[Any, Any, Any]  # features of the three splits, as scikit-learn reads them


def seconds_for(budget: TimeBudget | None) -> float:
    """What fitting may take where the whole comparison has a time budget: a tenth of it, a fifth of what is left."""
    return SECONDS if budget is None else max(0.0, min(SECONDS, budget.seconds / 10, budget.left / 5))


def ensure_reference(
    config: RunConfig, dataset: Dataset, out: Path, seconds: float = SECONDS, progress: Progress | None = None
) -> str | None:
    """Fit the reference of a resolved configuration, unless it lies in ``out``; a sentence if it cannot be had.

    ``progress`` hears how far a pretrained encoder is.
    """
    if isinstance(dataset.train.inputs, ImageFiles):
        return "There is no reference row: the images are too many to be held in memory."
    if seconds < LEAST_SECONDS:
        return "There is no reference row: the time budget has no room for it."
    encoder = build.make_encoder(config, dataset)
    features = config.model.name if dataset.kind == "image" and isinstance(encoder, Pretrained) else None
    path = reference_path(out, config.data, features)
    if read_reference(path) is None:
        try:
            import sklearn  # noqa: F401
        except ImportError:
            return "There is no reference row: scikit-learn is not installed (pip install 'adaptive-labels[lab]')."
        splits = () if dataset.kind == "text" else dataset.splits()
        encoded = [build.encode(encoder, part, progress) for _, part in splits]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_reference(path, _fit(dataset, [one for one in encoded if isinstance(one, Vectors)], seconds))
    return None


def _fit(dataset: Dataset, encoded: Sequence[Vectors], seconds: float) -> dict[str, Any]:
    began = time.perf_counter()
    kept = _affordable(dataset, encoded, min(1.0, seconds / SECONDS))
    train = dataset.train.subset(kept)
    kind = "sparse" if dataset.kind == "text" else "dense"
    if kind == "sparse":
        splits = _tf_idf(train, dataset)
    elif encoded:
        dense = [encoded[0].batch(kept), *(one.batch(torch.arange(len(one))) for one in encoded[1:])]
        splits = _standardised(dense)
    else:
        splits = _standardised([_small(part) for part in (train, dataset.validation, dataset.test)])
    best: tuple[tuple[float, float], Any, float] | None = None
    limits = _PENALTIES[kind], began + seconds, seconds < SECONDS
    for penalty, logits in _candidates(splits, train.labels.numpy(), dataset.num_classes, *limits):
        held_out, labels = logits(splits[1]), dataset.validation.labels
        score = top_k_accuracy(held_out, labels), -nll(held_out, labels)
        if best is None or score > best[0]:
            best = score, [held_out, logits(splits[2])], penalty
    assert best is not None
    validation, test = best[1]
    temperature = fit_temperature(validation, dataset.validation.labels)
    notes = [f"Its penalty, C = {best[2]:g}, is chosen on validation."]
    if len(kept) < len(dataset.train):
        notes.append(
            f"It has seen {len(kept):,} of {len(dataset.train):,} training examples, so that it takes seconds."
        )
    return {
        "name": _TEXTS if kind == "sparse" else _OTHERS,
        "validation": evaluate(validation, dataset.validation.labels, temperature),
        "test": evaluate(test, dataset.test.labels, temperature),
        "test_predicted": test.argmax(axis=1),
        "parameters": {"network": (splits[0].shape[1] + 1) * dataset.num_classes, "criterion": 0},
        "penalty": best[2],
        "examples": len(kept),
        "seconds": time.perf_counter() - began,
        "notes": notes,
    }


def _affordable(dataset: Dataset, encoded: Sequence[Vectors], scale: float) -> Tensor:
    """The training examples that are read: all, or as many of each class as can be afforded, in rising order.

    What can be afforded is multiplied by ``scale``.
    """
    train, count = dataset.train, len(dataset.train) * dataset.num_classes / scale
    if dataset.kind == "text":
        inputs: Any = train.inputs
        characters = 1 + sum(min(len(text), READ_CHARACTERS) for text in inputs)
        share = min(1.0, scale * CHARACTERS / characters, SPARSE / count)
    else:
        width = encoded[0].values.shape[1] if encoded else SIDE * SIDE * 3
        share = min(1.0, DENSE / (count * width))
    if share == 1.0:
        return torch.arange(len(train))
    members = [(train.labels == k).nonzero().flatten() for k in range(dataset.num_classes)]
    return torch.cat([rows[: int(np.ceil(share * len(rows)))] for rows in members]).sort().values


def _tf_idf(train: Examples, dataset: Dataset) -> Fitted:
    from sklearn.feature_extraction.text import TfidfVectorizer

    def read(examples: Examples) -> Iterator[str]:
        texts: Any = examples.inputs
        return (text[:READ_CHARACTERS] for text in texts)

    options = {"sublinear_tf": True, "max_features": 50_000, "dtype": np.float32}
    pieces = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4), **options)
    some = [len(text.split()) for text in islice(read(train), LOOKED_AT)]
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, **options)
    if sum(some) < FEW_WORDS * len(some):  # names and the like
        vectorizer = pieces
    try:
        first = vectorizer.fit_transform(read(train))
    except ValueError:  # no word occurs twice, as in tiny data or texts without spaces
        vectorizer = pieces
        first = vectorizer.fit_transform(read(train))
    return first, vectorizer.transform(read(dataset.validation)), vectorizer.transform(read(dataset.test))


def _small(examples: Examples) -> Tensor:
    """Images as rows of numbers (N, D), at most 16 pixels wide and high."""
    images = examples.inputs
    assert isinstance(images, Tensor)
    height, width = images.shape[2:]
    parts = [
        adaptive_avg_pool2d(part.float(), (min(height, SIDE), min(width, SIDE))) for part in torch.split(images, 4096)
    ]
    return torch.cat(parts).flatten(1)


def _standardised(splits: Sequence[Tensor]) -> Fitted:
    mean, std = splits[0].mean(0), splits[0].std(0, correction=0)
    scale = torch.where(std < 1e-6, 1.0, std)
    first, second, third = (((part - mean) / scale).numpy() for part in splits)
    return first, second, third


def _candidates(
    splits: Fitted,
    labels: NDArray[np.int64],
    classes: int,
    penalties: Sequence[float],
    until: float = math.inf,
    strict: bool = False,
) -> Iterator[tuple[float, Callable[[Any], NDArray[np.float64]]]]:
    """Yield each penalty with what gives the log-probabilities (N, K) of features; each fit starts from the last.

    After ``until`` none is begun but the first; with ``strict`` one that is under way ends with its next iterations.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    present = np.unique(labels)
    solver, iterations = ({"solver": "saga", "tol": 1e-2}, 50) if hasattr(splits[0], "nnz") else ({}, 100)
    at_once = ITERATIONS if strict else iterations
    model = LogisticRegression(warm_start=True, random_state=0, max_iter=at_once, **solver)

    def logits(features: Any) -> NDArray[np.float64]:
        found = np.full((features.shape[0], classes), -100.0)  # of a class that was never seen
        with np.errstate(divide="ignore"):  # a probability that rounds to 0
            found[:, present] = np.maximum(model.predict_log_proba(features), -99.0)
        return found

    for penalty in penalties:
        model.C = penalty
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # what it has reached by then is a reference, too
            for _ in range(iterations // at_once):
                model.fit(splits[0], labels)
                if int(np.max(model.n_iter_)) < at_once or time.perf_counter() > until:
                    break
        yield penalty, logits
        if time.perf_counter() > until:
            break

"""What models that did not see an example say about it: probabilities out of fold, and over one whole training.

Shapes: N examples, K classes, D features.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adaptive_labels.lab.data.cache import cached, hash_of
from adaptive_labels.lab.models.features import FeatureHead
from adaptive_labels.losses import create_loss

Probs = NDArray[np.float64]
Whole = NDArray[np.int64]
Progress = Callable[[int, int], None]

METHOD = "alr"  # `docs/suspects.md` compares it with others
_RATE, _DECAY, _BATCH, _SMALL_BATCH, _FEW = 0.002, 0.01, 128, 32, 2_000
EPOCHS, EPOCHS_OF_FEW, EPOCHS_OF_ALL = 8, 15, 16
_AT_ONCE = 8_192
_KIND = "out-of-fold"


def fold_numbers(labels: Whole, groups: Whole, folds: int) -> Whole:
    """(N,) the fold of each example: all of a group in one fold, and the classes spread evenly over the folds.

    >>> fold_numbers(np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 1, 2, 3, 4]), 2).tolist()
    [0, 1, 1, 0, 0, 1]
    """
    _, first, group = np.unique(groups, return_index=True, return_inverse=True)
    order = np.random.default_rng(0).permutation(len(first))
    order = order[np.argsort(labels[first[order]], kind="stable")]
    fold = np.empty(len(first), dtype=np.int64)
    fold[order] = np.arange(len(first)) % folds
    return np.asarray(fold[group])


def trainings(fold: Whole) -> list[tuple[Whole, Whole]]:
    """(seen, asked) of each training: the other folds, and one; examples of fold −1 are asked, and never seen.

    >>> [(seen.tolist(), asked.tolist()) for seen, asked in trainings(np.array([0, 1, -1]))]
    [([0, 1], [2]), ([1], [0]), ([0], [1])]
    """
    learned = fold >= 0
    return [(np.flatnonzero(learned & (fold != part)), np.flatnonzero(fold == part)) for part in np.unique(fold)]


def stored(depends_on: Any, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """An array that is made once for all that it depends on, and then read from the cache."""
    folder = cached(_KIND, hash_of(depends_on), lambda part: np.save(part / "array.npy", make()))
    return np.asarray(np.load(folder / "array.npy"))


def head_probs(
    features: NDArray[np.float32],
    labels: Whole,
    num_classes: int,
    fold: Whole,
    *,
    key: Any,
    progress: Progress,
    method: str = METHOD,
    options: Any = None,
) -> tuple[Probs, Probs]:
    """A head on features: its probabilities out of fold, and those of one training on all examples; both (N, K).

    Each is the geometric mean over the epochs. What an annotator got wrong is learned late, so that early epochs know
    better, even of examples that the head is trained on.

    Args:
        features: (N, D).
        labels: (N,).
        num_classes: K.
        fold: (N,), as from `fold_numbers`; −1 for examples that are asked, but never trained on.
        key: all that the inputs depend on, as plain data; what was computed with it before is read from the cache.
        progress: is called with the trainings that are done, and how many there are.
        method: the name of the loss.
        options: of the loss.
    """
    x, y = torch.from_numpy(features), torch.from_numpy(labels)
    epochs = EPOCHS if len(labels) >= 5_000 else EPOCHS_OF_FEW
    parts = trainings(fold)
    out_of_fold = np.empty((len(labels), num_classes))
    settings = [key, num_classes, method, options, fold.tolist()]

    def train(seen: Whole, asked: Whole, epochs: int, part: int) -> NDArray[Any]:
        found = stored(
            [*settings, part, epochs], lambda: _mean_log_probs(x, y, num_classes, seen, asked, epochs, method, options)
        )
        progress(part + 1, len(parts) + 1)
        return np.exp(found.astype(np.float64))

    for part, (seen, asked) in enumerate(parts):
        out_of_fold[asked] = train(seen, asked, epochs, part)
    whole = train(np.flatnonzero(fold >= 0), np.arange(len(labels)), EPOCHS_OF_ALL, len(parts))
    return _normalised(out_of_fold), _normalised(whole)


def _mean_log_probs(
    x: Tensor, y: Tensor, num_classes: int, seen: Whole, asked: Whole, epochs: int, method: str, options: Any
) -> NDArray[np.float32]:
    """Train a head on the examples ``seen``; (M, K) the mean over its epochs of log p for those that are ``asked``."""
    with _seeded():
        head, criterion = FeatureHead(num_classes, x.shape[1]), create_loss(method, num_classes, **(options or {}))
        rows, questions = torch.from_numpy(seen), torch.from_numpy(asked)
        head.fit_inputs(x[rows])
        size = _SMALL_BATCH if len(rows) < _FEW else _BATCH
        parameters = [*head.parameters(), *(p for p in criterion.parameters() if p.requires_grad)]
        optimizer = torch.optim.AdamW(parameters, _RATE, weight_decay=_DECAY)
        steps = epochs * -(-len(rows) // size)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=steps + 1)
        total = torch.zeros(len(questions), num_classes)
        for _ in range(epochs):
            head.train()
            criterion.train()
            for batch in rows[torch.randperm(len(rows))].split(size):  # type: ignore[no-untyped-call]
                optimizer.zero_grad()
                criterion(head(x[batch]), y[batch]).backward()
                optimizer.step()
                schedule.step()
            criterion.epoch_end()
            head.eval()
            with torch.no_grad():
                for start in range(0, len(questions), _AT_ONCE):
                    some = questions[start : start + _AT_ONCE]
                    total[start : start + _AT_ONCE] += head(x[some]).log_softmax(1)
    result: NDArray[np.float32] = (total / epochs).numpy()
    return result


@contextmanager
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def text_probs(texts: Sequence[str], labels: Whole, num_classes: int, fold: Whole, *, key: Any) -> Probs:
    """(N, K) out of fold: TF-IDF of words and pairs of words, and logistic regression, both fitted within the fold."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    def make(seen: Whole, asked: Whole) -> NDArray[Any]:
        vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
        found = np.zeros((len(asked), num_classes))
        try:
            known = vectorizer.fit_transform([texts[i] for i in seen])
        except ValueError:  # no word is there twice
            return np.full_like(found, 1 / num_classes)
        with _quiet():
            model = LogisticRegression(C=3, max_iter=25, tol=1e-3).fit(known, labels[seen])
        found[:, model.classes_] = model.predict_proba(vectorizer.transform([texts[i] for i in asked]))
        return found

    result = np.empty((len(labels), num_classes))
    for part, (seen, asked) in enumerate(trainings(fold)):
        result[asked] = stored([key, "tf-idf", num_classes, fold.tolist(), part], partial(make, seen, asked))
    return _normalised(result)


def text_features(texts: Sequence[str], *, key: Any) -> NDArray[np.float32]:
    """(N, at most 200) of texts where no encoder is installed: the main directions of their TF-IDF."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    def make() -> NDArray[Any]:
        vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True, max_features=100_000)
        try:
            known = vectorizer.fit_transform(texts)
        except ValueError:  # all are empty
            return np.zeros((len(texts), 2), np.float32)
        size = min(200, min(known.shape) - 1)
        return np.asarray(TruncatedSVD(size, random_state=0).fit_transform(known), np.float32)

    return stored([key, "text features"], make)


@contextmanager
def _quiet() -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a regression that has not converged yet is good enough
        yield


def _normalised(probs: Probs) -> Probs:
    return np.asarray(probs / probs.sum(axis=1, keepdims=True))

"""The two array files of a run: residual labels over the epochs, and predictions.

Shapes: E stored epochs, K classes, N examples of a split.

``residual_labels.npz`` holds ``epochs`` (E,), ``classes`` (K,) and, up to K = 256, ``labels`` (E, K, K) float32. Above
that it holds the largest 32 of each row instead: ``indices`` (E, K, 32) int32, the columns, largest first, and
``values`` (E, K, 32) float32.

``predictions.npz`` holds ``test_logits`` (N, K) float16, ``test_labels`` (N,), ``validation_logits``,
``validation_labels`` and ``classes`` (K,).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adaptive_labels.lab.files import RunError, read_npz, write_npz

DENSE_CLASSES = 256
KEPT_PER_ROW = 32
# The kind of each array, in numpy's letters, and its shape: a letter is the same length everywhere in a file.
_RESIDUAL_LABELS = {
    "epochs": ("iu", "E"),
    "classes": ("U", "K"),
    "labels": ("f", "EKK"),
    "indices": ("iu", "EKL"),
    "values": ("f", "EKL"),
}
_PREDICTIONS = {
    "test_logits": ("f", "NK"),
    "test_labels": ("iu", "N"),
    "validation_logits": ("f", "MK"),
    "validation_labels": ("iu", "M"),
    "classes": ("U", "K"),
}
_LARGEST = ("indices", "values")
_ROWS_AT_ONCE, _LEAST = 4096, -6e4  # of logits that become float16, and the least of them
_CLASS_NUMBERS = ("indices", "test_labels", "validation_labels")
_PROBABILITIES = ("labels", "values")


@dataclass(frozen=True)
class ResidualLabels:
    """Residual labels at some epochs: dense, or ``indices`` and ``values`` of the largest of each row (see above)."""

    epochs: NDArray[np.int64]
    classes: tuple[str, ...]
    labels: NDArray[np.float32] | None = None
    indices: NDArray[np.int32] | None = None
    values: NDArray[np.float32] | None = None

    def matrix(self, position: int = -1) -> NDArray[np.float32]:
        """The (K, K) matrix of one stored epoch, by its position (the last by default); what was not kept is 0."""
        if self.labels is not None:
            return np.asarray(self.labels[position])
        assert self.indices is not None
        assert self.values is not None
        dense = np.zeros((len(self.classes), len(self.classes)), dtype=np.float32)
        np.put_along_axis(dense, self.indices[position].astype(np.int64), self.values[position], axis=1)
        return dense


@dataclass(frozen=True)
class Predictions:
    """Logits and labels of the test and the validation split, and the names of the classes."""

    test_logits: NDArray[np.floating[Any]]
    test_labels: NDArray[np.int64]
    validation_logits: NDArray[np.floating[Any]]
    validation_labels: NDArray[np.int64]
    classes: tuple[str, ...]


def save_residual_labels(path: Path, epochs: ArrayLike, labels: ArrayLike, classes: Sequence[str]) -> None:
    """Add the (E, K, K) matrices of later epochs to ``residual_labels.npz``, which is made if it is not there."""
    numbers, matrices = np.asarray(epochs, dtype=np.int64), np.asarray(labels, dtype=np.float32)
    added: dict[str, NDArray[Any]] = {"epochs": numbers, "labels": matrices}
    if len(classes) > DENSE_CLASSES:
        indices = np.argsort(-matrices, axis=-1, kind="stable")[..., :KEPT_PER_ROW]
        values = np.take_along_axis(matrices, indices, axis=-1)
        added = {"epochs": numbers, "indices": indices.astype(np.int32), "values": values}
    if path.exists():
        before = load_residual_labels(path)
        added = {key: np.concatenate([getattr(before, key), array]) for key, array in added.items()}
    write_npz(path, **added, classes=list(classes))


def truncate_residual_labels(path: Path, epoch: int) -> None:
    """Drop the matrices after ``epoch``, before a run goes on from there."""
    if epoch == 0:
        path.unlink(missing_ok=True)
    if not path.exists():
        return
    arrays = read_npz(path)
    selected = arrays["epochs"] <= epoch
    if not selected.all():
        write_npz(path, **{key: value if key == "classes" else value[selected] for key, value in arrays.items()})


def load_residual_labels(path: Path) -> ResidualLabels:
    both = {"epochs", "classes"}
    return ResidualLabels(**_read(path, "residual labels", _RESIDUAL_LABELS, {*both, "labels"}, {*both, *_LARGEST}))


def save_predictions(
    path: Path,
    *,
    test_logits: ArrayLike,
    test_labels: ArrayLike,
    validation_logits: ArrayLike,
    validation_labels: ArrayLike,
    classes: Sequence[str],
) -> None:
    """Write ``predictions.npz``; each row of logits is shifted so that its largest is 0, and stored in float16.

    Near 0, where the likely classes are, float16 is finest.
    """
    write_npz(
        path,
        test_logits=_halved(np.asarray(test_logits)),
        test_labels=np.asarray(test_labels, np.int64),
        validation_logits=_halved(np.asarray(validation_logits)),
        validation_labels=np.asarray(validation_labels, np.int64),
        classes=list(classes),
    )


def _halved(logits: NDArray[Any]) -> NDArray[np.float16]:
    """Logits (N, K) less the largest of each row, in float16."""
    halves = np.empty(logits.shape, np.float16)
    for start in range(0, len(logits), _ROWS_AT_ONCE):
        rows = logits[start : start + _ROWS_AT_ONCE].astype(np.float64)
        halves[start : start + _ROWS_AT_ONCE] = np.maximum(rows - rows.max(axis=1, keepdims=True), _LEAST)
    return halves


def load_predictions(path: Path) -> Predictions:
    return Predictions(**_read(path, "predictions", _PREDICTIONS, set(_PREDICTIONS)))


def _read(path: Path, what: str, layout: Mapping[str, tuple[str, str]], *needed: set[str]) -> dict[str, Any]:
    """The arrays of a file that are in the ``layout``, checked; at least those of one set of ``needed`` names."""
    arrays = read_npz(path)
    if not any(names <= arrays.keys() for names in needed):
        raise RunError(f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}; these are not {what}.")
    checked = {name: arrays[name] for name in layout if name in arrays}
    lengths: dict[str, int] = {}
    for name, array in checked.items():
        kinds, letters = layout[name]
        fits = array.dtype.kind in kinds and array.ndim == len(letters)
        if not fits or any(lengths.setdefault(*pair) != pair[1] for pair in zip(letters, array.shape, strict=True)):
            raise RunError(f"{path} is odd: its '{name}' has the shape {array.shape} and the type {array.dtype}.")
        if name in _CLASS_NUMBERS and array.size and not 0 <= array.min() <= array.max() < lengths["K"]:
            raise RunError(f"{path} is odd: its '{name}' must stay within 0 and {lengths['K'] - 1}.")
        if name in _PROBABILITIES and not (np.isfinite(array) & (array >= 0)).all():
            raise RunError(f"{path} is odd: its '{name}' holds what is no probability.")
    checked["classes"] = tuple(checked["classes"].tolist())
    return checked

"""Logits and labels, checked, and what several metrics share of their rows; only some rows at a time are in float64.

Shapes: N examples, K classes.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
_AT_ONCE = 2**22  # logits that are looked at together: their float64 copies take 32 MB each


class CheckedLogits:
    """Checked logits and labels, and what several metrics share of their rows, computed once."""

    def __init__(self, logits: ArrayLike, labels: ArrayLike, temperature: float | None = None) -> None:
        scores, classes = _array(logits), _array(labels)
        if scores.ndim != 2 or 0 in scores.shape:
            raise ValueError(f"logits has shape {scores.shape}; it must be (N, K), with an example and a class")
        if classes.shape != scores.shape[:1] or classes.dtype.kind not in "iu":
            raise ValueError(
                f"labels has shape {classes.shape} and type {classes.dtype}; "
                f"it must hold an integer for each of the {len(scores)} rows of logits"
            )
        size, low, high = scores.shape[1], int(classes.min()), int(classes.max())
        if low < 0 or high >= size:
            wrong = low if low < 0 else high
            raise ValueError(f"labels holds {wrong}; with {size} classes it must be between 0 and {size - 1}")
        self.scores: NDArray[Any] = scores  # of any type: many are never copied to float64 at once
        self.labels: NDArray[np.int64] = classes.astype(np.int64, copy=False)
        self.temperature = temperature
        unusable = np.flatnonzero(~np.isfinite(np.concatenate([part.max(axis=1) for part in self._slices()])))
        if unusable.size:
            raise ValueError(
                f"logits gives no probabilities in row {unusable[0]}: it holds NaN, +inf or nothing but -inf"
            )

    def parts(self) -> Iterator[tuple[Array, NDArray[np.int64]]]:
        """The rows in blocks: their logits in float64, divided by the temperature, and their labels."""
        start = 0
        for part in self._slices():
            scores = part.astype(np.float64, copy=False)
            scores = scores if self.temperature is None else scores / self.temperature
            yield scores, self.labels[start : start + len(part)]
            start += len(part)

    def _slices(self) -> Iterator[NDArray[Any]]:
        """The logits in blocks of rows, as they are."""
        rows = max(1, _AT_ONCE // self.scores.shape[1])
        for start in range(0, len(self.scores), rows):
            yield self.scores[start : start + rows]

    def by_row(self, function: Callable[[Array, NDArray[np.int64]], NDArray[Any]]) -> NDArray[Any]:
        """(N, …) what a function of rows and their labels gives for each row."""
        return np.concatenate([function(scores, labels) for scores, labels in self.parts()])

    @cached_property
    def predicted(self) -> NDArray[np.intp]:
        """(N,) the class of the largest logit."""
        return self.by_row(lambda scores, _: scores.argmax(axis=1))

    @cached_property
    def ranks(self) -> NDArray[np.intp]:
        """(N,) how many classes come before the label."""
        return self.by_row(_ranks)

    @cached_property
    def losses(self) -> Array:
        """(N,) −log p of the labels."""
        return self.by_row(_losses)

    @cached_property
    def confidence_and_brier(self) -> Array:
        """(N, 2) the largest probabilities and the Brier scores."""
        return self.by_row(_confidence_and_brier)


def at_labels(values: NDArray[Any], labels: NDArray[np.int64]) -> NDArray[Any]:
    """(N,) the value in the column of each row's label, from (N, K)."""
    return np.asarray(values[np.arange(len(values)), labels])


def _ranks(scores: Array, labels: NDArray[np.int64]) -> NDArray[np.intp]:
    of_label = at_labels(scores, labels)[:, None]
    wins_tie = np.arange(scores.shape[1]) < labels[:, None]  # (N, K)
    return np.asarray(((scores > of_label) | ((scores == of_label) & wins_tie)).sum(axis=1))


def _losses(scores: Array, labels: NDArray[np.int64]) -> Array:
    gaps = scores - scores.max(axis=1, keepdims=True)
    of_label = at_labels(gaps, labels)
    return np.asarray(np.log(np.exp(gaps, out=gaps).sum(axis=1)) - of_label)


def softmax(scores: Array) -> Array:
    """(N, K) probabilities, of logits in float64."""
    weights = scores - scores.max(axis=1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(axis=1, keepdims=True)
    return np.asarray(weights)


def _confidence_and_brier(scores: Array, labels: NDArray[np.int64]) -> Array:
    probabilities = softmax(scores)
    squares = np.einsum("nk,nk->n", probabilities, probabilities)
    return np.stack([probabilities.max(axis=1), squares + 1 - 2 * at_labels(probabilities, labels)], axis=1)


def _array(values: Any) -> NDArray[Any]:
    """An array; torch tensors lose their graph, and bfloat16, which numpy lacks, becomes float32."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if str(values.dtype) == "torch.bfloat16" else values
    return np.asarray(values)

"""Label noise with known truth: some training labels are changed on purpose, and the true ones are kept."""

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from adaptive_labels.data.dataset import DataError, Dataset, Examples, fingerprint


def inject_noise(
    dataset: Dataset, rate: float, seed: int, matrix: Tensor | None = None, *, validation: bool = False
) -> Dataset:
    """A copy of the data set in which some training labels are wrong; `true_labels` has what they were.

    round(rate · N) training examples are drawn. Without a matrix each of them gets a wrong label, uniformly among the
    other K − 1 classes. With `matrix` (K, K), row-stochastic, an example of class k gets a label drawn from row k,
    which may be k again; `rate=1` thus applies the matrix as it is.

    Args:
        dataset: left as it is.
        rate: the fraction of examples drawn, from 0 to 1.
        seed: of the draw.
        matrix: row k says where the labels of class k go.
        validation: whether the validation split is made noisy as well; test never is.

    Returns:
        The noisy data set, with a note that counts the changed labels and a fingerprint of its own.
    """
    if not (math.isfinite(rate) and 0 <= rate <= 1):
        raise DataError(f"rate must be from 0 to 1, not {rate}.")
    rows = None if matrix is None else _checked(matrix, dataset.num_classes)
    generator = np.random.default_rng(seed)
    train = _noisy(dataset.train, rate, generator, rows, dataset.num_classes)
    notes = [_note("training", dataset.train, train, rows, seed)]
    held_out = dataset.validation
    if validation:
        held_out = _noisy(dataset.validation, rate, generator, rows, dataset.num_classes)
        notes.append(_note("validation", dataset.validation, held_out, rows, seed))
    splits = (("train", train), ("validation", held_out), ("test", dataset.test))
    return replace(
        dataset,
        train=train,
        validation=held_out,
        notes=(*dataset.notes, *notes),
        fingerprint=fingerprint(dataset.classes, splits),
    )


def _checked(matrix: Tensor, num_classes: int) -> np.ndarray:
    rows = torch.as_tensor(matrix, dtype=torch.float64).numpy()
    if rows.shape != (num_classes, num_classes):
        raise DataError(f"matrix must have the shape ({num_classes}, {num_classes}), not {rows.shape}.")
    for k, row in enumerate(rows):
        if not ((row >= 0).all() and abs(row.sum() - 1) < 1e-4):
            raise DataError(f"matrix must have rows of probabilities that sum to 1; row {k} is {row.tolist()}.")
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def _noisy(
    examples: Examples, rate: float, generator: np.random.Generator, rows: np.ndarray | None, num_classes: int
) -> Examples:
    labels = examples.labels.numpy().copy()
    drawn = generator.permutation(len(labels))[: round(rate * len(labels))]
    if rows is None:
        labels[drawn] = (labels[drawn] + generator.integers(1, num_classes, size=len(drawn))) % num_classes
    else:
        before = labels[drawn]
        for k in range(num_classes):
            members = drawn[before == k]
            labels[members] = generator.choice(num_classes, size=len(members), p=rows[k])
    true_labels = examples.labels if examples.true_labels is None else examples.true_labels
    return replace(examples, labels=torch.from_numpy(labels), true_labels=true_labels.clone())


def _note(what: str, before: Examples, after: Examples, rows: np.ndarray | None, seed: int) -> str:
    changed = int((before.labels != after.labels).sum())
    how = "uniformly among the other classes" if rows is None else "as the given matrix says"
    return f"{changed:,} of {len(after):,} {what} labels were changed on purpose, {how} (noise seed {seed})."

"""Label noise with known truth: some training labels are changed on purpose, and the true ones are kept."""

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from adaptive_labels.lab.data.dataset import DataError, Dataset, Examples, fingerprint


def inject_noise(
    dataset: Dataset, rate: float, seed: int, matrix: Tensor | None = None, *, validation: bool = False
) -> Dataset:
    """A copy of the data set in which some training labels are wrong; `true_labels` has what they were.

    round(rate · N) training examples are drawn. Without a matrix each of them gets a wrong label, uniformly among the
    other K − 1 classes. With `matrix` (K, K), row-stochastic, an example of class k gets a label drawn from row k,
    which may be k again; `rate=1` thus applies the matrix as it is. The copy has a note that counts the changed labels,
    and a fingerprint of its own.

    Args:
        dataset: left as it is.
        rate: the fraction of examples drawn, from 0 to 1.
        seed: of the draw.
        matrix: the probabilities of the labels of each class.
        validation: whether the validation split is made noisy as well; test never is.
    """
    if not (math.isfinite(rate) and 0 <= rate <= 1):
        raise DataError(f"rate must be from 0 to 1, not {rate}.")
    rows = None if matrix is None else _checked(matrix, dataset.num_classes)
    how = "uniformly among the other classes" if rows is None else "as the given matrix says"
    generator = np.random.default_rng(seed)
    splits, notes = dict(dataset.splits()), list(dataset.notes)
    for split in ("train", "validation") if validation else ("train",):
        before = splits[split]
        after = _noisy(before, rate, generator, rows, dataset.num_classes)
        changed, what = int((before.labels != after.labels).sum()), "training" if split == "train" else split
        notes.append(f"{changed:,} of {len(after):,} {what} labels were changed on purpose, {how} (noise seed {seed}).")
        splits[split] = after
    found = fingerprint(dataset.classes, splits.items())
    train, held_out = splits["train"], splits["validation"]
    return replace(dataset, train=train, validation=held_out, notes=tuple(notes), fingerprint=found)


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

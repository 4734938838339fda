"""Label noise with known truth: some training labels are changed on purpose, and the true ones stay beside them."""

import math
from dataclasses import replace

import numpy as np
import torch

from adaptive_labels.lab.data.dataset import DataError, Dataset, fingerprint


def inject_noise(dataset: Dataset, rate: float, seed: int) -> Dataset:
    """A copy of the data set with round(rate · N) wrong training labels, uniform among the other K − 1 classes.

    `true_labels` has what they were, a note counts them, and the fingerprint is another. Validation and test stay.
    """
    if not (math.isfinite(rate) and 0 <= rate <= 1):
        raise DataError(f"rate must be from 0 to 1, not {rate}.")
    generator, train, num_classes = np.random.default_rng(seed), dataset.train, dataset.num_classes
    labels = train.labels.numpy().copy()
    drawn = generator.permutation(len(labels))[: round(rate * len(labels))]
    labels[drawn] = (labels[drawn] + generator.integers(1, num_classes, size=len(drawn))) % num_classes
    true_labels = train.labels if train.true_labels is None else train.true_labels
    noisy = replace(train, labels=torch.from_numpy(labels), true_labels=true_labels.clone())
    note = (
        f"{len(drawn):,} of {len(train):,} training labels were changed on purpose, uniformly among the other classes "
        f"(noise seed {seed})."
    )
    content = fingerprint(dataset.classes, [("train", noisy), *list(dataset.splits())[1:]])
    return replace(dataset, train=noisy, notes=(*dataset.notes, note), fingerprint=content)

"""What every reader gives back: a data set with three splits, class names and notes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from adaptive_labels.data.stored_texts import LineSources, StoredDigests, StoredTexts
from adaptive_labels.errors import UserError

Item = TypeVar("Item")
Kind = Literal["text", "image"]
SplitName = Literal["train", "validation", "test"]
SPLIT_NAMES: tuple[SplitName, ...] = ("train", "validation", "test")


class DataError(UserError):
    """Something is wrong with the user's data: one sentence that names the file and, where there is one, the line."""


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Images that are too many to hold: N files, read when they are needed (see `files`).

    Args:
        folder: where they are.
        names: (N,) of bytes, the paths below it; an array, which processes that read the files share without a copy.
        bytes_each: (N,) int64, the files' sizes.
        size: the width and height that a network sees.
    """

    folder: Path
    names: np.ndarray
    bytes_each: np.ndarray
    size: int

    def __len__(self) -> int:
        return len(self.names)

    def path(self, index: int) -> Path:
        """Where an image is."""
        name: bytes = self.names[index]
        return self.folder / name.decode()

    def subset(self, indices: Tensor) -> "ImageFiles":
        """The files at `indices` (int64, (M,)), in that order."""
        picked = indices.numpy()
        return ImageFiles(self.folder, self.names[picked], self.bytes_each[picked], self.size)


Inputs = list[str] | StoredTexts | Tensor | ImageFiles
"""What the examples of a split can be."""


@dataclass(frozen=True, eq=False)
class Examples:
    """One split: inputs, their labels, and where each came from.

    `inputs` is a list of N texts, a uint8 tensor (N, C, H, W), or, where they are too many to hold, N `StoredTexts` or
    N `ImageFiles`; `labels` is int64 (N,); `true_labels` holds the labels before noise was injected, or None; `sources`
    names the file (and the line, for tables) of each example, or is None.
    """

    inputs: Inputs
    labels: Tensor
    true_labels: Tensor | None = None
    sources: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.labels.dtype != torch.int64 or self.labels.ndim != 1:
            raise ValueError(f"labels must be int64 of shape (N,), not {self.labels.dtype} {tuple(self.labels.shape)}")
        if isinstance(self.inputs, Tensor) and (self.inputs.dtype != torch.uint8 or self.inputs.ndim != 4):
            raise ValueError(
                f"image inputs must be uint8 of shape (N, C, H, W), not {self.inputs.dtype} {tuple(self.inputs.shape)}"
            )
        columns = {"inputs": self.inputs, "true_labels": self.true_labels, "sources": self.sources}
        for name, values in columns.items():
            if values is not None and len(values) != len(self.labels):
                raise ValueError(f"{name} has {len(values)} entries, but there are {len(self.labels)} labels")

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: Tensor) -> "Examples":
        """The examples at `indices` (int64, (M,)), in that order."""
        return Examples(
            inputs=_picked(self.inputs, indices),
            labels=self.labels[indices],
            true_labels=None if self.true_labels is None else self.true_labels[indices],
            sources=None if self.sources is None else picked(self.sources, indices),
        )


def _picked(inputs: Inputs, indices: Tensor) -> Inputs:
    if isinstance(inputs, list):
        return [inputs[i] for i in indices.tolist()]
    return inputs[indices] if isinstance(inputs, Tensor) else inputs.subset(indices)


def picked(values: Sequence[Item], indices: Tensor) -> Sequence[Item]:
    """The values at `indices` (int64, (M,)), in that order; those that are kept in one array stay so.

    >>> picked(["a", "b", "c"], torch.tensor([2, 0]))
    ['c', 'a']
    """
    if isinstance(values, StoredDigests | LineSources):
        return values.subset(indices)  # type: ignore[return-value]
    return [values[i] for i in indices.tolist()]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set ready for training.

    `notes` are sentences on what was guessed, made or counted while reading; the commands print them. `fingerprint` is
    a hash of the content (see `fingerprint.fingerprint`), the same wherever the files lie.
    """

    name: str
    kind: Kind
    classes: tuple[str, ...]
    train: Examples
    validation: Examples
    test: Examples
    notes: tuple[str, ...]
    fingerprint: str

    @property
    def num_classes(self) -> int:
        """K, the number of classes."""
        return len(self.classes)

    def splits(self) -> Iterable[tuple[SplitName, Examples]]:
        """The three splits with their names, train first."""
        return (("train", self.train), ("validation", self.validation), ("test", self.test))

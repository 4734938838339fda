"""The data set that every reader returns: three splits, class names, notes and a fingerprint."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from adaptive_labels.errors import UserError
from adaptive_labels.lab.data.rows import TableRows
from adaptive_labels.lab.data.stored_texts import LineSources, StoredTexts

Kind = Literal["text", "image", "row"]
SplitName = Literal["train", "validation", "test"]
SPLIT_SPELLINGS: Mapping[SplitName, tuple[str, ...]] = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
"""How files and folders are named by their split."""


class DataError(UserError):
    """Something is wrong with the user's data: one sentence that names the file and, where there is one, the line."""


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Images that are too many to hold: N files, read when they are needed (see `encoders.images`)."""

    folder: Path
    names: np.ndarray  # (N,) of bytes, the paths below it; processes that read the files share an array without a copy
    bytes_each: np.ndarray  # (N,) int64, the files' sizes
    size: int  # the width and height that a network sees

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, indices: np.ndarray) -> "ImageFiles":
        return ImageFiles(self.folder, self.names[indices], self.bytes_each[indices], self.size)

    def path(self, index: int) -> Path:
        return self.folder / os.fsdecode(self.names[index])


RawInputs = list[str] | StoredTexts | Tensor | ImageFiles | TableRows
"""Texts, a uint8 tensor of images (N, C, H, W), rows of a table, or what stands for them where they are too many."""


@dataclass(frozen=True, eq=False)
class Examples:
    """One split: inputs, their labels, and where each came from."""

    inputs: RawInputs  # N
    labels: Tensor  # int64 (N,)
    true_labels: Tensor | None = None  # the labels before noise was injected
    sources: list[str] | LineSources | None = None  # the file of each example, and for tables the line

    def __post_init__(self) -> None:
        assert (self.labels.dtype, self.labels.ndim) == (torch.int64, 1), "labels must be int64 of shape (N,)"
        if isinstance(self.inputs, Tensor):
            assert (self.inputs.dtype, self.inputs.ndim) == (torch.uint8, 4), "images must be uint8 (N, C, H, W)"
        lengths = {len(values) for values in (self.inputs, self.true_labels, self.sources) if values is not None}
        assert lengths == {len(self.labels)}, f"{len(self.labels)} labels for lengths {lengths}"

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: Tensor) -> "Examples":
        """The examples at `indices` (int64, (M,)), in that order."""

        def chosen(values: Any) -> Any:
            if values is None:
                return None
            if isinstance(values, list):
                return [values[i] for i in indices.tolist()]
            return values[indices if isinstance(values, Tensor) else indices.numpy()]

        return Examples(*map(chosen, (self.inputs, self.labels, self.true_labels, self.sources)))


@dataclass(frozen=True, eq=False)
class Dataset:
    name: str
    kind: Kind
    classes: tuple[str, ...]
    train: Examples
    validation: Examples
    test: Examples
    notes: tuple[str, ...]  # sentences on what was chosen, made or counted while reading; the commands print them
    fingerprint: str  # a hash of the content, the same wherever the files are
    text_columns: tuple[str, ...] = ()  # the names of a table's columns that texts were read from

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    def splits(self) -> Iterable[tuple[SplitName, Examples]]:
        return (("train", self.train), ("validation", self.validation), ("test", self.test))


def fingerprint(classes: Sequence[str], splits: Iterable[tuple[str, Examples]]) -> str:
    """SHA-256, in hexadecimal, over the class names and each split's name, inputs and labels, in their order.

    Notes, sources and true labels are left out: they do not change what a model sees. Of images that stay files the
    names and sizes of the files go in, not their content.
    """
    digest = hashlib.sha256()
    _add_texts(digest, classes)
    for name, examples in splits:
        _add_texts(digest, [name])
        if isinstance(examples.inputs, Tensor):
            _add_array(digest, examples.inputs.numpy())
        elif isinstance(examples.inputs, ImageFiles):
            _add_texts(digest, list(map(os.fsdecode, examples.inputs.names)))
            _add_array(digest, examples.inputs.bytes_each)
            _add_array(digest, np.array([examples.inputs.size]))
        elif isinstance(examples.inputs, TableRows):
            _add_texts(digest, examples.inputs.names)
            _add_texts(digest, examples.inputs.cells.ravel().tolist())
        else:
            _add_texts(digest, examples.inputs)
        _add_array(digest, examples.labels.numpy())
    return digest.hexdigest()


def _add_texts(digest: "hashlib._Hash", texts: Sequence[str]) -> None:
    # The lengths go in first, so that ["ab", "c"] and ["a", "bc"] differ.
    if isinstance(texts, StoredTexts):
        _add_array(digest, texts.sizes)
        for pieces in texts.pieces():
            digest.update(b"".join(pieces))
        return
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    _add_array(digest, np.array([len(part) for part in encoded], dtype=np.int64))
    digest.update(b"".join(encoded))


def _add_array(digest: "hashlib._Hash", array: np.ndarray) -> None:
    little_endian = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    digest.update(f"{little_endian.dtype.str}{little_endian.shape}".encode())
    digest.update(little_endian.data)

"""Texts that are too many to hold: their bytes lie end to end in a file, and each is read when it is asked for.

Shapes: N texts. A split of them is a choice of rows; all splits of a file share its arrays.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

_AT_A_TIME = 4096
"""Texts that are in memory at a time while all of them are gone through."""

Int64s = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StoredTexts(Sequence[str]):
    """N texts in a file, a sequence like a list of them.

    Args:
        file: UTF-8, all texts end to end. It is read, not mapped: pages of a mapped file that is gone through in any
            order would all count as this process's memory.
        offsets: int64; text i of the file is between byte `offsets[i]` and byte `offsets[i + 1]`.
        characters: int32, how long each text of the file is.
        key: a hash of what is in the file.
        rows: (N,) int64, which texts of the file these are, in this order; None for all.
    """

    file: Path
    offsets: Int64s
    characters: NDArray[np.int32]
    key: str
    rows: Int64s | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1 if self.rows is None else len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return replace(self, rows=self._rows()[index])
        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no text {index} among {len(self)}")
        return next(iter(self[index % len(self) : index % len(self) + 1]))

    def __iter__(self) -> Iterator[str]:
        for pieces in self.pieces():
            for piece in pieces:
                yield piece.decode("utf-8", "surrogatepass")

    def pieces(self) -> Iterator[list[bytes]]:
        """Yield the texts as bytes, some thousands at a time."""
        with self.file.open("rb", buffering=0) as file:
            for start in range(0, len(self), _AT_A_TIME):
                rows = self._rows(start, start + _AT_A_TIME)
                begins, ends = self.offsets[rows], self.offsets[rows + 1]
                if (begins[1:] == ends[:-1]).all():  # they are neighbours in the file
                    whole = _read(file, int(begins[0]), int(ends[-1]))
                    cuts = zip((begins - begins[0]).tolist(), (ends - begins[0]).tolist(), strict=True)
                    yield [whole[begin:end] for begin, end in cuts]
                else:
                    yield [_read(file, *place) for place in zip(begins.tolist(), ends.tolist(), strict=True)]

    def subset(self, indices: Tensor) -> "StoredTexts":
        """The texts at `indices` (int64, (M,)), in that order."""
        chosen = indices.numpy()
        return replace(self, rows=chosen if self.rows is None else self.rows[chosen])

    @property
    def lengths(self) -> NDArray[np.int32]:
        """How many characters each text has, (N,)."""
        return self.characters if self.rows is None else self.characters[self.rows]

    @property
    def sizes(self) -> Int64s:
        """How many bytes each text has, (N,)."""
        sizes = np.diff(self.offsets)
        return sizes if self.rows is None else sizes[self.rows]

    def identity(self) -> str:
        """A hash of these texts in this order: of what is in the file, and of which rows they are."""
        digest = hashlib.sha256(self.key.encode())
        if self.rows is not None:
            digest.update(np.ascontiguousarray(self.rows, "<i8").data)
        return digest.hexdigest()

    def _rows(self, start: int = 0, stop: int | None = None) -> Int64s:
        if self.rows is not None:
            return self.rows[start:stop]
        return np.arange(start, len(self) if stop is None else min(stop, len(self)), dtype=np.int64)


def _read(file: FileIO, begin: int, end: int) -> bytes:
    file.seek(begin)
    content = file.read(end - begin) or b""
    while len(content) < end - begin:  # one call of the system gives 2 GB at most
        more = file.read(end - begin - len(content))
        if not more:
            raise OSError(f"{file.name} ends before byte {end}; delete its folder to have it made again")
        content += more
    return content


def text_lengths(texts: Sequence[str]) -> NDArray[np.int32]:
    """How many characters each text has, (N,); those of stored texts are known without reading them.

    >>> text_lengths(["ab", "", "ß"]).tolist()
    [2, 0, 1]
    """
    return texts.lengths if isinstance(texts, StoredTexts) else np.fromiter(map(len, texts), np.int32, len(texts))


@dataclass(frozen=True, eq=False)
class LineSources(Sequence[str]):
    """Where each of N examples is: its file and line, made into words when it is asked for.

    >>> LineSources("train.csv", np.array([1, 5]))[1]
    'train.csv:5'
    """

    file: str
    lines: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return LineSources(self.file, self.lines[index])
        return f"{self.file}:{self.lines[index]}"

    def subset(self, indices: Tensor) -> "LineSources":
        """The sources at `indices` (int64, (M,)), in that order."""
        return LineSources(self.file, self.lines[indices.numpy()])

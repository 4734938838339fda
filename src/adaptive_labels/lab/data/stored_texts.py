"""Texts that do not fit into memory: their bytes are in one file, and each text is read when it is needed.

Shapes: N texts. A split of them is a choice of rows; all splits of a file share its arrays.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

_AT_A_TIME = 4096  # texts in memory while all of them are gone through

Int64s = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StoredTexts(Sequence[str]):
    """N texts in a file, a sequence like a list of them; a slice or an array of indices gives `StoredTexts` again.

    The file is read, not mapped: pages of a mapped file that is gone through in any order would all count as this
    process's memory.
    """

    file: Path  # UTF-8, all texts end to end
    offsets: Int64s  # text i of the file is between byte `offsets[i]` and byte `offsets[i + 1]`
    characters: NDArray[np.int32]  # how long each text of the file is
    key: str  # a hash of what is in the file
    rows: Int64s | None = None  # (N,), which texts of the file these are, in this order; None for all

    def __len__(self) -> int:
        return len(self.offsets) - 1 if self.rows is None else len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        rows = self._rows()[index]
        some = replace(self, rows=np.atleast_1d(rows))
        return some if rows.ndim else next(iter(some))

    def __iter__(self) -> Iterator[str]:
        for pieces in self.pieces():
            for piece in pieces:
                yield piece.decode("utf-8", "surrogatepass")

    def pieces(self) -> Iterator[list[bytes]]:
        all_rows = self._rows()
        with self.file.open("rb") as file:
            for start in range(0, len(self), _AT_A_TIME):
                rows = all_rows[start : start + _AT_A_TIME]
                begins, ends = self.offsets[rows], self.offsets[rows + 1]
                if (begins[1:] == ends[:-1]).all():  # they are neighbours in the file
                    whole = _read(file, int(begins[0]), int(ends[-1]))
                    cuts = zip((begins - begins[0]).tolist(), (ends - begins[0]).tolist(), strict=True)
                    yield [whole[begin:end] for begin, end in cuts]
                else:
                    yield [_read(file, *place) for place in zip(begins.tolist(), ends.tolist(), strict=True)]

    @property
    def lengths(self) -> NDArray[np.int32]:
        """How many characters each text has, (N,)."""
        return self.characters if self.rows is None else self.characters[self.rows]

    @property
    def sizes(self) -> Int64s:
        return np.diff(self.offsets)[self._rows()]

    def identity(self) -> str:
        """A hash of these texts in this order: of what is in the file, and of which rows they are."""
        digest = hashlib.sha256(self.key.encode())
        if self.rows is not None:
            digest.update(np.ascontiguousarray(self.rows, "<i8").data)
        return digest.hexdigest()

    def _rows(self) -> Int64s:
        return np.arange(len(self), dtype=np.int64) if self.rows is None else self.rows


def _read(file: IO[bytes], begin: int, end: int) -> bytes:
    file.seek(begin)
    content = file.read(end - begin)
    if len(content) < end - begin:
        raise OSError(f"{file.name} ends before byte {end}; delete its folder to have it made again")
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

    >>> sources = LineSources("train.csv", np.array([1, 5, 9]))
    >>> sources[1], list(sources[1:])
    ('train.csv:5', ['train.csv:5', 'train.csv:9'])
    """

    file: str
    lines: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: Any) -> Any:
        lines = self.lines[index]
        return LineSources(self.file, lines) if lines.ndim else f"{self.file}:{lines}"

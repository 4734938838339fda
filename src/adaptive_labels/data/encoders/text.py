"""What the text encoders share: lists of numbers as batches, the cache, and notes on texts that are too long.

Shapes: N texts, M numbers in all of them; n texts of a batch.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adaptive_labels.data.cache import hash_of, kept, mapped
from adaptive_labels.data.dataset import Examples, SplitName
from adaptive_labels.data.encoders.hashes import Int64s, chunks
from adaptive_labels.data.stored_texts import StoredTexts, text_lengths

_FORMAT = 1
"""Of the entries in the cache: another number makes all of them anew."""

KEPT_FROM = 20_000
"""Fewer texts than this are encoded in memory, which is as fast and leaves nothing behind."""

Chunk = tuple[NDArray[np.int32], Int64s]
"""The numbers of some texts end to end, and how many each text has."""


@dataclass(frozen=True, eq=False)
class RaggedIds:
    """Lists of numbers, one list per text, laid end to end.

    Args:
        values: (M,) integers, all lists one after the other.
        offsets: (N+1,) int64; text i owns `values[offsets[i]:offsets[i + 1]]`.
    """

    values: Tensor
    offsets: Tensor

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lists of these texts laid end to end, and where each begins: what `nn.EmbeddingBag` takes.

        >>> ragged = RaggedIds(torch.tensor([5, 6, 7], dtype=torch.int32), torch.tensor([0, 2, 2, 3]))
        >>> [part.tolist() for part in ragged.batch(torch.tensor([2, 1, 0]))]
        [[7, 5, 6], [0, 1, 1]]
        """
        values, begins, _ = self._end_to_end(indices)
        return values, begins

    def _end_to_end(self, indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return some of the lists, end to end, with where each begins and how long it is."""
        starts = self.offsets[indices]
        lengths = self.offsets[indices + 1] - starts
        begins = lengths.cumsum(0) - lengths
        total = int(lengths.sum())
        # Position j of the result, in the list that begins at `begins`, comes from `starts` + (j − `begins`).
        source = torch.arange(total) + (starts - begins).repeat_interleave(lengths, output_size=total)
        return self.values[source].long(), begins, lengths


@dataclass(frozen=True, eq=False)
class PaddedIds(RaggedIds):
    """Lists of numbers like `RaggedIds`, of which a batch is padded with 0 to its longest."""

    @property
    def lengths(self) -> Tensor:
        """How long each list is, (N,)."""
        return self.offsets.diff()

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return these lists (n, L) int64, padded with 0, and how long each is, (n,); an empty list counts as one 0.

        >>> lists = PaddedIds(torch.tensor([5, 6, 7], dtype=torch.int32), torch.tensor([0, 2, 2, 3]))
        >>> [part.tolist() for part in lists.batch(torch.tensor([2, 1, 0]))]
        [[[7, 0], [0, 0], [5, 6]], [1, 1, 2]]
        """
        values, begins, lengths = self._end_to_end(indices)
        longest = max(1, int(lengths.max())) if len(lengths) else 1
        # Row i begins at i × `longest` in the padded lists, and at `begins` in those laid end to end.
        shifts = (torch.arange(len(lengths)) * longest - begins).repeat_interleave(lengths, output_size=len(values))
        padded = torch.zeros(len(lengths) * longest, dtype=torch.int64)
        padded[torch.arange(len(values)) + shifts] = values
        return padded.view(-1, longest), lengths.clamp_min(1)


class TextEncoder(ABC):
    """Texts to lists of numbers. A subclass is a frozen dataclass whose fields are its settings.

    Of many `StoredTexts` what is fitted and what is encoded is kept on the disk and memory-mapped. Processes that read
    the same texts the same way share the pages; none has all of the numbers as its own.
    """

    kind: ClassVar[str]
    options: ClassVar[frozenset[str]]
    lists: ClassVar[type[RaggedIds]] = PaddedIds
    length_option: ClassVar[str] = "max_length"
    """The name of the setting that says how many characters of a text are read."""

    lowercase: bool
    normalise: bool

    @property
    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """The sizes of a network that its encoder decides; the first is how many different numbers there are."""

    @abstractmethod
    def encode_chunks(self, texts: Sequence[str]) -> Iterator[Chunk]:
        """Yield the numbers of some texts after the other."""

    @classmethod
    def _fit(cls, texts: Sequence[str], **settings: Any) -> Self:
        return cls(**settings)

    @classmethod
    def fit(cls, inputs: Sequence[str], **settings: Any) -> Self:
        """Return the encoder for texts like these, from the cache if it was fitted on them before."""
        if not _is_kept(inputs):
            return cls._fit(inputs, **settings)

        def make(folder: Path) -> None:
            fitted = cls._fit(inputs, **settings).to_dict()
            (folder / "encoder.json").write_text(json.dumps(fitted), encoding="utf-8")

        key = hash_of([_FORMAT, {"encoder": cls.__name__, "fit": settings, "texts": inputs.identity()}])
        folder = kept("encoders", key, make)
        return cls.from_dict(json.loads((folder / "encoder.json").read_text(encoding="utf-8")))

    def encode(self, inputs: Sequence[str]) -> RaggedIds:
        """Return the numbers of every text, from the cache if they were made before."""
        if not _is_kept(inputs):
            return self.lists(*laid_out(self.encode_chunks(inputs)))
        numbers = next(iter(self.sizes.values()))
        dtype = "|u1" if numbers <= 2**8 else "<i2" if numbers <= 2**15 else "<i4"
        depends_on = {"encoder": type(self).__name__, "settings": self.to_dict(), "texts": inputs.identity()}
        folder = kept("ids", hash_of([_FORMAT, depends_on]), lambda to: _write(to, self.encode_chunks(inputs), dtype))
        arrays = mapped(folder / "values.bin", dtype), mapped(folder / "offsets.bin", "<i8")
        return self.lists(*map(torch.from_numpy, arrays))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings, and what was fitted, as plain data."""
        settings = {field.name: getattr(self, field.name) for field in fields(self) if field.init}  # type: ignore[arg-type]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Return the encoder with these settings, as `to_dict` gave them."""
        return cls(**settings)

    def limits(self) -> Iterator[tuple[str, str, Callable[[Sequence[str]], tuple[int, bool]]]]:
        """Yield each limit beyond which texts are cut off: the option, the limit in words, and what counts the texts.

        A count comes with whether it is exact.
        """
        limit = getattr(self, self.length_option)
        yield (
            self.length_option,
            f"{limit:,} characters",
            lambda texts: (int((text_lengths(texts) > limit).sum()), True),
        )

    def _chunks(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """Yield the texts, as far as they are read, in lists of about a million characters."""
        limit = getattr(self, self.length_option)
        return chunks(texts, max_length=limit, normalise=self.normalise, lowercase=self.lowercase)


def _is_kept(texts: Sequence[str]) -> TypeGuard[StoredTexts]:
    return isinstance(texts, StoredTexts) and len(texts) >= KEPT_FROM


def laid_out(encoded: Iterable[Chunk]) -> tuple[Tensor, Tensor]:
    """Return chunks of lists as all values end to end and the N+1 offsets.

    >>> chunk = np.array([7, 8, 9], np.int32), np.array([1, 2])
    >>> [part.tolist() for part in laid_out([chunk, chunk])]
    [[7, 8, 9, 7, 8, 9], [0, 1, 3, 4, 6]]
    """
    values, lengths = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
    for chunk_values, chunk_lengths in encoded:
        values.append(chunk_values)
        lengths.append(chunk_lengths)
    return torch.from_numpy(np.concatenate(values)), torch.from_numpy(np.cumsum(np.concatenate(lengths)))


def _write(folder: Path, encoded: Iterable[Chunk], dtype: str) -> None:
    """The same as `laid_out`, to files, without having all of it in memory."""
    end = 0
    with (folder / "values.bin").open("wb") as values, (folder / "offsets.bin").open("wb") as offsets:
        offsets.write(np.zeros(1, "<i8").data)
        for numbers, lengths in encoded:
            values.write(numbers.astype(dtype).data)
            offsets.write((end + np.cumsum(lengths)).astype("<i8").data)
            end += int(lengths.sum())


def length_notes(encoder: object, splits: Iterable[tuple[SplitName, Examples]]) -> list[str]:
    """A sentence for each limit of the encoder that cuts texts off: how many of which split, and by which option."""
    if not isinstance(encoder, TextEncoder):
        return []
    texts = {name: examples.inputs for name, examples in splits}
    notes = []
    for option, limit, count in encoder.limits():
        found = {name: count(inputs) for name, inputs in texts.items() if isinstance(inputs, list | StoredTexts)}
        parts = [
            f"{_number(*cut)} of {len(texts[name]):,} {'training' if name == 'train' else name}"
            for name, cut in found.items()
            if cut[0]
        ]
        if parts:
            verb = "is" if sum(number for number, _ in found.values()) == 1 else "are"
            listed = ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]
            notes.append(
                f"{listed} texts {verb} longer than {limit}; only the beginning is read (model.options.{option})."
            )
    return notes


def _number(count: int, exact: bool) -> str:
    return f"{count:,}" if exact else f"about {int(float(f'{count:.2g}')):,}"

"""Shared by the text encoders: batches of token ids, their cache, and a note on texts that are too long.

Shapes: N texts, M token ids in all of them; n texts of a batch, L token ids of its longest.
"""

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any, ClassVar, Self, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adaptive_labels.lab.data.cache import cached, hash_of, memmap
from adaptive_labels.lab.data.encoders import Encoder
from adaptive_labels.lab.data.stored_texts import Int64s, StoredTexts

_FORMAT = 1  # of the cache's entries; another number makes all of them anew
_CHUNK = 1_000_000  # characters worked on at a time: bounds the memory, and keeps the arrays near the CPU's cache
CACHED_FROM = 20_000
"""Fewer texts than this are encoded in memory, which is as fast and leaves nothing behind."""
_SAMPLED = 2_000  # texts that are searched for long ones
UNITS = {"length": "characters", "max_length": "characters", "max_words": "words", "max_tokens": "word pieces"}

Chunk = tuple[NDArray[np.int32], Int64s]
"""The token ids of some texts end to end, and how many each text has."""


@dataclass(frozen=True, eq=False)
class RaggedIds:
    """The token ids of N texts end to end; a batch is what `nn.EmbeddingBag` takes."""

    values: Tensor  # (M,) integers
    offsets: Tensor  # (N+1,) int64; text i owns `values[offsets[i]:offsets[i + 1]]`

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def batch(self, indices: Tensor) -> tuple[Tensor, ...]:
        """Return the token ids of these texts end to end, and where each text begins.

        >>> ragged = RaggedIds(torch.tensor([5, 6, 7], dtype=torch.int32), torch.tensor([0, 2, 2, 3]))
        >>> [part.tolist() for part in ragged.batch(torch.tensor([2, 1, 0]))]
        [[7, 5, 6], [0, 1, 1]]
        """
        source, begins, _ = self.places(indices)
        return self.values[source].long(), begins

    def places(self, indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Where the token ids of some texts are, end to end; where each text begins, and its length."""
        starts = self.offsets[indices]
        lengths = self.offsets[indices + 1] - starts
        begins = lengths.cumsum(0) - lengths
        total = int(lengths.sum())
        # Position j of the result, in the text that begins at `begins`, comes from `starts` + (j − `begins`).
        source = torch.arange(total) + (starts - begins).repeat_interleave(lengths, output_size=total)
        return source, begins, lengths


@dataclass(frozen=True, eq=False)
class PaddedIds(RaggedIds):
    """Like `RaggedIds`, but a batch is padded with 0 to its longest text."""

    @property
    def lengths(self) -> Tensor:
        """How many token ids each text has, (N,)."""
        return self.offsets.diff()

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return token ids (n, L) int64, padded with 0, and lengths (n,); an empty text counts as one 0.

        >>> ids = PaddedIds(torch.tensor([5, 6, 7], dtype=torch.int32), torch.tensor([0, 2, 2, 3]))
        >>> [part.tolist() for part in ids.batch(torch.tensor([2, 1, 0]))]
        [[[7, 0], [0, 0], [5, 6]], [1, 1, 2]]
        """
        source, begins, lengths = self.places(indices)
        values = self.values[source].long()
        longest = max(1, int(lengths.max())) if len(lengths) else 1
        # Row i begins at i × `longest` in the padded ids, and at `begins` in those end to end.
        shifts = (torch.arange(len(lengths)) * longest - begins).repeat_interleave(lengths, output_size=len(values))
        padded = torch.zeros(len(lengths) * longest, dtype=torch.int64)
        padded[torch.arange(len(values)) + shifts] = values
        return padded.view(-1, longest), lengths.clamp_min(1)


class TextEncoder(Encoder):
    """Texts to token ids. A subclass is a frozen dataclass whose fields are its settings.

    Of many `StoredTexts` the fitted encoder and the token ids are cached and memory-mapped: processes share the pages.
    The first of its `sizes` is the number of different token ids.
    """

    lists: ClassVar[type[RaggedIds]] = PaddedIds
    limit: ClassVar[str] = "max_length"  # the setting that says how many characters of a text are read

    lowercase: bool

    @abstractmethod
    def encode_chunks(self, texts: Sequence[str]) -> Iterator[Chunk]:
        """Yield the token ids of all texts, some texts at a time."""

    @classmethod
    def _fit(cls, texts: Sequence[str], **settings: Any) -> Self:
        return cls(**settings)

    @classmethod
    def fit(cls, inputs: Sequence[str], **settings: Any) -> Self:
        """Return the encoder for texts like these, from the cache if it was fitted on them before."""
        if not _is_cached(inputs):
            return cls._fit(inputs, **settings)

        def make(folder: Path) -> None:
            fitted = cls._fit(inputs, **settings).to_dict()
            (folder / "encoder.json").write_text(json.dumps(fitted), encoding="utf-8")

        key = hash_of([_FORMAT, {"encoder": cls.__name__, "fit": settings, "texts": inputs.identity()}])
        folder = cached("encoders", key, make)
        return cls.from_dict(json.loads((folder / "encoder.json").read_text(encoding="utf-8")))

    def encode(self, inputs: Sequence[str]) -> RaggedIds:
        """Return the token ids of every text, from the cache if they were made before."""
        vocabulary = next(iter(self.sizes.values()))
        dtype = "|u1" if vocabulary <= 2**8 else "<i2" if vocabulary <= 2**15 else "<i4"
        if not _is_cached(inputs):
            values, offsets = BytesIO(), BytesIO()
            _write(self.encode_chunks(inputs), values, offsets, dtype)
            arrays = np.frombuffer(values.getbuffer(), dtype), np.frombuffer(offsets.getbuffer(), "<i8")
            return self.lists(*map(torch.from_numpy, arrays))

        def make(folder: Path) -> None:
            with (folder / "values.bin").open("wb") as values, (folder / "offsets.bin").open("wb") as offsets:
                _write(self.encode_chunks(inputs), values, offsets, dtype)

        depends_on = {"encoder": type(self).__name__, "settings": self.to_dict(), "texts": inputs.identity()}
        folder = cached("ids", hash_of([_FORMAT, depends_on]), make)
        arrays = memmap(folder / "values.bin", dtype), memmap(folder / "offsets.bin", "<i8")
        return self.lists(*map(torch.from_numpy, arrays))

    def count_cut(self, texts: Sequence[str]) -> dict[str, int]:
        """How many texts are longer than each setting that limits how much of a text is read."""
        most = getattr(self, self.limit)
        return {self.limit: sum(len(text) > most for text in texts)}

    def _chunks(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """Yield the texts, as far as they are read, in lists of about a million characters."""
        limit = getattr(self, self.limit)
        chunk: list[str] = []
        size = 0
        for whole in texts:
            text = whole[:limit].lower() if self.lowercase else whole[:limit]
            chunk.append(text)
            size += len(text)
            if size >= _CHUNK:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk


def _is_cached(texts: Sequence[str]) -> TypeGuard[StoredTexts]:
    return isinstance(texts, StoredTexts) and len(texts) >= CACHED_FROM


def _write(encoded: Iterable[Chunk], values: IO[bytes], offsets: IO[bytes], dtype: str) -> None:
    """Write all token ids end to end, and the N+1 offsets."""
    end = 0
    offsets.write(np.zeros(1, "<i8").data)
    for ids, lengths in encoded:
        values.write(ids.astype(dtype, copy=False).data)
        offsets.write((end + np.cumsum(lengths)).astype("<i8", copy=False).data)
        end += int(lengths.sum())


def length_notes(encoder: Any, texts: Any) -> list[str]:
    """For each setting that cuts training texts off, a sentence with their share among some thousand of them."""
    if not hasattr(encoder, "count_cut") or not len(texts):
        return []
    places = np.random.default_rng(0).permutation(len(texts))[:_SAMPLED]
    sample = [texts[i] for i in places.tolist()]
    return [
        f"About {max(0.01, cut / len(sample)):.0%} of the training texts are longer than {getattr(encoder, limit):,} "
        f"{UNITS[limit]}; only the beginning is read (model.options.{limit})."
        for limit, cut in encoder.count_cut(sample).items()
        if cut
    ]

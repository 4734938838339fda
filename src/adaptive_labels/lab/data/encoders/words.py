"""Texts as sequences of word ids."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.errors import check_positive
from adaptive_labels.lab.data.encoders import register_encoder
from adaptive_labels.lab.data.encoders.hashes import UInt64s, Words, code_points
from adaptive_labels.lab.data.encoders.text import Chunk, TextEncoder
from adaptive_labels.lab.data.stored_texts import Int64s

UNKNOWN = 1
_MERGE_AT = 4_000_000  # hashes counted before equal ones are brought together: bounds the memory of fitting


@register_encoder("words")
@dataclass(frozen=True)
class WordIds(TextEncoder):
    """Texts to word ids, in order, by a vocabulary that is fitted on the training texts.

    A word's id is its place in `words` plus 2; 0 is padding, 1 an unknown word.

    Args:
        words: the vocabulary, most frequent first. Fitted, it has the `vocabulary_size` (20,000) most frequent words
            that occur `min_count` (2) times.
        lowercase: read capital letters as small ones.
        max_length: how many characters of a text are read.
        max_words: how many words of a text are read.

    >>> import torch
    >>> encoder = WordIds.fit(["A town", "a town a"], min_count=1)
    >>> encoder.words, encoder.encode(["Town, a"]).batch(torch.tensor([0]))[0].tolist()
    (('a', 'town'), [[3, 1, 2]])
    >>> WordIds.from_dict(encoder.to_dict()) == encoder
    True
    """

    options = frozenset({"vocabulary_size", "min_count", "max_words", "max_length", "lowercase"})

    words: tuple[str, ...]
    lowercase: bool = True
    max_length: int = 4096
    max_words: int = 256
    _hashes: UInt64s = field(init=False, repr=False, compare=False)
    _ids: NDArray[np.int32] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_positive(max_length=self.max_length, max_words=self.max_words)
        object.__setattr__(self, "words", tuple(self.words))  # JSON has lists only
        codes, ends = code_points(list(self.words))
        starts = ends - np.diff(ends, prepend=0)
        hashes = Words(codes, starts, ends, np.arange(len(ends))).hashes()
        order = np.argsort(hashes)
        object.__setattr__(self, "_hashes", hashes[order])
        object.__setattr__(self, "_ids", (order + 2).astype(np.int32))

    @classmethod
    def _fit(
        cls, texts: Sequence[str], *, vocabulary_size: int = 20_000, min_count: int = 2, **settings: Any
    ) -> "WordIds":
        check_positive(vocabulary_size=vocabulary_size, min_count=min_count)
        empty = cls((), **settings)
        hashes, counts = empty._count(texts)
        often = np.flatnonzero(counts >= min_count)
        # Ties by the hash, so that the order of the texts decides nothing.
        order = often[np.lexsort((hashes[often], -counts[often]))][:vocabulary_size]
        return cls(tuple(empty._spell(texts, hashes[order])), **settings)

    @property
    def sizes(self) -> dict[str, int]:
        return {"vocabulary": len(self.words) + 2}

    def encode_chunks(self, texts: Sequence[str]) -> Iterator[Chunk]:
        """Yield the ids of up to `max_words` words of each text, some texts at a time."""
        for chunk in self._chunks(texts):
            words = Words.find(chunk)
            hashes = words.hashes()
            per_text = np.bincount(words.texts, minlength=len(chunk))
            first = np.cumsum(per_text) - per_text
            read = np.arange(len(hashes)) - first[words.texts] < self.max_words
            yield self._look_up(hashes[read]), np.minimum(per_text, self.max_words)

    def count_cut(self, texts: Sequence[str]) -> dict[str, int]:
        """How many texts have more than `max_length` characters, and how many more than `max_words` words.

        >>> WordIds((), max_words=2).count_cut(["one", "one two three"])
        {'max_length': 0, 'max_words': 1}
        """
        counts = (np.bincount(Words.find(chunk).texts) for chunk in self._chunks(texts))
        return super().count_cut(texts) | {"max_words": sum(int((count > self.max_words).sum()) for count in counts)}

    def _count(self, texts: Sequence[str]) -> tuple[UInt64s, Int64s]:
        """Return the different hashes of the texts' words, and how often each occurs."""
        hashes, counts = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
        waiting = 0
        for chunk in self._chunks(texts):
            different, often = np.unique(Words.find(chunk).hashes(), return_counts=True)
            hashes.append(different)
            counts.append(often)
            waiting += len(different)
            if waiting >= _MERGE_AT:
                merged, sums = _merge(hashes, counts)
                hashes, counts, waiting = [merged], [sums], 0
        return _merge(hashes, counts)

    def _spell(self, texts: Sequence[str], hashes: UInt64s) -> list[str]:
        """Return the words that have these hashes, reading texts until all are found."""
        spelt: dict[int, str] = {}
        for chunk in self._chunks(texts):
            if len(spelt) == len(hashes):
                break
            words = Words.find(chunk)
            seen = words.hashes()
            different, first = np.unique(seen, return_index=True)
            for place in first[np.isin(different, hashes)].tolist():
                value = int(seen[place])
                if value not in spelt:
                    word = words.codes[words.starts[place] : words.ends[place]]
                    spelt[value] = word.tobytes().decode("utf-32-le", "surrogatepass")
        return [spelt[value] for value in hashes.tolist()]

    def _look_up(self, hashes: UInt64s) -> NDArray[np.int32]:
        if not len(self._hashes):
            return np.full(len(hashes), UNKNOWN, np.int32)
        at = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        return np.where(self._hashes[at] == hashes, self._ids[at], UNKNOWN).astype(np.int32)


def _merge(hashes: list[UInt64s], counts: list[Int64s]) -> tuple[UInt64s, Int64s]:
    different, where = np.unique(np.concatenate(hashes), return_inverse=True)
    sums = np.bincount(where, np.concatenate(counts), len(different))  # in float64, which is exact up to 2^53
    return different, sums.astype(np.int64)

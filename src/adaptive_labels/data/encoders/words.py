"""Texts as the numbers of their words, in order.

Shapes: N texts, M words in all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from adaptive_labels.data.encoders.hashes import Codes, Int64s, UInt64s, Words, code_points, word_hashes
from adaptive_labels.data.encoders.registry import register_encoder
from adaptive_labels.data.encoders.text import Chunk, TextEncoder
from adaptive_labels.data.stored_texts import StoredTexts, text_lengths

UNKNOWN = 1
_MERGE_AT = 4_000_000
"""Hashes counted before equal ones are brought together: bounds the memory of fitting a vocabulary."""

COUNTED = 20_000
"""Of more texts than this in a split, only so many are searched for words, and the number is an estimate."""


@register_encoder("words")
@dataclass(frozen=True)
class WordIds(TextEncoder):
    """Texts to the numbers of their words, in order, by a vocabulary that was fitted on the training texts.

    A word's number is its place in `words` plus 2; 0 is padding, 1 a word that the vocabulary does not have.

    Fitted, the vocabulary is the `vocabulary_size` (20,000) most frequent words that occur `min_count` (2) times.

    Args:
        words: the vocabulary, most frequent first.
        lowercase: read capital letters as small ones.
        normalise: apply Unicode's NFKC first.
        max_length: how many characters of a text are read.
        max_words: how many words of a text are read.

    >>> encoder = WordIds.fit(["A town", "a town a"], min_count=1)
    >>> encoder.words, encoder.encode(["Town, a"]).batch(torch.tensor([0]))[0].tolist()
    (('a', 'town'), [[3, 1, 2]])
    >>> WordIds.from_dict(encoder.to_dict()) == encoder
    True
    """

    options = frozenset({"vocabulary_size", "min_count", "max_words", "max_length", "lowercase", "normalise"})

    words: tuple[str, ...]
    lowercase: bool = True
    normalise: bool = False
    max_length: int = 4096
    max_words: int = 256
    _hashes: UInt64s = field(init=False, repr=False, compare=False)
    _numbers: NDArray[np.int32] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("max_length", "max_words"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        object.__setattr__(self, "words", tuple(self.words))  # JSON has lists only
        codes, ends = code_points(list(self.words))
        starts = np.concatenate([np.zeros(1, np.int64), ends])[: len(ends)]
        hashes = word_hashes(codes, Words(starts, ends, np.arange(len(ends))))
        order = np.argsort(hashes)
        object.__setattr__(self, "_hashes", hashes[order])
        object.__setattr__(self, "_numbers", (order + 2).astype(np.int32))

    @classmethod
    def _fit(
        cls, texts: Sequence[str], *, vocabulary_size: int = 20_000, min_count: int = 2, **settings: Any
    ) -> "WordIds":
        """Return the encoder with the most frequent words: so many at most, each occurring so often at least."""
        for name, value in {"vocabulary_size": vocabulary_size, "min_count": min_count}.items():
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        empty = cls((), **settings)
        hashes, counts = empty._count(texts)
        kept = np.flatnonzero(counts >= min_count)
        # Ties by the hash, so that the order of the texts decides nothing.
        order = kept[np.lexsort((hashes[kept], -counts[kept]))][:vocabulary_size]
        return cls(tuple(empty._spell(texts, hashes[order])), **settings)

    @property
    def vocabulary(self) -> int:
        """How many numbers there are, padding and the unknown word included."""
        return len(self.words) + 2

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of a network that its encoder decides."""
        return {"vocabulary": self.vocabulary}

    def encode_chunks(self, texts: Sequence[str]) -> Iterator[Chunk]:
        """Yield the numbers of some texts' words after the other, up to `max_words` of each text."""
        for _, words, hashes, count in self._read(texts):
            per_text = np.bincount(words.texts, minlength=count)
            first = np.cumsum(per_text) - per_text
            kept = np.arange(len(hashes)) - first[words.texts] < self.max_words
            yield self._look_up(hashes[kept]), np.minimum(per_text, self.max_words)

    def limits(self) -> Iterator[tuple[str, str, Callable[[Sequence[str]], tuple[int, bool]]]]:
        """Yield the limits of characters and of words; see `TextEncoder.limits`.

        >>> (_, (option, limit, count)) = WordIds((), max_words=2).limits()
        >>> option, limit, count(["one", "one two three"])
        ('max_words', '2 words', (1, True))
        """
        yield from super().limits()
        yield "max_words", f"{self.max_words:,} words", self._count_wordy

    def _count_wordy(self, texts: Sequence[str]) -> tuple[int, bool]:
        """How many texts have more words than are read, and whether all were counted."""
        # A word has a character at least, so that shorter texts need not be looked at.
        possible = np.flatnonzero(text_lengths(texts) > self.max_words)
        every = max(1, -(-len(possible) // COUNTED))
        looked_at = possible[::every]
        some = (
            texts.subset(torch.from_numpy(looked_at))
            if isinstance(texts, StoredTexts)
            else [texts[i] for i in looked_at.tolist()]
        )
        found = 0
        for chunk in self._chunks(some):
            words = Words.find(*code_points(chunk))
            found += int((np.bincount(words.texts, minlength=len(chunk)) > self.max_words).sum())
        return (found, True) if every == 1 else (round(found * len(possible) / len(looked_at)), False)

    def _read(self, texts: Sequence[str]) -> Iterator[tuple[Codes, Words, UInt64s, int]]:
        """Yield chunks of texts: their characters, their words, the words' hashes, how many texts."""
        for chunk in self._chunks(texts):
            codes, ends = code_points(chunk)
            words = Words.find(codes, ends)
            yield codes, words, word_hashes(codes, words), len(chunk)

    def _count(self, texts: Sequence[str]) -> tuple[UInt64s, Int64s]:
        """Return the different hashes of the texts' words, and how often each occurs."""
        hashes, counts = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
        waiting = 0
        for _, _, found, _ in self._read(texts):
            different, often = np.unique(found, return_counts=True)
            hashes.append(different)
            counts.append(often)
            waiting += len(different)
            if waiting >= _MERGE_AT:
                merged, sums = _merge(hashes, counts)
                hashes, counts, waiting = [merged], [sums], 0
        return _merge(hashes, counts)

    def _spell(self, texts: Sequence[str], hashes: UInt64s) -> list[str]:
        """Return the words that have these hashes, reading texts until all are found."""
        order = np.argsort(hashes)
        ordered = hashes[order]
        spelt = [""] * len(hashes)
        missing = len(hashes)
        for codes, words, found, _ in self._read(texts):
            if not missing:
                break
            different, first = np.unique(found, return_index=True)
            at = np.searchsorted(ordered, different)
            hits = np.flatnonzero(ordered[np.minimum(at, len(ordered) - 1)] == different)
            for hit in hits.tolist():
                place = int(order[at[hit]])
                if not spelt[place]:
                    word = codes[words.starts[first[hit]] : words.ends[first[hit]]]
                    spelt[place] = word.tobytes().decode("utf-32-le", "surrogatepass")
                    missing -= 1
        return spelt

    def _look_up(self, hashes: UInt64s) -> NDArray[np.int32]:
        if not len(self._hashes):
            return np.full(len(hashes), UNKNOWN, np.int32)
        at = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        return np.where(self._hashes[at] == hashes, self._numbers[at], UNKNOWN).astype(np.int32)


def _merge(hashes: list[UInt64s], counts: list[Int64s]) -> tuple[UInt64s, Int64s]:
    different, where = np.unique(np.concatenate(hashes), return_inverse=True)
    sums = np.zeros(len(different), np.int64)
    np.add.at(sums, where, np.concatenate(counts))
    return different, sums

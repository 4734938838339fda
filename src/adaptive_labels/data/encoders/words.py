"""Encoders that keep the order of a text: numbers of words or of characters, one after the other.

Shapes: N texts, M words or characters in all of them, L in the longest of a batch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adaptive_labels.data.encoders.hashes import Codes, Int64s, UInt64s, Words, chunks, code_points, word_hashes
from adaptive_labels.data.encoders.ngrams import end_to_end, laid_out

__all__ = ["ZHANG_ALPHABET", "CharacterIds", "PaddedIds", "WordIds"]

PADDING, UNKNOWN = 0, 1
_MERGE_AT = 4_000_000
"""Hashes counted before equal ones are brought together: bounds the memory of fitting a vocabulary."""

ZHANG_ALPHABET = (
    "abcdefghijklmnopqrstuvwxyz0123456789-,;.!?:'\"/\\|_@#$%^&*~`+-=<>()[]{}\n"  # the hyphen is there twice
)
"""The 70 characters of Zhang et al. (2015), in their order."""


@dataclass(frozen=True, eq=False)
class PaddedIds:
    """Lists of numbers, one list a text, laid end to end; a batch of them is padded with 0 to its longest.

    Args:
        values: (M,) integers.
        offsets: (N+1,) int64; text i owns `values[offsets[i]:offsets[i + 1]]`.
    """

    values: Tensor
    offsets: Tensor

    def __len__(self) -> int:
        return len(self.offsets) - 1

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
        values, begins, lengths = end_to_end(self.values, self.offsets, indices)
        longest = max(1, int(lengths.max())) if len(lengths) else 1
        # Row i begins at i × `longest` in the padded lists, and at `begins` in those laid end to end.
        shifts = (torch.arange(len(lengths)) * longest - begins).repeat_interleave(lengths, output_size=len(values))
        padded = torch.zeros(len(lengths) * longest, dtype=torch.int64)
        padded[torch.arange(len(values)) + shifts] = values
        return padded.view(-1, longest), lengths.clamp_min(1)


@dataclass(frozen=True)
class WordIds:
    """Texts to the numbers of their words, in order, by a vocabulary that was fitted on the training texts.

    A word's number is its place in `words` plus 2; 0 is padding, 1 a word that the vocabulary does not have.

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
    def fit(
        cls, texts: Sequence[str], *, vocabulary_size: int = 20_000, min_count: int = 2, **settings: Any
    ) -> "WordIds":
        """Return the encoder with the most frequent words of these texts.

        Args:
            texts: the training texts.
            vocabulary_size: how many words at most.
            min_count: how often a word must occur.
            settings: the other arguments of the encoder.
        """
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

    @property
    def numbers(self) -> int:
        """How many different numbers a text may be given."""
        return self.vocabulary

    def encode(self, texts: Sequence[str]) -> PaddedIds:
        """Return the numbers of every text's words, up to `max_words` of them."""
        return PaddedIds(*laid_out(self.encode_chunks(texts)))

    def encode_chunks(self, texts: Sequence[str]) -> Iterator[tuple[NDArray[np.int32], Int64s]]:
        """Yield the numbers of some texts after the other, end to end, and how many each text has."""
        for _, words, hashes, count in self._read(texts):
            per_text = np.bincount(words.texts, minlength=count)
            first = np.cumsum(per_text) - per_text
            kept = np.arange(len(hashes)) - first[words.texts] < self.max_words
            yield self._look_up(hashes[kept]), np.minimum(per_text, self.max_words)

    def count_words(self, texts: Sequence[str]) -> Iterator[Int64s]:
        """Yield how many words each text has, within `max_length` characters, some texts after the other."""
        for chunk in chunks(texts, max_length=self.max_length, normalise=self.normalise, lowercase=self.lowercase):
            codes, ends = code_points(chunk)
            yield np.bincount(Words.find(codes, ends).texts, minlength=len(chunk))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings and the vocabulary as plain data."""
        names = ("words", "lowercase", "normalise", "max_length", "max_words")
        return {name: list(self.words) if name == "words" else getattr(self, name) for name in names}

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> "WordIds":
        """Return the encoder with these settings, as `to_dict` gave them."""
        return cls(**settings)

    def _read(self, texts: Sequence[str]) -> Iterator[tuple[Codes, Words, UInt64s, int]]:
        """Yield chunks of texts: their characters, their words, the words' hashes, how many texts."""
        for chunk in chunks(texts, max_length=self.max_length, normalise=self.normalise, lowercase=self.lowercase):
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


@dataclass(frozen=True)
class CharacterIds:
    """Texts to the numbers of their characters, last character first, as character-level networks read them.

    A character's number is its place in the alphabet plus 1 (the last place, where it is there twice); every other
    character is 0, and so is padding.

    Args:
        alphabet: the characters that have a number.
        length: how many characters of a text are read, from its beginning.
        lowercase: read capital letters as small ones.
        normalise: apply Unicode's NFKC first.
        reverse: last character first: the paper's order, in which the end of a text has a fixed place.

    >>> encoder = CharacterIds(alphabet="abc")
    >>> encoder.encode(["Ab!", ""]).batch(torch.tensor([0, 1]))[0].tolist()
    [[0, 2, 1], [0, 0, 0]]
    """

    alphabet: str = ZHANG_ALPHABET
    length: int = 1014
    lowercase: bool = True
    normalise: bool = False
    reverse: bool = True

    def __post_init__(self) -> None:
        if not self.alphabet:
            raise ValueError("alphabet is empty; at least one character must have a number")
        if self.length < 1:
            raise ValueError(f"length is {self.length}; it must be at least 1")

    @classmethod
    def fit(cls, texts: Sequence[str], *, alphabet: str = "zhang", **settings: Any) -> "CharacterIds":
        """Return the encoder for these training texts.

        Args:
            texts: the training texts.
            alphabet: `"zhang"`, the paper's 70 characters, which are English; or `"train"`, for any language: the up
                to 1,000 most frequent characters of the texts.
            settings: the other arguments of the encoder.
        """
        if alphabet not in ("zhang", "train"):
            raise ValueError(f"alphabet is {alphabet!r}; it must be 'zhang' or 'train'")
        if alphabet == "zhang":
            return cls(ZHANG_ALPHABET, **settings)
        reader = cls("?", **settings)
        counts = np.zeros(0x110000, np.int64)
        for chunk in reader._chunks(texts):
            counts += np.bincount(code_points(chunk)[0], minlength=len(counts))
        frequent = np.argsort(-counts, kind="stable")[:1000]
        return cls("".join(chr(code) for code in frequent.tolist() if counts[code]) or " ", **settings)

    @property
    def vocabulary(self) -> int:
        """How many numbers there are, 0 included."""
        return len(self.alphabet) + 1

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of a network that its encoder decides."""
        return {"vocabulary": self.vocabulary, "length": self.length}

    @property
    def numbers(self) -> int:
        """How many different numbers a text may be given."""
        return self.vocabulary

    def encode(self, texts: Sequence[str]) -> PaddedIds:
        """Return the numbers of every text's characters."""
        return PaddedIds(*laid_out(self.encode_chunks(texts)))

    def encode_chunks(self, texts: Sequence[str]) -> Iterator[tuple[NDArray[np.int32], Int64s]]:
        """Yield the numbers of some texts after the other, end to end, and how many each text has."""
        table = np.zeros(0x110000, np.int32)
        for place, character in enumerate(self.alphabet, start=1):
            table[ord(character)] = place
        for chunk in self._chunks(texts):
            codes, ends = code_points(chunk)
            counts = np.diff(ends, prepend=0)
            if self.reverse:
                # Place j of a text that spans s … e is read from s + e − 1 − j.
                codes = codes[np.repeat(2 * ends - counts - 1, counts) - np.arange(len(codes))]
            yield table[codes], counts

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> "CharacterIds":
        """Return the encoder with these settings, as `to_dict` gave them."""
        return cls(**settings)

    def _chunks(self, texts: Sequence[str]) -> Iterator[list[str]]:
        # Small letters can be more than the capitals they stand for, so that the length is cut again.
        for chunk in chunks(texts, max_length=self.length, normalise=self.normalise, lowercase=self.lowercase):
            yield [text[: self.length] for text in chunk]

"""Texts as bags of hashed n-grams.

An n-gram is a word, a run of neighbouring words, or a run of characters inside a word whose ends are marked. `hashes`
says what a word is, and how all of them are hashed at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.errors import check_positive
from adaptive_labels.lab.data.encoders import register_encoder
from adaptive_labels.lab.data.encoders.hashes import BASE, PolynomialHash, UInt64s, Words, mix_bits
from adaptive_labels.lab.data.encoders.text import Chunk, RaggedIds, TextEncoder
from adaptive_labels.lab.data.stored_texts import Int64s

# These are part of every trained text model: changing one changes what its n-grams mean.
_RUN_SALT = 0x57A4_0000  # plus the number of words
_CHARACTER_SALT = 0x57A5_0000
_WORD_BEGINS, _WORD_ENDS = 0x110000, 0x110001  # the first two numbers beyond Unicode


@register_encoder("ngrams")
@dataclass(frozen=True)
class HashedNgrams(TextEncoder):
    """Texts to hashed n-grams: words, runs of neighbouring words, and runs of characters inside words.

    An n-gram's id is its hash modulo `buckets`; nothing is fitted. The hashes are part of a trained model and stay
    the same between versions. The defaults suit short texts (names, questions); for texts of more than about 100
    characters words and pairs of words alone (`char_ngrams=None`) with 2^19 buckets did better.

    Args:
        words: single words, and runs of up to `word_ngrams` of them, are read.
        word_ngrams: the longest run of neighbouring words that is read.
        char_ngrams: shortest and longest run of characters inside a word (its ends marked) that is read; none for
            `None` or an empty list, which TOML has.
        buckets: the number of different ids.
        lowercase: read capital letters as small ones.
        max_length: how many characters of a text are read.

    >>> encoder = HashedNgrams(char_ngrams=None, buckets=1000)
    >>> encoded = encoder.encode(["A town", "", "a town a"])
    >>> len(encoded), encoded.offsets.tolist()
    (3, [0, 3, 3, 8])
    >>> HashedNgrams.from_dict(encoder.to_dict()) == encoder
    True
    """

    options = frozenset({"words", "word_ngrams", "char_ngrams", "buckets", "lowercase", "max_length"})
    lists = RaggedIds

    words: bool = True
    word_ngrams: int = 2
    char_ngrams: tuple[int, int] | None = (1, 5)
    buckets: int = 2**16
    lowercase: bool = True
    max_length: int = 4096

    def __post_init__(self) -> None:
        if not 1 <= self.word_ngrams <= 10:
            raise ValueError(f"word_ngrams is {self.word_ngrams}; it must be between 1 and 10")
        bounds = self.char_ngrams or None
        if isinstance(bounds, list):  # JSON and TOML have lists only, and no None
            bounds = tuple(bounds)
        object.__setattr__(self, "char_ngrams", bounds)
        pair = isinstance(bounds, tuple) and len(bounds) == 2 and all(isinstance(bound, int) for bound in bounds)
        if bounds is not None and not (pair and 1 <= bounds[0] <= bounds[1] <= 32):
            raise ValueError(
                f"char_ngrams is {bounds}; it must be a shortest and a longest length "
                "with 1 <= shortest <= longest <= 32, or None"
            )
        if not self.words and self.char_ngrams is None:
            raise ValueError("words is False and char_ngrams is None; at least one of them must be read")
        if not 1 <= self.buckets < 2**31:
            raise ValueError(f"buckets is {self.buckets}; it must be between 1 and 2147483647")
        check_positive(max_length=self.max_length, word_ngrams=self.word_ngrams, buckets=self.buckets)

    @property
    def sizes(self) -> dict[str, int]:
        return {"buckets": self.buckets}

    @classmethod
    def fit(cls, inputs: Sequence[str], **settings: Any) -> "HashedNgrams":
        return cls(**settings)

    def encode_chunks(self, texts: Sequence[str]) -> Iterator[Chunk]:
        """Yield the ids of all texts, some at a time; a text without a visible character has none."""
        return map(self._encode_chunk, self._chunks(texts))

    def _encode_chunk(self, texts: list[str]) -> Chunk:
        words = Words.find(texts)
        # Each kind of n-gram: the hashes, and the text of each, in the order of the texts.
        kinds: list[tuple[UInt64s, Int64s]] = []
        if self.words:
            kinds += _word_runs(words, self.word_ngrams)
        if self.char_ngrams is not None:
            kinds += _character_runs(words, *self.char_ngrams)
        ids = [((hashes % np.uint64(self.buckets)).astype(np.int32), text_of) for hashes, text_of in kinds]
        return _join_by_text(ids, len(texts))


def _word_runs(words: Words, longest: int) -> Iterator[tuple[UInt64s, Int64s]]:
    """Yield single words, then runs of two, and so on: (hashes, texts)."""
    hashes = words.hashes()
    yield hashes, words.texts
    runs = hashes
    for length in range(2, longest + 1):
        last = length - 1
        runs = runs[:-1] * np.uint64(BASE) + hashes[last:]
        inside = words.texts[: len(runs)] == words.texts[last:]
        yield mix_bits(runs[inside], _RUN_SALT + length), words.texts[last:][inside]


def _character_runs(words: Words, shortest: int, longest: int) -> Iterator[tuple[UInt64s, Int64s]]:
    """Yield the runs of characters inside each marked word, by length: (hashes, texts)."""
    lengths = words.ends - words.starts + 2  # with the two marks
    begins = np.cumsum(lengths) - lengths
    total = int(lengths.sum())
    # Each position's source; at the two marks it points beside the word, or outside the array, and is replaced.
    source = np.arange(total) + np.repeat(words.starts - 1 - begins, lengths)
    marked = words.codes.take(source, mode="clip")
    marked[begins] = _WORD_BEGINS
    marked[begins + lengths - 1] = _WORD_ENDS
    remaining = np.repeat(begins + lengths, lengths) - np.arange(total)
    texts = np.repeat(words.texts, lengths)
    prefix = PolynomialHash(marked)
    for length in range(shortest, longest + 1):
        fits = remaining >= length
        if length == 1:
            fits &= marked < _WORD_BEGINS  # a mark alone says nothing
        starts = np.flatnonzero(fits)
        yield mix_bits(prefix.of(starts, starts + length), _CHARACTER_SALT), texts[starts]


def _join_by_text(kinds: list[tuple[NDArray[np.int32], Int64s]], texts: int) -> Chunk:
    """Bring the n-grams of all kinds together text by text; return the ids, and how many each text has."""
    counts = np.stack([np.bincount(text_of, minlength=texts) for _, text_of in kinds])  # (kinds, texts)
    lengths = counts.sum(0)
    joined = np.empty(int(lengths.sum()), np.int32)
    begins = np.cumsum(lengths) - lengths + np.cumsum(counts, 0) - counts  # where each kind begins in each text
    for (ids, _), count, begin in zip(kinds, counts, begins, strict=True):
        shift = begin - (np.cumsum(count) - count)
        joined[np.arange(len(ids)) + np.repeat(shift, count)] = ids
    return joined, lengths

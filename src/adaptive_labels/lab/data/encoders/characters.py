"""Texts as sequences of character ids."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adaptive_labels.errors import check_positive
from adaptive_labels.lab.data.encoders import register_encoder
from adaptive_labels.lab.data.encoders.hashes import code_points
from adaptive_labels.lab.data.encoders.text import Chunk, TextEncoder

ZHANG_ALPHABET = (
    "abcdefghijklmnopqrstuvwxyz0123456789-,;.!?:'\"/\\|_@#$%^&*~`+-=<>()[]{}\n"  # the hyphen is there twice
)
"""The 70 characters of Zhang et al. (2015), in their order."""


@register_encoder("characters")
@dataclass(frozen=True)
class CharacterIds(TextEncoder):
    """Texts to character ids, last character first, the paper's order.

    A character's id is its place in the alphabet plus 1 (the last place, where it is there twice); every other
    character is 0, and so is padding.

    Args:
        alphabet: the characters that have an id. Fitted with `"zhang"`, they are the paper's 70, which are English;
            with `"train"`, for any language, the up to 1,000 most frequent characters of the training texts.
        length: how many characters of a text are read, from its beginning.
        lowercase: read capital letters as small ones.

    >>> import torch
    >>> encoder = CharacterIds(alphabet="abc")
    >>> encoder.encode(["Ab!", ""]).batch(torch.tensor([0, 1]))[0].tolist()
    [[0, 2, 1], [0, 0, 0]]
    """

    options = frozenset({"alphabet", "length", "lowercase"})
    limit = "length"

    alphabet: str = ZHANG_ALPHABET
    length: int = 1014
    lowercase: bool = True

    def __post_init__(self) -> None:
        if not self.alphabet:
            raise ValueError("alphabet is empty; at least one character must have an id")
        check_positive(length=self.length)

    @classmethod
    def _fit(cls, texts: Sequence[str], *, alphabet: str = "zhang", **settings: Any) -> "CharacterIds":
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
    def sizes(self) -> dict[str, int]:
        return {"vocabulary": len(self.alphabet) + 1, "length": self.length}

    def encode_chunks(self, texts: Sequence[str]) -> Iterator[Chunk]:
        table = np.zeros(0x110000, np.int32)
        for place, character in enumerate(self.alphabet, start=1):
            table[ord(character)] = place
        for chunk in self._chunks(texts):
            codes, ends = code_points(chunk)
            counts = np.diff(ends, prepend=0)
            # Place j of a text that spans s … e is read from s + e − 1 − j.
            last_first = np.repeat(2 * ends - counts - 1, counts) - np.arange(len(codes))
            yield table[codes[last_first]], counts

    def _chunks(self, texts: Sequence[str]) -> Iterator[list[str]]:
        # Small letters can be more than the capitals they stand for, so that the length is cut again.
        for chunk in super()._chunks(texts):
            yield [text[: self.length] for text in chunk]

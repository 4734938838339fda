"""Find and hash the words of many texts without a loop over words or characters.

Letters, marks and digits that stand together are a word; every other visible character, and every Chinese or Japanese
one (those scripts put no space between words), is a word by itself; spaces and control characters only separate. With
c_0 … c_{n−1} the code points of a run of characters and B an odd constant,

    hash = Σ_j c_j B^j   modulo 2^64.

Prefix sums P_i = Σ_{j<i} c_j B^j over all texts at once give every such hash as (P_e − P_s) · B^(−s) (an odd B has an
inverse). A 64-bit mixer, salted by the kind of n-gram, then spreads the hashes evenly.
"""

import unicodedata
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.lab.data.stored_texts import Int64s

# All of these are part of every trained text model: changing one changes what its n-grams mean.
BASE = 0x9E3779B97F4A7C15
_BASE_INVERSE = pow(BASE, -1, 2**64)
_WORD_SALT = 0x57A3_0000

_SEPARATOR, _PART_OF_WORD, _WORD_BY_ITSELF, _NOT_SEEN = 0, 1, 2, 255
_UNSPACED_SCRIPTS = ((0x2E80, 0xA000), (0xF900, 0xFB00), (0x20000, 0x40000))  # ideographs and kana

Codes = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]


def code_points(texts: list[str]) -> tuple[Codes, Int64s]:
    """Return the characters of all texts end to end, and where each text ends.

    >>> [array.tolist() for array in code_points(["ab", "", "c"])]
    [[97, 98, 99], [2, 2, 3]]
    """
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
    return codes, np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))


@dataclass(frozen=True, eq=False)
class Words:
    """The words of some texts: word i is `codes[starts[i]:ends[i]]`, in text `texts[i]`."""

    codes: Codes
    starts: Int64s
    ends: Int64s
    texts: Int64s

    @classmethod
    def find(cls, texts: list[str]) -> "Words":
        codes, text_ends = code_points(texts)
        roles = _roles(codes)
        part = roles == _PART_OF_WORD
        alone = roles == _WORD_BY_ITSELF
        # joined[i]: characters i−1 and i are parts of one word.
        joined = np.zeros(len(codes) + 1, np.bool_)
        joined[1:-1] = part[:-1] & part[1:]
        joined[text_ends] = False
        visible = part | alone
        starts = np.flatnonzero(visible & ~joined[:-1])
        ends = np.flatnonzero(visible & ~joined[1:]) + 1
        return cls(codes, starts, ends, np.searchsorted(text_ends, starts, side="right"))

    def hashes(self) -> UInt64s:
        return mix_bits(PolynomialHash(self.codes).of(self.starts, self.ends), _WORD_SALT)


def _roles(codes: Codes) -> NDArray[np.uint8]:
    """Return for each character whether it separates, is part of a word, or is a word by itself."""
    table = np.zeros(0x110000, np.uint8)
    table[codes] = _NOT_SEEN
    # A few hundred different characters at most in most languages, however long the texts.
    for code in np.flatnonzero(table):
        table[code] = _role(chr(code))
    return table[codes]


def _role(character: str) -> int:
    category = unicodedata.category(character)
    if category[0] == "Z" or category in ("Cc", "Cf"):
        return _SEPARATOR
    if category[0] not in "LMN":
        return _WORD_BY_ITSELF
    unspaced = any(low <= ord(character) < high for low, high in _UNSPACED_SCRIPTS)
    return _WORD_BY_ITSELF if unspaced else _PART_OF_WORD


class PolynomialHash:
    """The hash Σ_j c_j B^j of any run of the given characters."""

    def __init__(self, codes: Codes) -> None:
        self._sums = np.zeros(len(codes) + 1, np.uint64)
        np.cumsum(codes * _powers(BASE, len(codes)), out=self._sums[1:])
        self._inverse_powers = _powers(_BASE_INVERSE, len(codes))

    def of(self, starts: Int64s, ends: Int64s) -> UInt64s:
        return (self._sums[ends] - self._sums[starts]) * self._inverse_powers[starts]


def _powers(base: int, count: int) -> UInt64s:
    """base^0 … base^(count−1) modulo 2^64."""
    factors = np.full(count, base, np.uint64)
    factors[:1] = 1
    return np.cumprod(factors)


def mix_bits(hashes: UInt64s, salt: int) -> UInt64s:
    """Spread 64-bit hashes evenly and without collisions (the finaliser of the SplitMix64 generator)."""
    mixed = hashes + np.uint64(salt * BASE % 2**64)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed

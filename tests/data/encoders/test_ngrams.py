"""Hashed features against a slow reference of the same definition."""

import unicodedata
from collections import Counter

import pytest
import torch
from hypothesis import given, settings, strategies as st

from adaptive_labels.lab.data.encoders import text as text_encoders
from adaptive_labels.lab.data.encoders.ngrams import HashedNgrams
from adaptive_labels.lab.data.encoders.text import RaggedIds

GOLDEN = [
    *(243439, 27087, 241559, 61785, 259861, 41353, 237781, 113811, 154976, 108184, 241531, 117432, 59180),
    *(17771, 182686, 57052, 148380, 153631, 59040, 23724, 193463, 152384, 52337, 72161, 206609),
]

MASK = 2**64 - 1
BASE = 0x9E3779B97F4A7C15


def slow_words(text):
    """Cut a text into words, one character at a time."""
    words, current = [], ""
    for character in text:
        category = unicodedata.category(character)
        code = ord(character)
        unspaced = 0x2E80 <= code < 0xA000 or 0xF900 <= code < 0xFB00 or 0x20000 <= code < 0x40000
        if category[0] in "LMN" and not unspaced:
            current += character
            continue
        if current:
            words.append(current)
            current = ""
        if category[0] != "Z" and category not in ("Cc", "Cf"):
            words.append(character)
    return [*words, current] if current else words


def slow_mix(value, salt):
    value = (value + salt * BASE) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def slow_hash(codes):
    return sum(code * pow(BASE, j, 2**64) for j, code in enumerate(codes)) & MASK


def slow_features(encoder, text):
    """Return the text's features, readable, and their numbers."""
    text = text[: encoder.max_length]
    if encoder.lowercase:
        text = text.lower()
    words = slow_words(text)
    numbers = []
    if encoder.words:
        hashes = [slow_mix(slow_hash(map(ord, word)), 0x57A30000) for word in words]
        numbers += hashes
        for length in range(2, encoder.word_ngrams + 1):
            for i in range(len(words) - length + 1):
                run = 0
                for value in hashes[i : i + length]:
                    run = (run * BASE + value) & MASK
                numbers.append(slow_mix(run, 0x57A40000 + length))
    if encoder.char_ngrams:
        shortest, longest = encoder.char_ngrams
        for word in words:
            marked = [0x110000, *map(ord, word), 0x110001]
            for length in range(shortest, longest + 1):
                for i in range(len(marked) - length + 1):
                    piece = marked[i : i + length]
                    if len(piece) > 1 or piece[0] < 0x110000:
                        numbers.append(slow_mix(slow_hash(piece), 0x57A50000))
    return [number % encoder.buckets for number in numbers]


def features(encoded, i):
    return encoded.values[encoded.offsets[i] : encoded.offsets[i + 1]].tolist()


SETTINGS = [
    HashedNgrams(),
    HashedNgrams(buckets=2**31 - 1),
    HashedNgrams(words=False, char_ngrams=(1, 4), buckets=10_007),
    HashedNgrams(word_ngrams=1, char_ngrams=None),
    HashedNgrams(word_ngrams=4, char_ngrams=(2, 2), lowercase=False, max_length=30),
]

TEXTS = [
    "San José, Costa Rica!",
    "",
    "   \t\n ",
    "don't  stop",
    "Ⅷ ﬁne ＡＢＣ Straße ΟΔΟΣ İstanbul",
    "東京タワー and हिन्दी",
    "a",
    "e\u0301te\u0301 — \U0001f600\U0001f600",
    "x" * 100,
    "\ud800 lone surrogate",
    "null\0in between",
]


@pytest.mark.parametrize("encoder", SETTINGS)
def test_same_features_as_the_slow_reference(encoder):
    encoded = encoder.encode(TEXTS)
    assert len(encoded) == len(TEXTS)
    for i, text in enumerate(TEXTS):
        assert Counter(features(encoded, i)) == Counter(slow_features(encoder, text)), text


@given(
    texts=st.lists(st.text(max_size=40), max_size=8),
    encoder=st.sampled_from(SETTINGS),
    chunk=st.integers(1, 60),
)
@settings(max_examples=60, deadline=None)
def test_same_features_for_any_texts_and_any_chunks(texts, encoder, chunk):
    whole, text_encoders._CHUNK = text_encoders._CHUNK, chunk
    try:
        encoded = encoder.encode(texts)
    finally:
        text_encoders._CHUNK = whole
    assert len(encoded) == len(texts)
    for i, text in enumerate(texts):
        assert Counter(features(encoded, i)) == Counter(slow_features(encoder, text))


def test_the_hashes_never_change():
    # Trained models depend on these numbers. If this fails, the change that made it fail is wrong.
    encoded = HashedNgrams(char_ngrams=(3, 5), buckets=2**18).encode(["Zürich, 東京"])
    assert encoded.values.tolist() == GOLDEN
    assert encoded.values.dtype == torch.int32
    assert encoded.offsets.dtype == torch.int64


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"word_ngrams": 0}, "word_ngrams is 0; it must be between 1 and 10"),
        ({"char_ngrams": (3, 2)}, r"char_ngrams is \(3, 2\); it must be a shortest and a longest length"),
        ({"char_ngrams": (0, 2)}, r"char_ngrams is \(0, 2\)"),
        ({"char_ngrams": (1, 2, 3)}, r"char_ngrams is \(1, 2, 3\)"),
        ({"words": False, "char_ngrams": None}, "words is False and char_ngrams is None"),
        ({"buckets": 0}, "buckets is 0; it must be between 1 and 2147483647"),
        ({"max_length": 0}, "max_length is 0; it must be at least 1"),
        ({"max_length": 10.5}, "max_length is 10.5; it must be a whole number"),
        ({"word_ngrams": 1.5}, "word_ngrams is 1.5; it must be a whole number"),
        ({"char_ngrams": [1.5, 3]}, r"char_ngrams is \(1.5, 3\); it must be a shortest and a longest length"),
        ({"char_ngrams": 3}, "char_ngrams is 3; it must be a shortest and a longest length"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        HashedNgrams(**settings)


def test_batch_takes_the_lists_in_the_order_asked_for():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(0, 5, (50,), generator=generator)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    ragged = RaggedIds(torch.randint(100, (int(offsets[-1]),), generator=generator, dtype=torch.int32), offsets)
    indices = torch.randint(50, (30,), generator=generator)
    flat, begins = ragged.batch(indices)
    expected = [features(ragged, int(i)) for i in indices]
    assert flat.tolist() == [number for numbers in expected for number in numbers]
    assert begins.tolist() == [sum(map(len, expected[:i])) for i in range(30)]
    assert flat.dtype == begins.dtype == torch.int64
    empty_flat, empty_begins = ragged.batch(torch.tensor([], dtype=torch.int64))
    assert len(empty_flat) == len(empty_begins) == 0

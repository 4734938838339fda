"""Texts as numbers in order: against slow references, one word and one character at a time."""

import json
from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings, strategies as st
from test_ngrams import slow_words

from adaptive_labels.lab.data.encoders import text as text_encoders, words as sequences
from adaptive_labels.lab.data.encoders.characters import ZHANG_ALPHABET, CharacterIds
from adaptive_labels.lab.data.encoders.text import PaddedIds
from adaptive_labels.lab.data.encoders.words import WordIds

TEXTS = ["The cat, the dog", "", "a CAT and a cat", "北京 is far", "the the the"]


def lists(encoded):
    """The numbers of each text."""
    bounds = encoded.offsets.tolist()
    return [encoded.values[start:end].tolist() for start, end in pairwise(bounds)]


def slow_numbers(encoder, texts):
    number = {word: place for place, word in enumerate(encoder.words, start=2)}
    found = []
    for text in texts:
        text = text[: encoder.max_length]
        words = slow_words(text.lower() if encoder.lowercase else text)
        found.append([number.get(word, 1) for word in words][: encoder.max_words])
    return found


def test_the_vocabulary_is_the_most_frequent_words_of_the_texts():
    encoder = WordIds.fit(TEXTS, min_count=1)
    counts = Counter(word for text in TEXTS for word in slow_words(text.lower()))
    assert encoder.words[:2] == ("the", "cat")  # 5 and 3 times
    assert set(encoder.words) == set(counts)
    often = [counts[word] for word in encoder.words]
    assert often == sorted(often, reverse=True)
    assert WordIds.fit(TEXTS, vocabulary_size=2, min_count=1).words == ("the", "cat")
    assert set(WordIds.fit(TEXTS, min_count=2).words) == {"the", "cat", "a"}
    assert encoder.sizes == {"vocabulary": len(counts) + 2}


@given(
    train=st.lists(st.text(max_size=30), max_size=6),
    texts=st.lists(st.text(max_size=30), max_size=6),
    chunk=st.integers(1, 50),
    merge=st.integers(1, 50),
    lowercase=st.booleans(),
    max_words=st.integers(1, 5),
)
@settings(max_examples=60, deadline=None)
def test_same_numbers_for_any_texts_and_any_chunks(train, texts, chunk, merge, lowercase, max_words):
    whole = text_encoders._CHUNK, sequences._MERGE_AT
    text_encoders._CHUNK, sequences._MERGE_AT = chunk, merge
    try:
        encoder = WordIds.fit(train, min_count=1, lowercase=lowercase, max_words=max_words)
        encoded = encoder.encode(texts)
    finally:
        text_encoders._CHUNK, sequences._MERGE_AT = whole
    expected = {word for text in train for word in slow_words(text.lower() if lowercase else text)}
    assert set(encoder.words) == expected
    assert lists(encoded) == slow_numbers(encoder, texts)


def test_a_vocabulary_survives_json():
    encoder = WordIds.fit(TEXTS, min_count=1, max_words=3)
    again = WordIds.from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert again == encoder
    assert lists(again.encode(TEXTS)) == lists(encoder.encode(TEXTS))


def test_an_empty_vocabulary_knows_no_word():
    encoder = WordIds.fit(["once"], min_count=2)
    assert encoder.sizes == {"vocabulary": 2}
    assert lists(encoder.encode(["once more", ""])) == [[1, 1], []]


@pytest.mark.parametrize("argument", ["vocabulary_size", "min_count", "max_words", "max_length"])
def test_sizes_below_1_and_fractions_are_refused_by_name(argument):
    with pytest.raises(ValueError, match=f"{argument} is 0; it must be at least 1"):
        WordIds.fit(TEXTS, **{argument: 0})
    with pytest.raises(ValueError, match=f"{argument} is 9.5; it must be a whole number"):
        WordIds.fit(TEXTS, **{argument: 9.5})


def test_batches_are_padded_to_their_own_longest():
    encoded = PaddedIds(torch.arange(1, 8, dtype=torch.int32), torch.tensor([0, 3, 3, 7]))
    numbers, lengths = encoded.batch(torch.tensor([1, 0]))
    assert numbers.tolist() == [[0, 0, 0], [1, 2, 3]]
    assert lengths.tolist() == [1, 3]
    assert numbers.dtype == torch.int64
    assert encoded.batch(torch.tensor([1]))[0].tolist() == [[0]]
    assert encoded.lengths.tolist() == [3, 0, 4]


def test_the_alphabet_is_the_published_one():
    assert len(ZHANG_ALPHABET) == 70
    assert len(set(ZHANG_ALPHABET)) == 69
    assert CharacterIds().sizes["vocabulary"] == 71
    hyphen = CharacterIds().encode(["-"]).values.tolist()
    assert hyphen == [1 + ZHANG_ALPHABET.rindex("-")]


@given(texts=st.lists(st.text(max_size=20), max_size=6), chunk=st.integers(1, 50), length=st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_same_characters_for_any_texts_and_any_chunks(texts, chunk, length):
    encoder = CharacterIds(length=length)
    whole, text_encoders._CHUNK = text_encoders._CHUNK, chunk
    try:
        encoded = encoder.encode(texts)
    finally:
        text_encoders._CHUNK = whole
    number = {character: place for place, character in enumerate(ZHANG_ALPHABET, start=1)}
    expected = []
    for text in texts:
        read = [number.get(character, 0) for character in text[:length].lower()[:length]]
        expected.append(read[::-1])
    assert lists(encoded) == expected


def test_an_alphabet_of_the_training_texts_serves_any_language():
    encoder = CharacterIds.fit(["Ελλάδα", "Ελλάς"], alphabet="train")
    assert set(encoder.alphabet) == set("ελλάδαελλάς")
    assert encoder.alphabet[0] == "λ"  # the most frequent
    assert 0 not in encoder.encode(["Ελλάδα"]).values
    assert CharacterIds.fit(["Ελλάδα"]).encode(["Ελλάδα"]).values.tolist() == [0] * 6
    assert CharacterIds.from_dict(json.loads(json.dumps(encoder.to_dict()))) == encoder


@pytest.mark.parametrize(
    ("arguments", "said"),
    [({"alphabet": "greek"}, "alphabet is 'greek'; it must be 'zhang' or 'train'"), ({"length": 0}, "length is 0")],
)
def test_impossible_settings_are_refused_by_name(arguments, said):
    with pytest.raises(ValueError, match=said):
        CharacterIds.fit(TEXTS, **arguments)

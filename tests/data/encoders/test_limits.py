"""Texts that are longer than what is read of them are counted, by split and by limit."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from adaptive_labels.lab.data import Examples, length_notes
from adaptive_labels.lab.data.encoders import words
from adaptive_labels.lab.data.encoders.characters import CharacterIds
from adaptive_labels.lab.data.encoders.images import ImageEncoder
from adaptive_labels.lab.data.encoders.ngrams import HashedNgrams
from adaptive_labels.lab.data.encoders.words import WordIds
from adaptive_labels.lab.data.stored_texts import StoredTexts


def examples(texts) -> Examples:
    return Examples(texts, torch.zeros(len(texts), dtype=torch.int64))


def splits(train, validation=(), test=()):
    return [
        ("train", examples(list(train))),
        ("validation", examples(list(validation))),
        ("test", examples(list(test))),
    ]


def stored(texts: list[str]) -> StoredTexts:
    encoded = [text.encode() for text in texts]
    lengths = np.array([len(text) for text in texts], np.int32)
    file = Path(tempfile.mkdtemp()) / "texts.bin"
    file.write_bytes(b"".join(encoded))
    return StoredTexts(file, np.cumsum([0, *map(len, encoded)]), lengths, "key")


def test_nothing_is_said_where_nothing_is_cut():
    short = splits(["one two", ""], ["three"], ["four"])
    for encoder in (HashedNgrams(max_length=7), WordIds((), max_words=2), CharacterIds(length=7)):
        assert length_notes(encoder, short) == []
    images = Examples(torch.zeros(1, 1, 2, 2, dtype=torch.uint8), torch.tensor([0]))
    assert length_notes(ImageEncoder.fit(images.inputs), [("train", images)]) == []


@pytest.mark.parametrize(
    ("encoder", "option"),
    [
        (HashedNgrams(max_length=7), "max_length"),
        (CharacterIds(length=7), "length"),
        (WordIds((), max_length=7), "max_length"),
    ],
)
def test_characters(encoder, option):
    texts = splits(["1234567", "12345678", "123456789"], ["ß" * 7], ["ß" * 8])
    assert length_notes(encoder, texts) == [
        f"2 of 3 training and 1 of 1 test texts are longer than 7 characters; only the beginning is read "
        f"(model.options.{option})."
    ]


def test_words_of_all_splits():
    texts = splits(["a b c", "a b", "東京都", "abc def ghi"], ["a-b", "a b"], ["one, two", "one"])
    assert length_notes(WordIds((), max_words=2), texts) == [
        "3 of 4 training, 1 of 2 validation and 1 of 2 test texts are longer than 2 words; only the beginning is read "
        "(model.options.max_words)."
    ]


def test_one_text():
    assert length_notes(WordIds((), max_words=2), splits(["a b c"])) == [
        "1 of 1 training texts is longer than 2 words; only the beginning is read (model.options.max_words)."
    ]


def test_what_is_counted_is_what_the_encoder_leaves_out():
    draw = np.random.default_rng(0)
    texts = [" ".join(["word"] * int(n)) for n in draw.integers(0, 40, 500)]
    encoder = WordIds(("word",), max_words=20)
    whole = WordIds(("word",), max_words=10**6).encode(texts).lengths
    lost = int((encoder.encode(texts).lengths < whole).sum())
    for kind in (texts, stored(texts)):
        (note,) = length_notes(encoder, [("train", examples(kind))])
        assert note.startswith(f"{lost} of 500 training texts are longer than 20 words;")


@pytest.mark.parametrize("kind", [list, stored])
def test_of_many_texts_the_number_is_estimated(kind, monkeypatch):
    monkeypatch.setattr(words, "COUNTED", 500)
    draw = np.random.default_rng(0)
    texts = ["a b c" if cut else "abcde" for cut in draw.random(3_000) < 0.3]
    (note,) = length_notes(WordIds((), max_words=2), [("train", examples(kind(texts)))])
    assert note.startswith("about ")
    estimate = int(note.split()[1].replace(",", ""))
    assert abs(estimate - sum(text == "a b c" for text in texts)) < 150

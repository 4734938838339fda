"""Texts that are longer than what is read of them are counted for each limit."""

import pytest
import torch

from adaptive_labels.lab.data import length_notes
from adaptive_labels.lab.data.encoders.characters import CharacterIds
from adaptive_labels.lab.data.encoders.images import ImageEncoder
from adaptive_labels.lab.data.encoders.ngrams import HashedNgrams
from adaptive_labels.lab.data.encoders.words import WordIds


def test_nothing_is_said_where_nothing_is_cut():
    for encoder in (HashedNgrams(max_length=7), WordIds((), max_words=2), CharacterIds(length=7)):
        assert length_notes(encoder, ["one two", "", "a-b" if isinstance(encoder, CharacterIds) else "a b"]) == []
    images = torch.zeros(1, 1, 2, 2, dtype=torch.uint8)
    assert length_notes(ImageEncoder.fit(images), images) == []


@pytest.mark.parametrize(
    ("encoder", "unit", "option"),
    [
        (HashedNgrams(max_length=7), "7 characters", "max_length"),
        (CharacterIds(length=7), "7 characters", "length"),
        (WordIds((), max_length=7), "7 characters", "max_length"),
        (WordIds((), max_words=2), "2 words", "max_words"),
    ],
)
def test_the_share_of_long_texts_and_the_option(encoder, unit, option):
    words = option == "max_words"
    texts = ["a b c", "a-b", "東京都", "a b", "", "a"] if words else ["ß" * 8, "ß" * 9, "ß" * 10, "ß" * 7, "ß", ""]
    (note,) = length_notes(encoder, texts)
    beginning = "only the beginning is read"
    assert note == f"About 50% of the training texts are longer than {unit}; {beginning} (model.options.{option})."


def test_a_rare_long_text_is_not_rounded_away():
    (note,) = length_notes(WordIds((), max_words=2), ["a b c", *["a"] * 999])
    assert note.startswith("About 1% of")

"""TF-IDF beside scikit-learn's, whose words are made the same here."""

import random

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer

from adaptive_labels.lab.data import encoder_from_dict, encoder_to_dict
from adaptive_labels.lab.data.encoders.tfidf import TfIdf


def texts_of(count, seed):
    draw = random.Random(seed)
    words = [f"w{number}" for number in range(60)]
    return [" ".join(draw.choices(words, k=draw.randrange(9))) for _ in range(count)]


def dense(encoder, texts):
    ids, begins, weights = encoder.encode(texts).batch(torch.arange(len(texts)))
    rows = np.zeros((len(texts), encoder.sizes["features"]))
    text_of = np.searchsorted(begins.numpy(), np.arange(len(ids)), side="right") - 1
    np.add.at(rows, (text_of, ids.numpy()), weights.numpy())
    return rows


@pytest.mark.parametrize(("longest", "min_count"), [(1, 1), (2, 2)])
def test_is_what_scikit_learn_makes_of_the_same_words(longest, min_count):
    train, other = texts_of(80, 0), texts_of(30, 1)
    theirs = TfidfVectorizer(
        tokenizer=str.split, token_pattern=None, ngram_range=(1, longest), min_df=min_count, sublinear_tf=True
    ).fit(train)
    ours = TfIdf.fit(train, word_ngrams=longest, min_count=min_count)
    assert ours.sizes == {"features": len(theirs.vocabulary_)}
    for texts in (train, other):
        ours_rows, their_rows = dense(ours, texts), theirs.transform(texts).toarray()
        assert np.allclose(ours_rows @ ours_rows.T, their_rows @ their_rows.T, atol=1e-6)


def test_reads_the_most_frequent_alone():
    encoder = TfIdf.fit(["a b", "a b", "a c", "a c d"], word_ngrams=1, max_features=2)
    rows = dense(encoder, ["a", "b c d", "d"])
    assert np.allclose(rows.max(1), [1, 1, 0])
    assert np.allclose(rows.sum(1), [1, 1, 0])  # of b and c, which tie, one is read


def test_reads_what_occurs_once_where_nothing_occurs_twice():
    assert TfIdf.fit(["a", "b"], word_ngrams=1).sizes == {"features": 2}


def test_no_texts_and_no_words_are_no_error():
    encoder = TfIdf.fit(["", " "])
    assert len(encoder.encode([])) == 0
    assert [len(part) for part in encoder.encode(["a", ""]).batch(torch.arange(2))] == [0, 2, 0]


def test_survives_its_plain_form():
    encoder = TfIdf.fit(texts_of(20, 0), char_ngrams=[1, 3])
    again = encoder_from_dict(encoder_to_dict(encoder))
    assert again == encoder
    assert np.array_equal(dense(again, texts_of(9, 1)), dense(encoder, texts_of(9, 1)))

"""The file that goes out with an export reads inputs as the encoders of training do."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from PIL import Image

from adaptive_labels.lab.data import TableRows
from adaptive_labels.lab.data.encoders.characters import CharacterIds
from adaptive_labels.lab.data.encoders.columns import ColumnEncoder
from adaptive_labels.lab.data.encoders.ngrams import HashedNgrams
from adaptive_labels.lab.data.encoders.tfidf import TfIdf
from adaptive_labels.lab.data.encoders.words import WordIds
from adaptive_labels.lab.data.pixels import read_middle
from adaptive_labels.lab.experiments.export.encode import Encoder, read_image

FITTED = ["A town", "a big town a", "Crème brûlée", "naïve ﬁve, six!", "東京 Kyōto"]
ENCODERS = [
    HashedNgrams(),
    HashedNgrams(words=False, char_ngrams=(2, 3), lowercase=False, buckets=1000, max_length=7),
    HashedNgrams(char_ngrams=None, word_ngrams=3),
    TfIdf.fit(FITTED, word_ngrams=2, min_count=1),
    TfIdf.fit(FITTED, char_ngrams=(1, 2)),
    WordIds.fit(FITTED, min_count=1, max_words=3),
    CharacterIds(length=12),
    CharacterIds.fit(FITTED, alphabet="train", lowercase=False, length=5),
]
CELLS = st.one_of(st.sampled_from(["", " n/a", "1e400", "2_1", "red", "blue ", "-3.5", "1e3"]), st.text(max_size=3))


def portable(encoder) -> Encoder:
    return Encoder({"kind": encoder.kind, "settings": encoder.to_dict()}, Path())


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda encoder: f"{encoder.kind}")
@settings(max_examples=60)
@example(texts=["", "İstanbul İİİİİİİİİİİ", "a\u0301b\u200bc", "東京is", "a town a town", "x" * 5000])
@given(texts=st.lists(st.text(max_size=40), min_size=1, max_size=4))
def test_texts_become_the_numbers_that_training_reads(encoder, texts) -> None:
    found = portable(encoder)(texts)
    batch = [part.numpy() for part in encoder.encode(texts).batch(torch.arange(len(texts)))]
    if encoder.kind in ("words", "characters"):
        width = batch[0].shape[1]  # characters are padded to the network's length
        assert (found["ids"][:, :width].tolist(), found["lengths"].tolist()) == (batch[0].tolist(), batch[1].tolist())
        assert not found["ids"][:, width:].any()
        return
    weights = found.get("weights", np.ones(found["ids"].shape))
    bounds = [np.append(found["offsets"], len(found["ids"])), np.append(batch[1], len(batch[0]))]
    for (first, last), (start, end) in zip(*map(pairwise, bounds), strict=True):
        inside = found["ids"][first:last] >= 0
        mine = sorted(zip(found["ids"][first:last][inside], weights[first:last][inside], strict=True))
        theirs = batch[2][start:end].tolist() if len(batch) > 2 else [1.0] * (end - start)
        expected = sorted(zip(batch[0][start:end].tolist(), theirs, strict=True))
        assert [one for one, _ in mine] == [one for one, _ in expected]
        assert np.allclose([weight for _, weight in mine], [weight for _, weight in expected], atol=1e-6)


@given(cells=st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=4))
def test_rows_become_the_features_that_training_reads(cells) -> None:
    names, numeric = ("height", "weight", "colour"), (True, True, False)
    fitted = TableRows.of(names, numeric, [["1", "", "2.5"], ["5", "7", "6"], ["red", "", "blue"]])
    encoder = ColumnEncoder.fit(fitted)
    rows = [dict(zip(names, row, strict=True)) for row in cells]
    expected = encoder.encode(TableRows.of_records(names, numeric, rows)).batch(torch.arange(len(rows)))
    assert np.array_equal(portable(encoder)(rows)["features"], expected.numpy())
    assert np.array_equal(
        portable(encoder)([{"weight": 7}])["features"], portable(encoder)([{"weight": "7"}])["features"]
    )


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "I;16", "LA"])
@pytest.mark.parametrize(("size", "zoom"), [((8, 8), 1.0), ((12, 5), 1.1), ((20, 30), 1.0)])
def test_images_are_read_as_training_reads_them(tmp_path, mode, size, zoom) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 4), dtype=np.uint8)
    image = Image.fromarray(pixels[..., 0].astype(np.uint16) * 200) if mode == "I;16" else None
    (image or Image.fromarray(pixels, "RGBA").convert(mode)).save(tmp_path / "a.png")
    expected = read_middle((tmp_path / "a.png").read_bytes(), size[::-1], zoom)
    assert np.array_equal(read_image(tmp_path / "a.png", {"size": size, "zoom": zoom, "channels": 3}), expected)


def test_every_encoder_of_texts_is_among_these() -> None:
    from adaptive_labels.lab.data.encoders import ENCODERS as EVERY
    from adaptive_labels.lab.data.encoders.text import TextEncoder

    assert {type(encoder) for encoder in ENCODERS} == {one for one in EVERY.values() if issubclass(one, TextEncoder)}
    assert all(dataclasses.is_dataclass(encoder) for encoder in ENCODERS)

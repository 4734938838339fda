"""Embeddings are made once, by content, and found again whatever is asked for beside them."""

from __future__ import annotations

import errno
import hashlib
import os

import numpy as np
import pytest
import torch

from adaptive_labels.lab.data import DataError, pretraining_notes
from adaptive_labels.lab.data.dataset import ImageFiles
from adaptive_labels.lab.data.encoders import embeddings
from adaptive_labels.lab.data.encoders.image_embeddings import ImageEmbeddings
from adaptive_labels.lab.data.encoders.text_embeddings import MiniLMEmbeddings
from adaptive_labels.lab.models.pretrained.backbones import Backbone


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ALR_CACHE", str(tmp_path))
    monkeypatch.setattr(embeddings, "CACHED_FROM", 3)


class Squares:
    """A network of its own: a number to itself and its square."""

    def __init__(self, limit=None):
        self.asked, self.limit = [], limit

    def encode(self, numbers, key="squares"):
        def batches(indices):
            for start in range(0, len(indices), 2):
                places = list(range(len(indices)))[start : start + 2]
                if len(self.asked) == self.limit:
                    raise KeyboardInterrupt
                chosen = [numbers[indices[i]] for i in places]
                self.asked += chosen
                yield places, torch.tensor(chosen, dtype=torch.float32)

        digests = [hashlib.blake2b(str(n).encode(), digest_size=16).digest() for n in numbers]
        squares = Backbone("", 2, lambda: lambda batch: torch.stack([batch, batch**2], 1), "")
        return embeddings.embed_once({"key": key}, digests, squares, batches)


def whole(encoded):
    return encoded.batch(torch.arange(len(encoded)))[:, 0].tolist()


def test_the_same_inputs_are_encoded_once_in_any_order():
    network = Squares()
    assert whole(network.encode([3, 1, 4, 1, 5])) == [3, 1, 4, 1, 5]
    assert sorted(network.asked) == [1, 3, 4, 5]  # each once
    again = Squares()
    assert whole(again.encode([5, 5, 4, 3, 1])) == [5, 5, 4, 3, 1]
    assert again.asked == []
    more = Squares()
    assert whole(more.encode([9, 3, 2])) == [9, 3, 2]
    assert sorted(more.asked) == [2, 9]


def test_an_interruption_loses_no_more_than_a_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(embeddings, "PIECE", 4)

    Squares().encode(list(range(10, 20)))
    assert len(list((tmp_path / "embeddings").iterdir())) == 1  # the pieces are gathered
    with pytest.raises(KeyboardInterrupt):
        Squares(limit=6).encode(list(range(10)))
    network = Squares()
    assert whole(network.encode(list(range(10)))) == list(range(10))
    assert len(network.asked) == 6


def test_a_failure_keeps_nothing(tmp_path):
    def batches(indices):
        yield [0, 1], torch.zeros(2)
        raise ZeroDivisionError

    column = Backbone("", 1, lambda: lambda batch: batch[:, None], "")
    with pytest.raises(ZeroDivisionError):
        embeddings.embed_once("x", [bytes([i + 1]) * 16 for i in range(4)], column, batches)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs a system that reserves room")
def test_a_full_disk_is_a_sentence_and_not_a_bus_error(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DataError, match=r"the cache, cannot be written: No space left on device; name another folder"):
        Squares().encode([1, 2, 3])
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_what_an_encoder_has_seen_is_said():
    (usual,) = pretraining_notes(MiniLMEmbeddings(), "banking77")
    assert "Yahoo! Answers" in usual
    assert "flatter" in pretraining_notes(MiniLMEmbeddings(), "yahoo_answers")[1]
    assert pretraining_notes(object(), "yahoo_answers") == []


def test_another_image_of_the_same_name_and_size_is_encoded_again(tmp_path):
    """Where images stay files: in the cache the old features would be found, and nobody would see it."""
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"old")
    names, sizes = np.array([b"a.png", b"b.png", b"gone.png"]), np.array([3, 3, 3])
    images, encoder = ImageFiles(tmp_path, names, sizes, 32), ImageEmbeddings((0.0,) * 3, (1.0,) * 3, (32, 32), 3)
    before = encoder.digests(images)
    assert before == encoder.digests(images)
    assert len(set(before)) == 3
    (tmp_path / "b.png").write_bytes(b"new")
    os.utime(tmp_path / "b.png", ns=(1, (tmp_path / "a.png").stat().st_mtime_ns + 1))
    after = encoder.digests(images)
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, True]

"""What is kept on the disk: whole or not at all, made once, and again when what it depends on changes."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from adaptive_labels.lab.data import DataError
from adaptive_labels.lab.data.cache import CACHE, cache_folder, cached
from adaptive_labels.lab.data.dataset import Examples
from adaptive_labels.lab.data.encoders import fit_encoder, text
from adaptive_labels.lab.data.encoders.characters import CharacterIds
from adaptive_labels.lab.data.encoders.embeddings import encode_split
from adaptive_labels.lab.data.encoders.ngrams import HashedNgrams
from adaptive_labels.lab.data.encoders.text import PaddedIds, RaggedIds
from adaptive_labels.lab.data.encoders.words import WordIds
from adaptive_labels.lab.data.stored_texts import StoredTexts

WORDS = ["Town", "village", "größe", "東京", "a", "1984", "-", "city"]
LISTED = [" ".join(np.random.default_rng(n).choice(WORDS, n % 9)) for n in range(300)]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    monkeypatch.setattr(text, "CACHED_FROM", 100)
    return tmp_path / "cache"


def store(texts: list[str], key: str = "some texts") -> StoredTexts:
    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)])
    file = Path(tempfile.mkdtemp()) / "texts.bin"
    file.write_bytes(b"".join(encoded))
    return StoredTexts(file, offsets, np.array([len(text) for text in texts], np.int32), key)


def entries(cache: Path, kind: str) -> list[str]:
    return sorted(path.name for path in (cache / kind).iterdir()) if (cache / kind).exists() else []


def test_an_entry_is_made_once(cache):
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "x").write_text("content")

    assert cached("things", "key", make) == cache / "things" / "key"
    assert (cached("things", "key", make) / "x").read_text() == "content"
    assert len(made) == 1
    assert entries(cache, "things") == ["key"]


def test_what_fails_leaves_nothing(cache):
    def broken(folder: Path) -> None:
        (folder / "x").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached("things", "key", broken)
    assert entries(cache, "things") == []


def test_what_killed_processes_have_left_is_cleared_away(cache):
    for name, age in {".key.1.part": 2 * 86_400, ".key.2.part": 3_600, ".other.1.part": 2 * 86_400}.items():
        (cache / "things" / name).mkdir(parents=True)
        (cache / "things" / name / "x").write_text("half")
        os.utime(cache / "things" / name, times=(time.time() - age,) * 2)
    cached("things", "key", lambda folder: None)
    assert entries(cache, "things") == [".key.2.part", ".other.1.part", "key"]


def test_another_process_may_be_faster(cache):
    def make(folder: Path) -> None:
        (folder / "x").write_text("mine")
        other = cache / "things" / "key"
        other.mkdir()
        (other / "x").write_text("the other's")

    assert (cached("things", "key", make) / "x").read_text() == "the other's"
    assert entries(cache, "things") == ["key"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_said_to_be_so(cache):
    def full(folder: Path) -> None:
        (folder / "x").symlink_to("/dev/full")
        (folder / "x").write_bytes(b"more than fits")

    with pytest.raises(DataError) as caught:
        cached("things", "key", full)
    assert str(caught.value) == (
        f"{cache}, the cache, cannot be written: No space left on device; name another "
        "folder by the environment variable ALR_CACHE."
    )
    assert entries(cache, "things") == []


def test_where_it_is(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.setenv(CACHE, "")
    assert cache_folder() == Path("/somewhere/adaptive-labels")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "adaptive-labels"


ENCODERS = {
    "pairs of words": (HashedNgrams(char_ngrams=None, buckets=2**19), torch.int32, RaggedIds),
    "few buckets": (HashedNgrams(char_ngrams=(1, 3), buckets=2**15), torch.int16, RaggedIds),
    "words": (WordIds.fit(LISTED, min_count=1, max_words=5), torch.uint8, PaddedIds),
    "many words": (WordIds(tuple(f"w{n}" for n in range(40_000))), torch.int32, PaddedIds),
    "characters": (CharacterIds(length=20), torch.uint8, PaddedIds),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_stored_numbers_are_those_in_memory(name, cache, monkeypatch):
    encoder, dtype, kind = ENCODERS[name]
    expected = encoder.encode(LISTED)
    monkeypatch.setattr(text, "_CHUNK", 500)  # they are written in several pieces
    texts = store(LISTED)
    found = encode_split(encoder, Examples(texts, torch.zeros(len(texts), dtype=torch.int64)))
    assert type(found) is kind
    assert found.values.dtype == dtype
    assert torch.equal(found.offsets, expected.offsets)
    indices = torch.randperm(len(LISTED))
    for mine, theirs in zip(found.batch(indices), expected.batch(indices), strict=True):
        assert torch.equal(mine, theirs)
    assert len(entries(cache, "ids")) == 1
    (file,) = (cache / "ids").glob("*/values.bin")
    content = file.read_bytes()
    found.values[0] += 1  # the pages are shared until they are changed
    assert file.read_bytes() == content


def test_numbers_are_reused_for_the_same_texts_and_settings_only(cache, monkeypatch):
    texts, encoder = store(LISTED), HashedNgrams(buckets=1000)
    encoder.encode(store(LISTED[:99]))  # few are encoded in memory
    assert entries(cache, "ids") == []
    encoder.encode(texts)
    with monkeypatch.context() as patch:
        patch.setattr(HashedNgrams, "_encode_chunk", None)
        HashedNgrams(buckets=1000).encode(store(LISTED))
    others = [
        (HashedNgrams(buckets=1001), texts),
        (HashedNgrams(buckets=1000, lowercase=False), texts),
        (encoder, store(LISTED, "other texts")),
        (encoder, texts[1:]),
        (encoder, texts[np.arange(len(texts))[::-1]]),
    ]
    for number, (other, read_by_it) in enumerate(others, start=2):
        ids = other.encode(read_by_it)
        assert len(entries(cache, "ids")) == number
        assert torch.equal(ids.values.long(), other.encode(list(read_by_it)).values.long())


@pytest.mark.parametrize(
    ("reads", "settings"), [("words", {"min_count": 2, "max_words": 7}), ("characters", {"alphabet": "train"})]
)
def test_an_encoder_is_fitted_once(reads, settings, cache, monkeypatch):
    labels = torch.zeros(len(LISTED), dtype=torch.int64)
    expected = fit_encoder(reads, Examples(LISTED, labels), settings)
    assert fit_encoder(reads, Examples(store(LISTED), labels), settings) == expected
    assert len(entries(cache, "encoders")) == 1
    for kind in (WordIds, CharacterIds):
        monkeypatch.setattr(kind, "_fit", None)
    assert fit_encoder(reads, Examples(store(LISTED), labels), settings) == expected

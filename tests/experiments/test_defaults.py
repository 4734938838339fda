"""Which network is the default: an encoder where it is installed and the data suits it."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from adaptive_labels.lab.data import Dataset, Examples
from adaptive_labels.lab.experiments import defaults


def of(inputs, kind="text") -> Dataset:
    examples = Examples(inputs, torch.zeros(len(inputs), dtype=torch.int64))
    return Dataset("d", kind, ("a", "b"), examples, examples, examples, (), "f")


@pytest.fixture(autouse=True)
def _installed(monkeypatch):
    monkeypatch.setattr(defaults, "is_offered", lambda *_: True)


SENTENCES = ["Where is my new card?", "How do I find the exchange rate"] * 5


@pytest.mark.parametrize(
    ("texts", "model"),
    [
        (SENTENCES, "minilm"),
        (["Paris", "New York"] * 5, None),  # names
        (["Где моя новая карта", "Почему так долго идёт перевод"] * 5, None),  # not its language
        (["a word or two and more of them " * 20] * 10, None),  # long
        ([*SENTENCES, ""], "minilm"),
        ([""], None),
    ],
)
def test_texts(texts, model):
    assert defaults.default_model(of(texts)) == model
    assert defaults.choose(of(texts), None).settings["model.name"] == (model or "fasttext")


def test_many_texts(monkeypatch):
    monkeypatch.setattr(defaults, "MOST_CHARACTERS", 100)
    assert defaults.default_model(of(SENTENCES)) is None


@pytest.mark.parametrize(("channels", "model"), [(3, "efficientnet-lite0"), (1, None)])
def test_images(channels, model):
    images = of(torch.zeros(4, channels, 120, 120, dtype=torch.uint8), "image")
    assert defaults.default_model(images) == model
    assert defaults.has_needless_pixels(images) == (model is None)


def test_what_is_not_installed_is_no_default(monkeypatch):
    monkeypatch.setattr(defaults, "is_offered", lambda *_: False)
    assert defaults.default_model(of(SENTENCES)) is None
    assert defaults.largest_size(None, {}) is None
    assert defaults.largest_size("hf:folder", {}) == 224


def test_the_reason_says_how_to_go_without():
    assert "--model fasttext trains from scratch" in defaults.choose(of(SENTENCES), None).reason
    assert "from scratch" not in defaults.choose(of(SENTENCES), "minilm").reason
    tuned = defaults.choose(of(SENTENCES), "minilm", {"tune": True})
    assert tuned.model_options["encoder_lr"] == 0.04
    assert "which is trained alone before" in tuned.reason


def test_an_empty_split_changes_nothing():
    whole = of(SENTENCES)
    none = Examples([], torch.zeros(0, dtype=torch.int64))
    assert defaults.default_model(dataclasses.replace(whole, test=none)) == "minilm"

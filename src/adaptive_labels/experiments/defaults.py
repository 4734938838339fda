"""What is chosen by the data where the user chooses nothing: the network, its options and the recipe.

`docs/recipes.md` has the figures behind the rules, and says which choices had seen a test figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from adaptive_labels.data import Dataset, ImageFiles, StoredTexts
from adaptive_labels.data.stored_texts import text_lengths

# Texts of up to this many characters on average tell more by pieces of words than by whole ones.
SHORT_TEXT = 100
FEW_TEXTS = 15_000
FEW_IMAGES = 5_000
EXAMPLES_SEEN = 150_000  # over all epochs, within 5 to 20 of them


class Choice(NamedTuple):
    """Settings by dotted key, the model's options, and the reason in words."""

    settings: dict[str, Any]
    model_options: dict[str, Any]
    reason: str


def choose(dataset: Dataset, model: str | None) -> Choice:
    """The defaults for a data set; ``model`` is the one that the user asks for, if any."""
    return _for_texts(dataset, model) if dataset.kind == "text" else _for_images(dataset, model)


def _for_texts(dataset: Dataset, model: str | None) -> Choice:
    count = len(dataset.train)
    texts = dataset.train.inputs
    assert isinstance(texts, list | StoredTexts)
    if model is not None and not model.startswith("fasttext"):
        return _for_words_in_order(texts, model)
    length = float(text_lengths(texts).sum()) / max(count, 1)
    short = length <= SHORT_TEXT
    if short:
        options: dict[str, Any] = {"char_ngrams": [1, 4], "word_ngrams": 2, "buckets": 2**15}
        options |= {"dim": 128, "hidden": 64, "dropout": 0.5}
        features = "words, pairs of words and pieces of words"
    else:
        # Most buckets are not in a batch; leaving out their gradients costs no accuracy (docs/recipes.md).
        options = {"char_ngrams": None, "word_ngrams": 2, "buckets": 2**19, "sparse": True}
        options |= {"dim": 16, "hidden": 0, "dropout": 0.0}
        features = "words and pairs of words"
    settings = _text_settings(model or "fasttext", count, 256, 0.01 if short else 0.03, 0.0, "linear")
    reason = f"{'Short' if short else 'Long'} texts ({length:.0f} characters on average): the features are {features}."
    return Choice(settings, options, reason)


def _for_words_in_order(texts: Sequence[str], model: str) -> Choice:
    """A recipe for the networks that read word by word or character by character, small enough for a CPU."""
    options: dict[str, Any] = {}
    rate = 0.001
    if model.startswith("textrnn"):
        rate, options = 0.005, {"dim": 128, "context": 64, "hidden": 128, "dropout": 0.3}
    elif model.startswith("transformer"):
        rate, options = 0.002, ({} if "-w" in model else {"width": 64}) | {"layers": 2, "heads": 4}
    elif model.startswith("charcnn"):
        longest = int(text_lengths(texts).max(initial=0))
        options = {"length": min(max(longest, 123), 1014)} | ({} if "-w" in model else {"width": 64})
    settings = _text_settings(model, len(texts), 64, rate, 0.01, "one-cycle")
    return Choice(settings, options, f"{model} reads texts in order; its size is chosen for a small machine.")


def _text_settings(
    model: str, count: int, batch_size: int, rate: float, weight_decay: float, schedule: str
) -> dict[str, Any]:
    """Settings for so many texts; batches are twice as large for many of them."""
    return {
        "model.name": model,
        "training.epochs": min(max(round(EXAMPLES_SEEN / max(count, 1)), 5), 20),
        "training.batch_size": batch_size if count < FEW_TEXTS else 2 * batch_size,
        "training.optimizer": "adamw",
        "training.lr": rate,
        "training.weight_decay": weight_decay,
        "training.schedule": schedule,
        "training.augment": False,
        "training.residual_lr": 1.0,
    }


def _for_images(dataset: Dataset, model: str | None) -> Choice:
    large = isinstance(dataset.train.inputs, ImageFiles)
    settings = {
        "model.name": model or ("resnet50" if large else "preact-resnet18-w16"),
        "training.epochs": 90 if large else 20,
        "training.batch_size": 256 if large else 64 if len(dataset.train) < FEW_IMAGES else 128,
        "training.optimizer": "sgd",
        "training.lr": 0.1,
        "training.weight_decay": 1e-4 if large else 5e-4,
        "training.schedule": "cosine" if large else "one-cycle",
        "training.augment": True,
        # A batch's mean gradient of a row of S shrinks as 1/K. Adam does not mind, but with SGD's one rate for all S
        # would hardly learn: after 12 epochs of a tenth of CIFAR-100 it was still uniform.
        "training.residual_lr": float(dataset.num_classes),
    }
    if large:
        return Choice(settings, {}, "Large images: a residual network with 50 layers; random crops and flips.")
    reason = "Images: a narrow residual network; crops, and flips unless they are grey (a mirrored digit is none)."
    return Choice(settings, {}, reason)

"""Defaults that depend on the data: which networks suit it, their options and the recipe.

`docs/recipes.md` has the figures behind the rules, and says which choices had seen a test figure.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from adaptive_labels.lab.data import Dataset, ImageFiles, StoredTexts, encoder_options
from adaptive_labels.lab.data.encoders.image_embeddings import LARGE
from adaptive_labels.lab.data.sources.images import KEPT_SIZE
from adaptive_labels.lab.data.stored_texts import text_lengths
from adaptive_labels.lab.models import find_model
from adaptive_labels.lab.models.features import ENCODER_LR, HEAD_EPOCHS
from adaptive_labels.lab.models.pretrained import efficientnet_lite, minilm
from adaptive_labels.lab.models.pretrained.packages import INSTALL, is_offered, is_switched_off

# Texts of up to this many characters on average tell more by pieces of words than by whole ones.
SHORT_TEXT = 100
FEW_TEXTS = 15_000
MOST_TEXTS = 200_000  # of a linear classifier, which holds their n-grams in memory
MOST_WEIGHTS = 8_000_000  # of a linear classifier: all of them move in each step
FEW_IMAGES = 5_000
FEW_PIXELS = 5_000_000  # of all training images: a narrow network from scratch takes about two minutes
EXAMPLES_SEEN = 150_000  # over all epochs, within 5 to 20 of them
FEW_ROWS = 2_000
ROWS_SEEN = 2_000_000  # over all epochs, within 20 to 100 of them
LINEAR_SIDE = 16  # pixels of the images that a linear classifier reads
EXAMPLES_TUNED = 30_000  # by an encoder that is trained along, within 3 to 20 epochs
TUNED_LR = 5e-4  # the head's rate then


# Texts that suit the sentence encoder: so many words on average, such a share of letters from A to Z, and no more
# characters in all splits than it reads in minutes, of each text at most MOST_READ.
WORDS, LATIN, MOST_READ, MOST_CHARACTERS = 3, 0.9, 1_000, 5_000_000
LOOKED_AT = 1_000

PRETRAINED = ("minilm", "efficientnet-lite0")
"""The models that are a head on the features of a pretrained encoder in a package."""

_PACKAGES = {"minilm": (minilm.PACKAGE, "tokenizers"), "efficientnet-lite0": (efficientnet_lite.PACKAGE,)}


def is_pretrained(model: str | None, options: Mapping[str, Any]) -> bool:
    """Whether a model stands on a pretrained encoder."""
    return model is not None and (model in PRETRAINED or model.startswith("hf:") or bool(options.get("pretrained")))


def largest_size(model: str | None, options: Mapping[str, Any]) -> int | None:
    """The largest size in pixels that a folder of images is read in: more for a pretrained encoder; None if usual."""
    pretrained = is_offered(efficientnet_lite.PACKAGE) if model is None else is_pretrained(model, options)
    return LARGE if pretrained else None


def has_needless_pixels(dataset: Dataset) -> bool:
    """Whether images were read large for a pretrained encoder that does not suit them."""
    images = dataset.train.inputs
    large = isinstance(images, Tensor) and min(images.shape[2:]) > KEPT_SIZE
    return large and "efficientnet-lite0" not in candidates(dataset)


def candidates(dataset: Dataset, options: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """The networks that suit a data set; the first is the default where none is compared with another.

    With ``options`` of a network those that have these, if there are any.
    """
    encoder = suiting_encoder(dataset)
    with_encoder = [encoder] if encoder is not None and is_offered(*_PACKAGES[encoder]) else []
    if dataset.kind == "row":
        found = ["mlp", "linear-columns"]
    elif dataset.kind == "text":
        found = [*with_encoder, *(["linear", "fasttext"] if len(dataset.train) <= MOST_TEXTS else ["fasttext"])]
    else:
        found = _for_kind_of_images(dataset, with_encoder)
    return tuple([name for name in found if _has_options(name, options or {})] or found)


def suiting_encoder(dataset: Dataset) -> str | None:
    """The pretrained encoder that suits a data set, installed or not.

    The image encoder suits images in colour; the sentence encoder texts in Latin letters, unless they are mere names or
    too much for it to read.
    """
    if dataset.kind == "text":
        lengths = np.concatenate([text_lengths(examples.inputs) for _, examples in dataset.splits()])  # type: ignore[arg-type]
        suits = np.minimum(lengths, MOST_READ).sum() <= MOST_CHARACTERS and are_latin_words(dataset)
        return "minilm" if suits else None
    images = dataset.train.inputs
    colour = images.shape[1] == 3 if isinstance(images, Tensor) else dataset.name != "imagenet"
    return "efficientnet-lite0" if dataset.kind == "image" and colour else None


def missing_encoder(dataset: Dataset) -> str:
    """A sentence on how to install the encoder that suits a data set, or nothing."""
    encoder = suiting_encoder(dataset)
    if encoder is None or is_switched_off() or is_offered(*_PACKAGES[encoder]):
        return ""
    return f"{encoder}, a pretrained encoder, suits these {dataset.kind}s and is not installed: {INSTALL}"


def _for_kind_of_images(dataset: Dataset, with_encoder: list[str]) -> list[str]:
    """A network from scratch is tried along with the image encoder where that is soon done."""
    images = dataset.train.inputs
    found = ["preact-resnet18-w16", "linear-pixels"] if isinstance(images, Tensor) else ["resnet50"]
    if not with_encoder:
        return found
    if not isinstance(images, Tensor):
        return with_encoder
    return [*with_encoder, *found[images.numel() / 3 > FEW_PIXELS :]]


def _has_options(model: str, options: Mapping[str, Any]) -> bool:
    entry, _ = find_model(model)
    return set(options) <= {*entry.options, *encoder_options(entry.reads_with(options))}


def are_latin_words(dataset: Dataset) -> bool:
    """Whether texts are of words, mostly in Latin letters, as the sentence encoder reads them."""
    texts = dataset.train.inputs
    assert isinstance(texts, list | StoredTexts)
    some = [str(texts[i])[:MOST_READ] for i in range(0, len(texts), max(1, len(texts) // LOOKED_AT))]
    letters = [letter for text in some for letter in text if letter.isalpha()]
    latin = sum(letter.isascii() for letter in letters)
    words = sum(len(text.split()) for text in some)
    return latin >= LATIN * len(letters) and words >= WORDS * len(some)


class Choice(NamedTuple):
    """Settings by dotted key, the model's options, and the reason in words."""

    settings: dict[str, Any]
    model_options: dict[str, Any]
    reason: str


def choose(dataset: Dataset, model: str | None, options: Mapping[str, Any] | None = None) -> Choice:
    """The defaults for a data set; ``model`` and its ``options`` are those that the user asks for, if any."""
    options = options or {}
    if model is None:
        model, *others = candidates(dataset, options)
        choice = choose(dataset, model, options)
        tried = f"`alr compare` tries {' and '.join(others)} as well; --model takes any." if others else ""
        return choice._replace(reason=" ".join(filter(None, [choice.reason, tried, missing_encoder(dataset)])))
    if is_pretrained(model, options):
        return _for_features(dataset, model, bool(options.get("tune")))
    if dataset.kind == "row":
        return _for_rows(dataset, model)
    return _for_texts(dataset, model) if dataset.kind == "text" else _for_images(dataset, model)


def _for_texts(dataset: Dataset, model: str) -> Choice:
    count = len(dataset.train)
    texts = dataset.train.inputs
    assert isinstance(texts, list | StoredTexts)
    if model == "linear":
        return _for_linear(dataset, texts)
    if not model.startswith("fasttext"):
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
    rate = 0.01 if short else 0.03
    settings = _recipe(model, _epochs(count), 256 if count < FEW_TEXTS else 512, rate, 0.0, "linear")
    reason = f"{'Short' if short else 'Long'} texts ({length:.0f} characters on average): the features are {features}."
    return Choice(settings, options, reason)


def _for_linear(dataset: Dataset, texts: Sequence[str]) -> Choice:
    """Recipes that reach scikit-learn's fit of the same features (docs/recipes.md has the figures).

    On words AdamW, which steps as far for a rare one as for a frequent one, is up to 3 points behind SGD.
    """
    some = [len(str(texts[i]).split()) for i in range(0, len(texts), max(1, len(texts) // LOOKED_AT))]
    are_names = sum(some) < WORDS * len(some)
    options = {
        "char_ngrams": [1, 4] if are_names else None,
        "max_features": max(1_000, min(50_000, MOST_WEIGHTS // dataset.num_classes)),
        "dropout": 0.5 if are_names else 0.3,
    }
    epochs, batch_size = _epochs(len(texts), 5, 12), 128 if len(texts) < FEW_TEXTS else 256
    if are_names:
        settings = _recipe("linear", epochs, batch_size, 0.03, 0.0, "linear")
    else:
        rate = float(round(4 * dataset.num_classes**0.5))
        settings = _recipe("linear", epochs, batch_size, rate, 1e-5, "linear", optimizer="sgd")
    features = "words, pairs of words and pieces of words" if are_names else "words and pairs of words"
    return Choice(settings, options, f"A linear classifier of TF-IDF: the features are {features}.")


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
    count = len(texts)
    settings = _recipe(model, _epochs(count), 64 if count < FEW_TEXTS else 128, rate, 0.01, "one-cycle")
    return Choice(settings, options, f"{model} reads texts in order; its size is chosen for a small machine.")


def _for_features(dataset: Dataset, model: str, tune: bool) -> Choice:
    """A recipe for a head, with many epochs, since it trains in seconds; with ``tune`` for its encoder, too."""
    count, of_images = len(dataset.train), dataset.kind == "image"
    options: dict[str, Any] = {"hidden": 512, "dropout": 0.5 if dataset.kind == "text" else 0.8}
    if tune:
        epochs = _epochs(count, 3, 20, EXAMPLES_TUNED)
        settings = _recipe(model, epochs, 32, TUNED_LR, 0.01, "one-cycle", augment=of_images)
        options |= {"encoder_lr": ENCODER_LR, "head_epochs": HEAD_EPOCHS}
        how = "it is trained along with its head, which is trained alone before (head_epochs), at a smaller rate "
        how += "(encoder_lr)."
    else:
        batch_size = 32 if count < 2_000 else 128 if count < FEW_TEXTS else 256
        rate = 0.001 if of_images else 0.002
        settings = _recipe(model, _epochs(count, 10, 50), batch_size, rate, 0.01, "one-cycle")
        how = "its features are made once and kept; a small head is trained on them."
    return Choice(settings, options, f"{model} is a pretrained encoder: {how}")


def _for_rows(dataset: Dataset, model: str) -> Choice:
    """The recipe of `AdaptiveLabelClassifier`; few rows are seen in smaller batches."""
    count = len(dataset.train)
    epochs, batch_size = _epochs(count, 20, 100, ROWS_SEEN), 32 if count < FEW_ROWS else 200
    settings = _recipe(model, epochs, batch_size, 0.004, 1e-4, "linear", residual_lr=5.0)
    if model == "linear-columns":
        return Choice(settings, {}, "Rows of a table: a linear classifier.")
    return Choice(settings, {"hidden": [100], "dropout": 0.0}, "Rows of a table: a perceptron with one hidden layer.")


def _for_images(dataset: Dataset, model: str) -> Choice:
    # A batch's mean gradient of a row of S shrinks as 1/K. Adam does not mind, but with SGD's one rate for all S would
    # hardly learn: after 12 epochs of a tenth of CIFAR-100 it was still uniform.
    others = {"optimizer": "sgd", "augment": True, "residual_lr": float(dataset.num_classes)}
    if isinstance(dataset.train.inputs, ImageFiles):
        settings = _recipe(model, 90, 256, 0.1, 1e-4, "cosine", **others)
        return Choice(settings, {}, "Large images: a residual network with 50 layers; random crops and flips.")
    batch_size = 64 if len(dataset.train) < FEW_IMAGES else 128
    if model == "linear-pixels":
        images: Any = dataset.train.inputs
        side = min(LINEAR_SIDE, *images.shape[2:])
        settings = _recipe(model, _epochs(len(dataset.train)), batch_size, 0.01, 0.01, "linear")
        return Choice(settings, {"side": side}, f"Images: a linear classifier of {side}×{side} pixels.")
    settings = _recipe(model, 20, batch_size, 0.1, 5e-4, "one-cycle", **others)
    reason = "Images: a narrow residual network; crops, and flips unless they are grey (a mirrored digit is none)."
    return Choice(settings, {}, reason)


def _epochs(count: int, least: int = 5, most: int = 20, seen: int = EXAMPLES_SEEN) -> int:
    """So many epochs that about ``seen`` examples are seen, within bounds."""
    return min(max(round(seen / max(count, 1)), least), most)


def _recipe(
    model: str, epochs: int, batch_size: int, lr: float, weight_decay: float, schedule: str, **others: Any
) -> dict[str, Any]:
    """The settings that the data chooses; those not given are AdamW's without augmentation."""
    training = {
        "epochs": epochs,
        "batch_size": batch_size,
        "optimizer": "adamw",
        "lr": lr,
        "weight_decay": weight_decay,
        "schedule": schedule,
        "augment": False,
        "residual_lr": 1.0,
        **others,
    }
    return {"model.name": model, **{f"training.{name}": value for name, value in training.items()}}

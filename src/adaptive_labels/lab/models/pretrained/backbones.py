"""The description of a pretrained network without its last layer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

MOST_TOKENS = 512  # that are read of a text at most
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # as the field has them


@dataclass(frozen=True)
class Backbone:
    """A network that turns what it reads into features."""

    weights: str  # a hash of them
    width: int  # how many features
    load: Callable[[], nn.Module]  # in evaluation mode, without gradients; called with a batch it gives (n, width)
    note: str  # a sentence on what it was trained on
    seen: Mapping[str, str] = field(default_factory=dict)
    """By the name of a data set that it has seen: a sentence that warns of it."""
    check: Callable[[], object] = lambda: None
    """Refuses to go on if what it needs is not installed, in a sentence."""
    licence: str = ""  # of the weights, as SPDX names it; empty where that is not known here
    source: str = ""  # what the weights are called on the Hugging Face hub


@dataclass(frozen=True)
class TextBackbone(Backbone):
    """One that reads token numbers (n, L) and how many of each row are a text's (n,)."""

    tokenize: Callable[[Sequence[str], int], list[list[int]]] = lambda texts, most: []
    """The token numbers of texts, at most so many of each."""
    most_tokens: int = MOST_TOKENS
    tokenizer: Callable[[], Path] = Path
    """Where the tokenizer is, as a file of the library `tokenizers`."""


@dataclass(frozen=True)
class ImageBackbone(Backbone):
    """One that reads images (n, 3, S, S), normalised."""

    mean: tuple[float, ...] = (0.5, 0.5, 0.5)  # of pixels between 0 and 1
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    large: int = 224  # the size S that it was trained on
    small: int = 224  # what is enough for images that are small themselves
    only: int | None = None  # the one size that it can read, if there is but one

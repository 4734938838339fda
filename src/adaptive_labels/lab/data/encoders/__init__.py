"""Encoders: texts, images or rows → batches of tensors that a network reads.

A new encoder is a file in this folder that registers its class by what a network reads.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, ClassVar, Protocol, Self, TypeVar

from torch import Tensor

from adaptive_labels.errors import UserError, did_you_mean
from adaptive_labels.lab.data.dataset import Examples


class EncodedExamples(Protocol):
    """One split's inputs, ready to give whole batches."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor) -> Tensor | tuple[Tensor, ...]:
        """What the network reads of the examples at `indices` (int64, (n,))."""


class Encoder(Protocol):
    """Turns a split's inputs (texts or images) into what a network reads; it may keep what it makes in `data.cache`.

    Of a subclass that is a dataclass, `to_dict` gives the fields, and `from_dict` takes them.
    """

    kind: ClassVar[str] = ""  # its name in the files of a run
    options: ClassVar[frozenset[str]]  # the names of the options of `fit`; they stand among a model's options

    @property
    def sizes(self) -> dict[str, int]:
        """The options of a network that its encoder decides."""

    @classmethod
    def fit(cls, inputs: Any, **options: Any) -> Self:
        """Return the encoder for inputs like these, the training inputs."""

    def encode(self, inputs: Any) -> EncodedExamples:
        """Return the inputs of a split, ready for batches."""

    def to_dict(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.init}  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        return cls(**settings)


ENCODERS: dict[str, type[Encoder]] = {}
"""Every encoder, by what a network with it reads."""

EncoderType = TypeVar("EncoderType", bound=Encoder)


def register_encoder(reads: str) -> Callable[[type[EncoderType]], type[EncoderType]]:

    def register(cls: type[EncoderType]) -> type[EncoderType]:
        cls.kind = reads
        ENCODERS[reads] = cls
        return cls

    return register


def encoder_options(reads: str) -> frozenset[str]:
    """The settings of how inputs are read; they stand among a model's options.

    >>> sorted(encoder_options("words"))
    ['lowercase', 'max_length', 'max_words', 'min_count', 'vocabulary_size']
    """
    return _find(reads).options


def fit_encoder(reads: str, examples: Examples, settings: Mapping[str, Any]) -> Encoder:
    """Return the encoder for a network that reads n-grams, words, characters or pixels, fitted on these examples."""
    _, _, name = reads.partition(":")  # of a network of a library: hf-text:NAME
    named = {"name": name} if name else {}
    return _find(reads).fit(examples.inputs, **named, **settings)


def encoder_to_dict(encoder: Encoder) -> dict[str, Any]:
    return {"kind": encoder.kind, "settings": encoder.to_dict()}


def encoder_from_dict(stored: Mapping[str, Any]) -> Encoder:
    """The encoder that a run has stored, as `encoder_to_dict` gave it.

    >>> encoder_from_dict({"kind": "ngrams", "settings": {"buckets": 10}}).sizes
    {'buckets': 10}
    """
    return ENCODERS[stored["kind"]].from_dict(stored["settings"])


def _find(reads: str) -> type[Encoder]:
    kind = reads.partition(":")[0]
    if kind not in ENCODERS:
        raise UserError(f"no encoder makes {reads!r}, only {', '.join(ENCODERS)}{did_you_mean(reads, ENCODERS)}")
    return ENCODERS[kind]


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

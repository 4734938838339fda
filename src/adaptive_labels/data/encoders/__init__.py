"""Encoders: what a network reads, made from texts or images, as whole batches of tensors."""

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from adaptive_labels.data.dataset import Examples
from adaptive_labels.data.encoders.registry import ENCODERS, EncodedExamples, Encoder, register_encoder
from adaptive_labels.data.encoders.text import length_notes
from adaptive_labels.errors import UserError, did_you_mean

__all__ = [
    "ENCODERS",
    "EncodedExamples",
    "Encoder",
    "encode",
    "encoder_from_dict",
    "encoder_options",
    "encoder_to_dict",
    "fit_encoder",
    "length_notes",
    "register_encoder",
]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")


def encoder_options(reads: str) -> frozenset[str]:
    """The settings of how inputs are read; they stand among a model's options.

    >>> sorted(encoder_options("words"))
    ['lowercase', 'max_length', 'max_words', 'min_count', 'normalise', 'vocabulary_size']
    """
    return _find(reads).options


def fit_encoder(reads: str, examples: Examples, settings: Mapping[str, Any]) -> Encoder:
    """Return the encoder for a network that reads features, words, characters or pixels, fitted on these examples."""
    return _find(reads).fit(examples.inputs, **settings)


def encode(encoder: Encoder, examples: Examples) -> EncodedExamples:
    """One split's inputs, ready to give whole batches."""
    return encoder.encode(examples.inputs)


def encoder_to_dict(encoder: Encoder) -> dict[str, Any]:
    """An encoder as plain data, with its kind."""
    return {"kind": encoder.kind, "settings": encoder.to_dict()}


def encoder_from_dict(stored: Mapping[str, Any]) -> Encoder:
    """The encoder that a run has stored, as `encoder_to_dict` gave it.

    >>> encoder_from_dict({"kind": "text", "settings": {"buckets": 10}}).sizes
    {'buckets': 10}
    """
    kinds = {encoder.kind: encoder for encoder in ENCODERS.values()}
    return kinds[stored["kind"]].from_dict(stored["settings"])


def _find(reads: str) -> type[Encoder]:
    if reads not in ENCODERS:
        raise UserError(f"no encoder makes {reads!r}, only {', '.join(ENCODERS)}{did_you_mean(reads, ENCODERS)}")
    return ENCODERS[reads]

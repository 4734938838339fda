"""Which encoder makes what a network reads, and which of a model's options are its encoder's."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from torch import Tensor

from adaptive_labels.data.dataset import Examples, ImageFiles
from adaptive_labels.data.encoders.image_files import EncodedFiles
from adaptive_labels.data.encoders.ngrams import HashedNgrams, ImageEncoder, ImageTensors, RaggedIds
from adaptive_labels.data.encoders.stored import encode_stored, fit_stored
from adaptive_labels.data.encoders.words import CharacterIds, PaddedIds, WordIds
from adaptive_labels.data.stored_texts import StoredTexts

__all__ = [
    "EncodedExamples",
    "Encoder",
    "encode",
    "encoder_from_dict",
    "encoder_options",
    "encoder_to_dict",
    "fit_encoder",
]

Encoder = HashedNgrams | WordIds | CharacterIds | ImageEncoder
EncodedExamples = RaggedIds | PaddedIds | ImageTensors | EncodedFiles

# By the name under which a run stores them; "text" is the oldest of the text encoders.
_STORED: dict[str, type[Encoder]] = {
    "text": HashedNgrams,
    "words": WordIds,
    "characters": CharacterIds,
    "image": ImageEncoder,
}
_OPTIONS = {
    "features": frozenset(field.name for field in fields(HashedNgrams)),
    "words": frozenset({"vocabulary_size", "min_count", "max_words", "max_length", "lowercase", "normalise"}),
    "characters": frozenset({"alphabet", "length", "reverse", "lowercase", "normalise"}),
    "pixels": frozenset[str](),
}


def encoder_options(reads: str) -> frozenset[str]:
    """The settings of how inputs are read; they stand among a model's options.

    >>> sorted(encoder_options("words"))
    ['lowercase', 'max_length', 'max_words', 'min_count', 'normalise', 'vocabulary_size']
    """
    return _OPTIONS[reads]


def fit_encoder(reads: str, examples: Examples, settings: Mapping[str, Any]) -> Encoder:
    """Return the encoder for a network that reads features, words, characters or pixels, fitted on these examples."""
    inputs = examples.inputs
    if isinstance(inputs, Tensor):
        return ImageEncoder.fit(inputs)
    if isinstance(inputs, ImageFiles):
        return ImageEncoder.for_files(inputs)
    if reads == "features":
        return HashedNgrams.from_dict(settings)
    kind = WordIds if reads == "words" else CharacterIds
    return fit_stored(kind, inputs, settings) if isinstance(inputs, StoredTexts) else kind.fit(inputs, **settings)


def encode(encoder: Encoder, examples: Examples) -> EncodedExamples:
    """One split's inputs, ready to give whole batches."""
    inputs = examples.inputs
    if isinstance(encoder, ImageEncoder):
        assert isinstance(inputs, Tensor | ImageFiles)
        return encoder.encode(inputs)
    assert isinstance(inputs, list | StoredTexts)
    return encode_stored(encoder, inputs) if isinstance(inputs, StoredTexts) else encoder.encode(inputs)


def encoder_to_dict(encoder: Encoder) -> dict[str, Any]:
    """An encoder as plain data, with its kind."""
    kind = next(name for name, stored in _STORED.items() if type(encoder) is stored)
    return {"kind": kind, "settings": encoder.to_dict()}


def encoder_from_dict(stored: Mapping[str, Any]) -> Encoder:
    """The encoder that a run has stored, as `encoder_to_dict` gave it.

    >>> encoder_from_dict(encoder_to_dict(HashedNgrams(buckets=10))).buckets
    10
    """
    return _STORED[stored["kind"]].from_dict(stored["settings"])

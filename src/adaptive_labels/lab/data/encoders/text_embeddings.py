"""Texts as features of a frozen pretrained encoder, or as tokens for one that is tuned."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adaptive_labels.errors import check_positive
from adaptive_labels.lab.data.downloads import OnProgress
from adaptive_labels.lab.data.encoders import register_encoder
from adaptive_labels.lab.data.encoders.embeddings import Pretrained, Vectors, embed_once
from adaptive_labels.lab.data.encoders.text import PaddedIds
from adaptive_labels.lab.data.splits import content_digest
from adaptive_labels.lab.models.pretrained import hub, minilm
from adaptive_labels.lab.models.pretrained.backbones import MOST_TOKENS, TextBackbone

_TEXTS, _TOKENS = 8_192, 2_048  # tokenized at a time; of a batch, padding included


@dataclass(frozen=True)
class TextEmbeddings(Pretrained[TextBackbone]):
    """Texts to the features of a pretrained encoder, or to its tokens.

    Args:
        max_tokens: word pieces that are read of a text, with the marks of its beginning and end.
        weights: a hash of the encoder's weights.
        name: which of a library's encoders it is.
        tune: give tokens, for an encoder that is part of the network that is trained.
    """

    options: ClassVar[frozenset[str]] = frozenset({"max_tokens", "tune"})

    max_tokens: int = 256
    weights: str = ""
    name: str = ""
    tune: bool = False

    def __post_init__(self) -> None:
        if not 3 <= self.max_tokens <= MOST_TOKENS:
            raise ValueError(f"max_tokens is {self.max_tokens}; it must be from 3 to {MOST_TOKENS}")
        check_positive(max_tokens=self.max_tokens)

    @classmethod
    def fit(cls, inputs: Sequence[str], name: str = "", **options: Any) -> Self:
        """Return the encoder; nothing is fitted, but what it needs must be installed."""
        backbone = cls.find(name)
        backbone.check()
        encoder = cls(**{"max_tokens": min(256, backbone.most_tokens), **options}, weights=backbone.weights, name=name)
        if encoder.max_tokens > backbone.most_tokens:
            raise ValueError(f"max_tokens is {encoder.max_tokens}; it must be from 3 to {backbone.most_tokens}")
        return encoder

    def cache_key(self) -> dict[str, Any]:
        return {"encoder": self.kind, "max_tokens": self.max_tokens, "weights": self.weights}

    def digests(self, inputs: Sequence[str]) -> list[bytes]:
        return [content_digest(text.encode("utf-8", "surrogatepass")) for text in inputs]

    def encode(self, inputs: Sequence[str], progress: OnProgress | None = None) -> Vectors | PaddedIds:
        """Return the features of every text, from the cache where they were made before; or the tokens."""
        backbone = self.backbone

        def tokenized(texts: Sequence[str]) -> PaddedIds:
            tokens = backbone.tokenize(texts, self.max_tokens)
            flat = np.fromiter((number for text in tokens for number in text), np.int32)
            offsets = np.cumsum([0, *map(len, tokens)], dtype=np.int64)
            return PaddedIds(torch.from_numpy(flat), torch.from_numpy(offsets))

        def batches(indices: NDArray[np.int64]) -> Iterator[tuple[list[int], tuple[Tensor, Tensor]]]:
            for start in range(0, len(indices), _TEXTS):
                tokens = tokenized([inputs[i] for i in indices[start : start + _TEXTS].tolist()])
                for places in _by_length(tokens.lengths.tolist()):
                    yield [start + i for i in places], tokens.batch(torch.tensor(places))

        if self.tune:
            return tokenized(inputs)
        return embed_once(self.cache_key(), self.digests(inputs), backbone, batches, progress)

    def count_cut(self, texts: Sequence[str]) -> dict[str, int]:
        tokens = self.backbone.tokenize(texts, self.max_tokens + 1)
        return {"max_tokens": sum(len(text) > self.max_tokens for text in tokens)}

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in ("", False)}


@register_encoder("minilm")
@dataclass(frozen=True)
class MiniLMEmbeddings(TextEmbeddings):
    """Texts to 384 features each: the mean of all-MiniLM-L6-v2's outputs over the text's tokens, of length 1."""

    find = staticmethod(lambda name: minilm.BACKBONE)
    weights: str = minilm.WEIGHTS

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.backbone  # refuses other weights


@register_encoder("hf-text")
@dataclass(frozen=True)
class HubTextEmbeddings(TextEmbeddings):
    """Texts to the features of an encoder of Transformers: the mean of its outputs over the text's tokens."""

    find = staticmethod(hub.text_backbone)


def _by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Batches of texts of like length, with as many tokens each, the longest first."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    while order:
        size = max(1, _TOKENS // lengths[order[0]])
        yield order[:size]
        order = order[size:]

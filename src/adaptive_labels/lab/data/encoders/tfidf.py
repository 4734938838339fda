"""Texts as TF-IDF of their n-grams, what a linear classifier reads.

Shapes: N texts, M different n-grams in all of them; n texts of a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adaptive_labels.errors import check_positive
from adaptive_labels.lab.data.encoders import register_encoder
from adaptive_labels.lab.data.encoders.ngrams import HashedNgrams
from adaptive_labels.lab.data.encoders.text import RaggedIds
from adaptive_labels.lab.data.stored_texts import Int64s

BUCKETS = 2**22  # so many that two n-grams of a vocabulary rarely share one


@dataclass(frozen=True, eq=False)
class WeightedIds(RaggedIds):
    """Token ids, each with a weight; a batch is what `nn.EmbeddingBag` takes with ``per_sample_weights``."""

    weights: Tensor  # (M,) float32

    def batch(self, indices: Tensor) -> tuple[Tensor, ...]:
        """Return the token ids of these texts end to end, where each text begins, and the weights.

        >>> ids = WeightedIds(torch.tensor([5, 6, 7]), torch.tensor([0, 2, 3]), torch.tensor([0.5, 0.5, 1.0]))
        >>> [part.tolist() for part in ids.batch(torch.tensor([1, 0]))]
        [[7, 5, 6], [0, 1], [1.0, 0.5, 0.5]]
        """
        source, begins, _ = self.places(indices)
        return self.values[source].long(), begins, self.weights[source]


@register_encoder("tfidf")
@dataclass(frozen=True)
class TfIdf(HashedNgrams):
    """Texts to the n-grams of a vocabulary, weighted by (1 + log count) · idf and divided by their norm.

    Args:
        terms: the buckets of the n-grams that are read, rising. Fitted, the `max_features` (50,000) n-grams that are
            in most texts, among those in at least `min_count` (2).
        idf: log((1 + texts) / (1 + texts with it)) + 1 for each.
        words, word_ngrams, char_ngrams, lowercase, max_length: as in `HashedNgrams`.

    >>> encoder = TfIdf.fit(["a town", "a big town", "a"], word_ngrams=1)
    >>> [part.tolist() for part in encoder.encode(["a", "unknown"]).batch(torch.arange(2))][1:]
    [[0, 1], [1.0]]
    >>> TfIdf.from_dict(encoder.to_dict()) == encoder
    True
    """

    options = (HashedNgrams.options - {"buckets"}) | {"max_features", "min_count"}

    char_ngrams: tuple[int, int] | None = None
    buckets: int = BUCKETS
    terms: tuple[int, ...] = ()
    idf: tuple[float, ...] = ()
    _terms: Int64s = field(init=False, repr=False, compare=False)
    _idf: NDArray[np.float64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "terms", tuple(self.terms))  # JSON has lists only
        object.__setattr__(self, "idf", tuple(self.idf))
        object.__setattr__(self, "_terms", np.array(self.terms, np.int64))
        object.__setattr__(self, "_idf", np.array(self.idf, np.float64))

    @property
    def sizes(self) -> dict[str, int]:
        return {"features": max(len(self.terms), 1)}

    @classmethod
    def fit(cls, inputs: Sequence[str], *, max_features: int = 50_000, min_count: int = 2, **settings: Any) -> "TfIdf":
        """Return the encoder for texts like these; n-grams of one text are read where no other are found."""
        check_positive(max_features=max_features, min_count=min_count)
        reader = cls(**settings)
        texts_with = np.zeros(BUCKETS, np.int64)
        for chunk in reader._chunks(inputs):
            _, numbers, _ = reader._count(chunk)
            texts_with += np.bincount(numbers, minlength=BUCKETS)
        often = np.flatnonzero(texts_with >= min_count)
        if not len(often):
            often = np.flatnonzero(texts_with)
        terms = np.sort(often[np.argsort(-texts_with[often], kind="stable")][:max_features])
        idf = np.log((1 + len(inputs)) / (1 + texts_with[terms])) + 1
        return cls(**settings, terms=tuple(terms.tolist()), idf=tuple(idf.tolist()))

    def encode(self, inputs: Sequence[str]) -> WeightedIds:
        """Return the n-grams of every text that the vocabulary has, with their weights."""
        ids, weights, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.float32)], [np.zeros(1, np.int64)]
        for chunk in self._chunks(inputs):
            texts, numbers, counts = self._count(chunk)
            at = np.searchsorted(self._terms, numbers)
            known = np.flatnonzero(np.append(self._terms, -1)[at] == numbers)
            texts, at = texts[known], at[known]
            weight = (1 + np.log(counts[known])) * self._idf[at]
            norms = np.sqrt(np.bincount(texts, weight**2, len(chunk)))
            ids.append(at.astype(np.int32))
            weights.append((weight / norms[texts]).astype(np.float32))
            lengths.append(np.bincount(texts, minlength=len(chunk)))
        arrays = np.concatenate(ids), np.cumsum(np.concatenate(lengths)), np.concatenate(weights)
        return WeightedIds(*map(torch.from_numpy, arrays))

    def _count(self, texts: list[str]) -> tuple[Int64s, Int64s, Int64s]:
        """The n-grams of some texts, each once per text: (text, bucket, how often), text by text."""
        numbers, lengths = self._encode_chunk(texts)
        keys, counts = np.unique(np.repeat(np.arange(len(texts)), lengths) * BUCKETS + numbers, return_counts=True)
        return keys // BUCKETS, keys % BUCKETS, counts

"""What a network reads of stored texts, kept on the disk as well: encoded once, chunk by chunk, and memory-mapped.

Processes that read the same texts the same way share the pages; no process ever has all of the numbers as its own.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adaptive_labels.data.cache import kept, mapped
from adaptive_labels.data.encoders.ngrams import HashedNgrams, RaggedIds
from adaptive_labels.data.encoders.words import CharacterIds, PaddedIds, WordIds
from adaptive_labels.data.stored_texts import StoredTexts

__all__ = ["encode_stored", "fit_stored"]

_FORMAT = 1
"""Of the entries in the cache: another number makes all of them anew."""

KEPT_FROM = 20_000
"""Fewer texts than this are encoded in memory, which is as fast and leaves nothing behind."""

TextEncoder = HashedNgrams | WordIds | CharacterIds


def encode_stored(encoder: TextEncoder, texts: StoredTexts) -> RaggedIds | PaddedIds:
    """Return what the encoder makes of these texts, from the cache if it has made it before."""
    if len(texts) < KEPT_FROM:
        return encoder.encode(texts)
    kind = _smallest(encoder.numbers)
    depends_on = {"encoder": type(encoder).__name__, "settings": encoder.to_dict(), "texts": texts.identity()}
    folder = kept("ids", _key(depends_on), lambda to: _write(to, encoder.encode_chunks(texts), kind))
    values, offsets = (
        torch.from_numpy(mapped(folder / f"{name}.bin", dtype))
        for name, dtype in (("values", kind), ("offsets", "<i8"))
    )
    return _of_kind(encoder, values, offsets)


def fit_stored(
    kind: type[WordIds] | type[CharacterIds], texts: StoredTexts, settings: Mapping[str, Any]
) -> WordIds | CharacterIds:
    """Return the encoder that is fitted on these texts, from the cache if it was before."""
    if len(texts) < KEPT_FROM:
        return kind.fit(texts, **settings)

    def make(folder: Path) -> None:
        fitted = kind.fit(texts, **settings).to_dict()
        (folder / "encoder.json").write_text(json.dumps(fitted), encoding="utf-8")

    depends_on = {"encoder": kind.__name__, "fit": dict(settings), "texts": texts.identity()}
    folder = kept("encoders", _key(depends_on), make)
    return kind.from_dict(json.loads((folder / "encoder.json").read_text(encoding="utf-8")))


def _key(depends_on: Mapping[str, Any]) -> str:
    content = json.dumps([_FORMAT, depends_on], sort_keys=True).encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest()[:32]


def _smallest(numbers: int) -> str:
    """The smallest type of torch's that holds so many numbers from 0."""
    return "|u1" if numbers <= 2**8 else "<i2" if numbers <= 2**15 else "<i4"


def _write(folder: Path, encoded: Iterable[tuple[NDArray[np.int32], NDArray[np.int64]]], kind: str) -> None:
    end = 0
    with (folder / "values.bin").open("wb") as values, (folder / "offsets.bin").open("wb") as offsets:
        offsets.write(np.zeros(1, "<i8").data)
        for numbers, lengths in encoded:
            values.write(numbers.astype(kind).data)
            offsets.write((end + np.cumsum(lengths)).astype("<i8").data)
            end += int(lengths.sum())


def _of_kind(encoder: TextEncoder, values: Tensor, offsets: Tensor) -> RaggedIds | PaddedIds:
    return RaggedIds(values, offsets) if isinstance(encoder, HashedNgrams) else PaddedIds(values, offsets)

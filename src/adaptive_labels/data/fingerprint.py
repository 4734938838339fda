"""A hash of a data set's content, so that two runs can know they saw the same data."""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from torch import Tensor

from adaptive_labels.data.dataset import Examples, ImageFiles
from adaptive_labels.data.stored_texts import StoredTexts


def fingerprint(classes: Sequence[str], splits: Iterable[tuple[str, Examples]]) -> str:
    """SHA-256, in hexadecimal, over the class names and each split's name, inputs and labels, in their order.

    Notes, sources and true labels are left out: they do not change what a model sees. Of images that stay files the
    names and sizes of the files go in, not their content.
    """
    digest = hashlib.sha256()
    _add_texts(digest, classes)
    for name, examples in splits:
        _add_texts(digest, [name])
        if isinstance(examples.inputs, Tensor):
            _add_array(digest, examples.inputs.numpy())
        elif isinstance(examples.inputs, ImageFiles):
            _add_texts(digest, [name.decode() for name in examples.inputs.names])
            _add_array(digest, examples.inputs.bytes_each)
            _add_array(digest, np.array([examples.inputs.size]))
        else:
            _add_texts(digest, examples.inputs)
        _add_array(digest, examples.labels.numpy())
    return digest.hexdigest()


def _add_texts(digest: "hashlib._Hash", texts: Sequence[str]) -> None:
    # The lengths go in first, so that ["ab", "c"] and ["a", "bc"] differ.
    if isinstance(texts, StoredTexts):
        _add_array(digest, texts.sizes)
        for pieces in texts.pieces():
            digest.update(b"".join(pieces))
        return
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    _add_array(digest, np.array([len(part) for part in encoded], dtype=np.int64))
    digest.update(b"".join(encoded))


def _add_array(digest: "hashlib._Hash", array: np.ndarray) -> None:
    little_endian = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    digest.update(f"{little_endian.dtype.str}{little_endian.shape}".encode())
    digest.update(little_endian.data)

"""Pickles that hold plain values and numpy arrays, and nothing else: a pickle may name any function to be called."""

import io
import pickle
from typing import Any

import numpy as np

from adaptive_labels.data.dataset import DataError

_RECONSTRUCT = np.empty(0).__reduce__()[0]  # numpy's own, wherever this version of numpy keeps it
_ALLOWED = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is no part of an array")
        return _ALLOWED[module, name]


def read_pickle(content: bytes, where: str) -> Any:
    """The value of a pickle, its Python 2 texts as bytes; a DataError that names `where` if it asks for more.

    >>> read_pickle(pickle.dumps({"data": [1, 2]}), "train")
    {'data': [1, 2]}
    """
    try:
        return _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a broken pickle raises nearly anything
        raise DataError(f"{where} cannot be opened: {error}.") from error

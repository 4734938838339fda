"""What the views of a confusion matrix share. Row k is the true class k, column j what it is taken for."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Matrix = NDArray[np.float64]


def square(matrix: ArrayLike, name: str = "matrix") -> Matrix:
    """``matrix`` as (K, K) float64, or a ValueError that names the argument."""
    values = np.asarray(matrix, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise ValueError(f"{name} has shape {values.shape}; it must be (K, K).")
    return non_negative(values, name)


def non_negative(values: Matrix, name: str) -> Matrix:
    """``values`` themselves, unless one is negative, NaN or infinite."""
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise ValueError(f"{name} holds a negative or non-finite value; confusions and labels have none.")
    return values


def row_shares(matrix: Matrix) -> Matrix:
    """Every row divided by its sum; rows of zeros stay zeros.

    >>> row_shares(np.array([[3.0, 1.0], [0.0, 0.0]])).tolist()
    [[0.75, 0.25], [0.0, 0.0]]
    """
    totals = matrix.sum(axis=-1, keepdims=True)
    shares: Matrix = np.divide(matrix, totals, out=np.zeros_like(matrix), where=totals > 0)
    return shares


def without_diagonal(matrix: Matrix) -> Matrix:
    """A copy with zeros on the diagonal; (…, K, K).

    >>> without_diagonal(np.array([[3.0, 1.0], [2.0, 5.0]])).tolist()
    [[0.0, 1.0], [2.0, 0.0]]
    """
    copy = matrix.copy()
    diagonal = np.arange(matrix.shape[-1])
    copy[..., diagonal, diagonal] = 0.0
    return copy


def off_diagonal(matrix: Matrix) -> Matrix:
    """(…, K, K) → (…, K, K−1): the diagonal erased, as in the residual correlation matrix S.

    >>> off_diagonal(np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 4.0], [5.0, 6.0, 0.0]])).tolist()
    [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    """
    size = matrix.shape[-1]
    kept = matrix[..., ~np.eye(size, dtype=bool)]  # (…, K·(K−1))
    return kept.reshape(*matrix.shape[:-2], size, max(size - 1, 0))

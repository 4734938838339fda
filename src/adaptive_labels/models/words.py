"""What the models that read a text word by word have in common.

Shapes: N texts of up to L words; a batch is the words' numbers (N, L), padded with 0, and how many of them count (N,).
"""

import torch
from torch import Tensor

__all__ = ["check_sizes", "is_word"]


def is_word(lengths: Tensor, longest: int) -> Tensor:
    """Which places (N, L) hold a word and not padding.

    >>> is_word(torch.tensor([2, 1]), 3).tolist()
    [[True, True, False], [True, False, False]]
    """
    return torch.arange(longest, device=lengths.device) < lengths[:, None]


def check_sizes(dropout: float, **sizes: int) -> None:
    """Refuse sizes below 1 and a dropout outside [0, 1), by their names."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} is {size}; it must be at least 1")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout is {dropout}; it must be at least 0 and below 1")

"""What a fused step yields, and how the gradients of S's parameters are made of it.

Shapes: M rows of K logits; S (K, K−1), or its factors U and V (K, rank).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from adaptive_labels.losses.adaptive import AdaptiveLabelLoss

#: Makes the gradients of S's one or two parameters from a step's rows, times a factor unless that is None.
Spread = Callable[[tuple[Tensor, ...], Tensor | None], tuple[Tensor, Tensor | None]]


@dataclass
class Step:
    """What a pass over the batch yields.

    ``loss``, a scalar; ``dz`` (M, K), the gradient of the logits; ``rows``, from which ``spread`` makes the gradients
    of S's parameters (None where S gets none); ``parts``, the pieces worth logging.
    """

    loss: Tensor
    dz: Tensor
    rows: tuple[Tensor, ...]
    spread: Spread | None
    parts: Mapping[str, Tensor]


class Numbers(Mapping[str, Tensor]):
    """Named numbers that become scalar tensors when someone looks: most steps of a training nobody does."""

    def __init__(self, numbers: dict[str, float], dtype: torch.dtype) -> None:
        self.numbers, self.dtype = numbers, dtype

    def __getitem__(self, name: str) -> Tensor:
        return torch.tensor(self.numbers[name], dtype=self.dtype, device="cpu")

    def __iter__(self) -> Iterator[str]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)


def spread_rows(distinct: bool, sparse: bool, rows: tuple[Tensor, ...], by: Tensor | None) -> tuple[Tensor, None]:
    """The gradient of the dense S from the gradients of its rows and their labels.

    ``distinct``: each label occurs once, and they are in order.
    """
    values, labels = rows
    if by is not None:
        values = values * by
    shape = (values.shape[1] + 1, values.shape[1])
    if sparse:
        return _sparse(labels, values, shape, distinct), None
    if distinct:
        if len(labels) == shape[0]:
            return values, None
        return values.new_zeros(shape).index_copy_(0, labels, values), None
    return values.new_zeros(shape).index_add_(0, labels, values), None


def spread_low_rank(
    classes: int, sparse: bool, rows: tuple[Tensor, ...], by: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The gradients of U and V from those of the rows U_y (M, rank) with their labels, and of V."""
    of_left, of_right, y = rows
    if by is not None:
        of_left, of_right = of_left * by, of_right * by
    shape = (classes, of_left.shape[1])
    if sparse:
        return _sparse(y, of_left, shape, False), of_right
    return of_left.new_zeros(shape).index_add_(0, y, of_left), of_right


def _sparse(labels: Tensor, values: Tensor, shape: tuple[int, int], distinct: bool) -> Tensor:
    return torch.sparse_coo_tensor(labels.unsqueeze(0), values, shape, is_coalesced=distinct, check_invariants=False)


def low_rank_outcome(
    criterion: AdaptiveLabelLoss, of_left: Tensor, of_right: Tensor, y: Tensor
) -> tuple[tuple[Tensor, ...], Spread | None]:
    """Move U and V along their gradients (M, rank) and (K, rank), or keep these for the optimizer."""
    if criterion.update == "self":
        left, right = (parameter.detach() for parameter in criterion.residual_parameters())
        left.index_add_(0, y, of_left.to(left.dtype), alpha=-criterion.residual_lr)
        right.add_(of_right, alpha=-criterion.residual_lr)
        return (), None
    return (of_left, of_right, y), partial(spread_low_rank, criterion.num_classes, criterion.sparse)

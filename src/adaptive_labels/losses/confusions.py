"""The largest residual labels, found without holding all of them in memory."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

LABELS_AT_ONCE = 2**24


class Confusion(NamedTuple):
    """One residual label: the share of ``taken_for`` in the probability of wrong classes, for samples of ``label``."""

    label: int | str
    taken_for: int | str
    probability: float


def largest(
    labels_of: Callable[[range], Tensor], num_classes: int, n: int, class_names: Sequence[str] | None
) -> list[Confusion]:
    """The ``n`` largest residual labels, largest first; ``labels_of`` gives those of some classes, (m, K)."""
    if class_names is not None and len(class_names) != num_classes:
        raise ValueError(f"class_names must have {num_classes} entries, got {len(class_names)}")
    count = min(max(n, 0), num_classes * (num_classes - 1))
    values, places = torch.empty(0, device="cpu"), torch.empty(0, dtype=torch.long, device="cpu")
    rows_at_once = max(1, LABELS_AT_ONCE // num_classes)
    for start in range(0, num_classes, rows_at_once):
        labels = labels_of(range(start, min(start + rows_at_once, num_classes))).flatten().cpu()
        best = labels.topk(min(count, labels.numel()))
        values = torch.cat([values.to(labels.dtype), best.values])
        places = torch.cat([places, best.indices + start * num_classes])
        order = values.topk(min(count, len(values))).indices
        values, places = values[order], places[order]
    names: Sequence[int | str] = range(num_classes) if class_names is None else class_names
    found = zip(values.tolist(), places.tolist(), strict=True)
    return [Confusion(names[place // num_classes], names[place % num_classes], value) for value, place in found]

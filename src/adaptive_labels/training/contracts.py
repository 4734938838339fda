"""What the loop asks of the rooms around it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from adaptive_labels.objectives import Inputs

__all__ = ["Augment", "Encoded", "Padded", "Recorder", "Streamed"]


class Encoded(Protocol):
    """Examples ready for a model: `batch` gathers any of them at once."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor, /) -> Inputs:
        """The model's inputs for the examples at `indices` (int64, on the CPU)."""
        ...


@runtime_checkable
class Streamed(Encoded, Protocol):
    """Examples that are slow to make, such as image files, and so are made ahead."""

    def stream(self, groups: Sequence[Tensor], seed: int | None = None) -> Iterator[Inputs]:
        """The inputs of each group of indices; with a seed random views of them, which it and the index decide."""
        ...


@runtime_checkable
class Padded(Encoded, Protocol):
    """Examples of unequal length, padded to the longest of their batch: so that batches of like lengths are cheaper."""

    @property
    def lengths(self) -> Tensor:
        """How long each is, (N,)."""
        ...


class Recorder(Protocol):
    """Where a run's history goes."""

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Keep the plain numbers of a finished epoch."""
        ...

    def residual_labels(self, epoch: int, matrix: np.ndarray[Any, np.dtype[np.float32]]) -> None:
        """Keep the criterion's class similarities (K, K) after an epoch."""
        ...

    def rewind(self, epoch: int) -> None:
        """Forget what was kept of later epochs: the run goes on after this one."""
        ...


Augment = Callable[[Inputs, torch.Generator, int, Tensor], Inputs]
"""A change of whole batches in training: it draws only from the given generator, and knows the epoch (from 1) and the
indices of the batch's examples."""

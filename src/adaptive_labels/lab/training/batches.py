"""Examples in the form the loop needs, and how their order is cut into optimizer steps and micro-batches."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from adaptive_labels.lab.objectives import Inputs

# Batches among which padded examples are sorted by length: enough to save nearly all padding, few enough that batches
# stay different from epoch to epoch.
_WINDOW = 50


class ProcessSlice(NamedTuple):
    """What one process computes of a micro-batch.

    whole: the indices of all its examples, for which all processes draw random numbers alike.
    begin, indices: where this process's examples begin in it, and which they are.
    sizes: how many each process has. One that has none computes two of another's, and they do not count.
    """

    whole: Tensor
    begin: int
    indices: Tensor
    sizes: tuple[int, ...]


Augment = Callable[[Inputs, torch.Generator, int, ProcessSlice], Inputs]
"""A change of the inputs of a slice in training: it draws only from the given generator, for the whole micro-batch, and
knows the epoch (from 1)."""


class BatchSource(Protocol):
    """Examples ready for a model: `batch` gathers any of them at once."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor, /) -> Inputs:
        """The model's inputs for the examples at `indices` (int64, on the CPU)."""
        ...


@runtime_checkable
class StreamSource(BatchSource, Protocol):
    """Examples that are slow to make, such as image files, and so are made ahead."""

    def stream(self, groups: Sequence[Tensor], seed: int | None = None) -> Iterator[Inputs]:
        """The inputs of each group of indices; with a seed random views of them, which it and the index decide."""
        ...


@runtime_checkable
class PaddedSource(BatchSource, Protocol):
    """Examples padded to the longest of their batch, so that batches of like lengths are cheaper."""

    @property
    def lengths(self) -> Tensor:
        """How long each is, (N,)."""
        ...


def inputs_of(examples: BatchSource, groups: Sequence[Tensor], seed: int | None = None) -> Iterator[Inputs]:
    """The inputs of each group of indices in turn, made ahead where the examples can be.

    `seed` is that of the random views that streamed examples give in training; None gives the views of testing.
    """
    return examples.stream(groups, seed) if isinstance(examples, StreamSource) else map(examples.batch, groups)


def to_device(inputs: Inputs, device: torch.device) -> Inputs:
    """Inputs on a device; those that are there already are not copied."""
    if isinstance(inputs, Tensor):
        return inputs.to(device, non_blocking=True)
    return tuple(tensor.to(device, non_blocking=True) for tensor in inputs)


def batches(order: Tensor, size: int) -> Iterator[Tensor]:
    """`order` in parts of `size`; a single example left over joins the part before it, as batch norm needs two."""
    count = len(order)
    end = count - 1 if count > size > 1 and count % size == 1 else count
    for start in range(0, end, size):
        stop = start + size
        yield order[start : count if stop >= end else stop]


def arranged(examples: BatchSource, order: Tensor, size: int, generator: torch.Generator) -> list[Tensor]:
    """The batches of a shuffled `order`. Padded examples are put into batches of like length, in a shuffled order."""
    if not isinstance(examples, PaddedSource):
        return list(batches(order, size))
    windows = order.split(_WINDOW * size)  # type: ignore[no-untyped-call]
    sorted_order = torch.cat([window[examples.lengths[window].argsort(stable=True)] for window in windows])
    cut = list(batches(sorted_order, size))
    return [cut[place] for place in torch.randperm(len(cut), generator=generator).tolist()]


def micro_batches(batch: Tensor, count: int) -> tuple[Tensor, ...]:
    """A batch in `count` nearly equal parts, fewer if one would hold a single example."""
    if count == 1:
        return (batch,)
    return batch.tensor_split(max(1, min(count, len(batch) // 2)))


def slice_of(whole: Tensor, world: int, rank: int) -> ProcessSlice:
    """A process's slice. Slices are nearly equal; none is a single example, as batch norm needs two."""
    slices = micro_batches(whole, world)
    sizes = [len(part) for part in slices] + [0] * (world - len(slices))
    if rank >= len(slices):
        return ProcessSlice(whole, 0, whole[:2], tuple(sizes))
    return ProcessSlice(whole, sum(sizes[:rank]), slices[rank], tuple(sizes))

"""How an order of examples is cut into optimizer steps, and a step into pieces; and their inputs, one after another."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from adaptive_labels.objectives import Inputs
from adaptive_labels.training.contracts import Encoded, Padded, Streamed

__all__ = ["arranged", "batches", "inputs_of", "pieces"]

# Batches among which examples change places to be beside others of their length: enough to save nearly all padding, few
# enough that batches stay different from epoch to epoch.
_WINDOW = 50


def inputs_of(examples: Encoded, groups: Sequence[Tensor], seed: int | None = None) -> Iterator[Inputs]:
    """The inputs of each group of indices in turn; examples that can be read ahead are.

    Args:
        examples: encoded.
        groups: the indices of each batch.
        seed: of the random views that examples which are read ahead give in training; None for those of testing.
    """
    return examples.stream(groups, seed) if isinstance(examples, Streamed) else map(examples.batch, groups)


def batches(order: Tensor, size: int) -> Iterator[Tensor]:
    """`order` in parts of `size`; a single example left over joins the part before it, as batch norm needs two."""
    count = len(order)
    end = count - 1 if count > size > 1 and count % size == 1 else count
    for start in range(0, end, size):
        stop = start + size
        yield order[start : count if stop >= end else stop]


def arranged(examples: Encoded, order: Tensor, size: int, generator: torch.Generator) -> list[Tensor]:
    """The batches of a shuffled order; where examples are padded, each of examples of like length, in a shuffled order.

    Args:
        examples: encoded.
        order: the indices of all of them, shuffled.
        size: of a batch.
        generator: of the order of the batches.
    """
    if not isinstance(examples, Padded):
        return list(batches(order, size))
    windows = [order[start : start + _WINDOW * size] for start in range(0, len(order), _WINDOW * size)]
    sorted_order = torch.cat([window[examples.lengths[window].argsort(stable=True)] for window in windows])
    cut = list(batches(sorted_order, size))
    return [cut[place] for place in torch.randperm(len(cut), generator=generator).tolist()]


def pieces(batch: Tensor, count: int) -> tuple[Tensor, ...]:
    """A batch in `count` nearly equal pieces, fewer if one would hold a single example."""
    if count == 1:
        return (batch,)
    return batch.tensor_split(max(1, min(count, len(batch) // 2)))

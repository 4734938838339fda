"""How an order of examples is cut into optimizer steps, and a step into pieces."""

from collections.abc import Iterator

from torch import Tensor

__all__ = ["batches", "pieces"]


def batches(order: Tensor, size: int) -> Iterator[Tensor]:
    """`order` in parts of `size`; a single example left over joins the part before it, as batch norm needs two."""
    count = len(order)
    end = count - 1 if count > size > 1 and count % size == 1 else count
    for start in range(0, end, size):
        stop = start + size
        yield order[start : count if stop >= end else stop]


def pieces(batch: Tensor, count: int) -> tuple[Tensor, ...]:
    """A batch in `count` nearly equal pieces, fewer if one would hold a single example."""
    if count == 1:
        return (batch,)
    return batch.tensor_split(max(1, min(count, len(batch) // 2)))

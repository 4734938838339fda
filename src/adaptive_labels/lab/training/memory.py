"""The error message when there is not enough memory for a training step."""

import torch

from adaptive_labels.errors import UserError
from adaptive_labels.lab.config import TrainingConfig


class TrainingMemoryError(UserError):
    def __init__(self, config: TrainingConfig, epoch: int) -> None:
        pieces, size = config.accumulate, config.batch_size
        parts = f" in {pieces} pieces" if pieces > 1 else ""
        super().__init__(
            f"out of memory in epoch {epoch} with batch size {size}{parts}: try training.accumulate={2 * pieces}, "
            f"which needs about half for nearly the same result, or a smaller training.batch_size"
        )


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error is that of an allocator; on the CPU torch has no class of its own for it."""
    kinds = (MemoryError, torch.OutOfMemoryError)
    return isinstance(error, kinds) or "allocate memory" in str(error) or "out of memory" in str(error)

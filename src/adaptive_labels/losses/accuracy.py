"""The training accuracy that drives the weight on L_res: 1 − acc, or min(acc, 1 − acc)."""

from __future__ import annotations

from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from adaptive_labels.losses.arguments import check_number

Number = TypeVar("Number", float, Tensor)

RESIDUAL_WEIGHTS = ("running", "batch", "epoch", "waiting")


class TrainingAccuracy(nn.Module):
    """Counts hits over batches and epochs, and gives the weight on L_res that follows from them.

    A batch's counts wait in ``pending_counts`` until the next step begins: so the running average always lags by one
    step, several micro-batches can be one step, and :meth:`make_global` can still add other processes' counts.

    Args:
        residual_weight: ``"running"``, ``"batch"``, ``"epoch"``, ``"waiting"``, or a number at least 0.
        momentum: of the running average, in [0, 1).
    """

    running: Tensor
    pending_counts: Tensor
    epoch_counts: Tensor
    last_epoch: Tensor

    def __init__(self, residual_weight: str | float, momentum: float) -> None:
        super().__init__()
        if isinstance(residual_weight, str):
            if residual_weight not in RESIDUAL_WEIGHTS:
                raise ValueError(
                    "residual_weight must be 'running', 'batch', 'epoch', 'waiting' or a number at least 0, "
                    f"got {residual_weight!r}"
                )
        else:
            residual_weight = check_number("residual_weight", residual_weight, 0)
        if not 0 <= check_number("accuracy_momentum", momentum) < 1:
            raise ValueError(f"accuracy_momentum must be in [0, 1), got {momentum}")
        self.residual_weight = residual_weight
        self.momentum = momentum
        self.held = False
        self.pending_global = False
        self.register_buffer("running", torch.zeros(()))
        self.register_buffer("pending_counts", torch.zeros(2))  # hits, samples
        self.register_buffer("epoch_counts", torch.zeros(2))
        self.register_buffer("last_epoch", torch.zeros(()))

    @torch.no_grad()
    def weight(self, counts: Tensor, shared: bool) -> Tensor:
        """Take a batch's counts (hits, samples) and return the weight for its L_res.

        ``shared``: the counts are already summed over all processes.
        """
        counts = counts.detach().to(self.pending_counts.dtype)
        if not self.held:
            self.fold()
        if isinstance(self.residual_weight, str):
            weight = self._weight_at(_rate(counts) if self.residual_weight == "batch" else self._known_accuracy())
        else:
            weight = torch.full_like(self.running, self.residual_weight)
        self.pending_counts += counts
        self.epoch_counts += counts
        self.pending_global = shared
        return weight

    @torch.no_grad()
    def weight_as_number(self, of_batch: float | None = None) -> float:
        """:meth:`weight` for the CPU, where a few numbers cost less than a dozen tiny operations.

        Call :meth:`count` afterwards. ``of_batch``: the batch's own accuracy, for ``residual_weight="batch"``.
        """
        if not self.held:
            hits, samples = self.pending_counts.tolist()
            if samples > 0:
                running = self.momentum * self.running.item() + (1 - self.momentum) * (hits / samples)
                self.running.fill_(running)
                self.pending_counts.zero_()
        if not isinstance(self.residual_weight, str):
            return self.residual_weight
        if self.residual_weight == "batch":
            return self._weight_at(of_batch or 0.0)
        return self._weight_at(float(self._known_accuracy().item()))

    def _known_accuracy(self) -> Tensor:
        """What is known before the batch is seen."""
        return self.last_epoch if self.residual_weight == "epoch" else self.running

    def _weight_at(self, accuracy: Number) -> Number:
        if self.residual_weight != "waiting":
            return 1 - accuracy
        if isinstance(accuracy, Tensor):
            return torch.minimum(accuracy, 1 - accuracy)
        return min(accuracy, 1 - accuracy)

    @torch.no_grad()
    def count(self, hits: float, samples: float) -> None:
        """Take a batch's counts, which no other process has a share in."""
        counts = self.pending_counts.new_tensor([hits, samples])
        self.pending_counts += counts
        self.epoch_counts += counts
        self.pending_global = False

    @torch.no_grad()
    def fold(self) -> None:
        """Take the counts of the last step into the running average; a step without samples leaves it alone."""
        new = self.momentum * self.running + (1 - self.momentum) * _rate(self.pending_counts)
        self.running.copy_(torch.where(self.pending_counts[1] > 0, new, self.running))
        self.pending_counts.zero_()

    @torch.no_grad()
    def epoch_end(self) -> None:
        """Keep the accuracy of the epoch that ends, and begin to count the next."""
        self.last_epoch.copy_(torch.where(self.epoch_counts[1] > 0, _rate(self.epoch_counts), self.last_epoch))
        self.epoch_counts.zero_()

    def make_global(self, group: dist.ProcessGroup | None) -> None:
        """Sum the waiting counts over the processes."""
        mine = self.pending_counts.clone()
        dist.all_reduce(self.pending_counts, group=group)
        self.epoch_counts += self.pending_counts - mine
        self.pending_global = True


def _rate(counts: Tensor) -> Tensor:
    return counts[0] / torch.where(counts[1] > 0, counts[1], 1.0)

"""Running means of an epoch, left on the device until someone looks."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["RunningMeans"]


class _Batch(NamedTuple):
    step: int
    examples: int
    loss: Tensor
    correct: Tensor
    parts: Mapping[str, Tensor]


class RunningMeans:
    """Means of loss, accuracy and loss parts over examples.

    Adding a batch neither waits for the device nor starts a kernel for the sums: the batch's few numbers are set
    aside, and `fold` fetches all of them at once. The means are those of the batches folded so far.
    """

    def __init__(self) -> None:
        self.examples = 0
        self.loss_sum = 0.0
        self.correct = 0
        self.bad_step: int | None = None
        self._parts: dict[str, tuple[float, int]] = {}
        self._pending: list[_Batch] = []

    def add(self, step: int, loss: Tensor, logits: Tensor, target: Tensor, parts: Mapping[str, Tensor]) -> None:
        """Set a batch of a step aside: its mean loss, logits (N, K), labels (N,) and the scalar parts of its loss."""
        correct = (logits.detach().argmax(dim=1) == target).sum()
        self._pending.append(_Batch(step, len(target), loss.detach(), correct, parts))

    def fold(self) -> None:
        """Fetch what is set aside; `bad_step` becomes the first step with a loss that is not finite."""
        if not self._pending:
            return
        losses = torch.stack([batch.loss for batch in self._pending]).tolist()
        corrects = torch.stack([batch.correct for batch in self._pending]).tolist()
        for batch, loss, correct in zip(self._pending, losses, corrects, strict=True):
            if self.bad_step is None and not math.isfinite(loss):
                self.bad_step = batch.step
            self.examples += batch.examples
            self.loss_sum += batch.examples * loss
            self.correct += correct
        named = [(name, part, batch.examples) for batch in self._pending for name, part in batch.parts.items()]
        values = torch.stack([part for _, part, _ in named]).tolist() if named else []
        for (name, _, count), value in zip(named, values, strict=True):
            total, examples = self._parts.get(name, (0.0, 0))
            self._parts[name] = (total + count * value, examples + count)
        self._pending.clear()

    @property
    def loss(self) -> float:
        """Mean loss; NaN or infinite once any loss was."""
        return self.loss_sum / max(self.examples, 1)

    @property
    def accuracy(self) -> float:
        """Fraction of examples whose largest logit was at their label."""
        return self.correct / max(self.examples, 1)

    @property
    def parts(self) -> dict[str, float]:
        """Mean of each part over the examples for which it was named."""
        return {name: total / examples for name, (total, examples) in self._parts.items()}

"""An exponential moving average of a model's weights."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

__all__ = ["WeightAverage"]


class WeightAverage:
    """Averages everything floating in a model's state, batch-norm statistics too; copies the rest.

        w̄ ← d·w̄ + (1 − d)·w,  d = min(decay, (1 + t) / (10 + t)) at the t-th update

    The smaller decay at the start keeps the random initial weights out of the average.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self._live: dict[str, Tensor] = {name: tensor.detach() for name, tensor in model.state_dict().items()}
        self.average: dict[str, Tensor] = {name: tensor.clone() for name, tensor in self._live.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the model's present weights."""
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for name, average in self.average.items():
            if average.is_floating_point():
                average.lerp_(self._live[name], 1.0 - decay)
            else:
                average.copy_(self._live[name])

    @contextmanager
    def applied(self) -> Iterator[None]:
        """A context in which the model has the averaged weights."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def keep(self) -> None:
        """Leave the averaged weights in the model for good."""
        for name, average in self.average.items():
            self._live[name].copy_(average)

    @torch.no_grad()
    def _exchange(self) -> None:
        for name, average in self.average.items():
            live = self._live[name]
            kept = live.clone()
            live.copy_(average)
            average.copy_(kept)

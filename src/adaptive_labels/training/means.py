"""Running means of an epoch, kept on the device and read only when someone looks."""

from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = ["RunningMeans"]


class RunningMeans:
    """Means of loss, accuracy and loss parts over examples; reading them waits for the device, adding does not."""

    def __init__(self, device: torch.device) -> None:
        self.examples = 0
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._finite_steps = torch.zeros((), dtype=torch.int64, device=device)
        # A criterion may name other parts in another batch, so the totals are kept for each set of names.
        self._totals: dict[tuple[str, ...], Tensor] = {}
        self._counts: dict[tuple[str, ...], int] = {}
        self._loss = torch.zeros((), device=device)

    def add(self, loss: Tensor, logits: Tensor, target: Tensor, parts: Mapping[str, Tensor]) -> None:
        """Add a batch: its mean loss, logits (N, K), labels (N,) and the scalar parts of its loss."""
        count = len(target)
        self.examples += count
        self._loss.add_(loss.detach(), alpha=count)
        self._correct.add_((logits.detach().argmax(dim=1) == target).sum())
        if parts:
            names = tuple(parts)
            values = torch.stack(list(parts.values())).to(self._loss)
            if names not in self._totals:
                self._totals[names] = torch.zeros_like(values)
                self._counts[names] = 0
            self._totals[names].add_(values, alpha=count)
            self._counts[names] += count

    def end_step(self) -> None:
        """Count an optimizer step if every loss so far was finite."""
        # A sum that was once infinite or NaN never becomes finite again, so the count stops at the first bad step.
        self._finite_steps.add_(torch.isfinite(self._loss))

    @property
    def finite_steps(self) -> int:
        """The optimizer steps before the first whose loss was not finite."""
        return int(self._finite_steps)

    @property
    def loss(self) -> float:
        """Mean loss; NaN or infinite once any loss was."""
        return float(self._loss) / max(self.examples, 1)

    @property
    def accuracy(self) -> float:
        """Fraction of examples whose largest logit was at their label."""
        return int(self._correct) / max(self.examples, 1)

    @property
    def parts(self) -> dict[str, float]:
        """Mean of each part over the examples for which it was named."""
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        for names, totals in self._totals.items():
            for name, total in zip(names, totals.tolist(), strict=True):
                sums[name] = sums.get(name, 0.0) + total
                counts[name] = counts.get(name, 0) + self._counts[names]
        return {name: total / counts[name] for name, total in sums.items()}

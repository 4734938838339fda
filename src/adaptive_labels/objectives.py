"""A model and its criterion in one module: one thing to wrap, to optimise and to checkpoint."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor, nn

__all__ = ["Inputs", "Supervised"]

Inputs = Tensor | tuple[Tensor, ...]


class Supervised(nn.Module):
    """A model trained on labels: `objective(inputs, target)` gives the criterion's loss and the model's logits.

    The criterion decides for itself what it is: a label-regularised loss while `criterion.training` holds and
    gradients are on, plain cross entropy otherwise. So `objective.eval()` or `torch.no_grad()` is all an evaluation
    needs.

    A criterion may offer `parameter_groups(lr=…)`, `epoch_end()`, `parts`, `residual_labels()` and `accumulation()`;
    one that offers none of them, such as `torch.nn.CrossEntropyLoss`, will do.
    """

    def __init__(self, model: nn.Module, criterion: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.criterion = criterion

    def forward(self, inputs: Inputs, target: Tensor) -> tuple[Tensor, Tensor]:
        """The loss (a scalar) and the logits (N, K) of a batch."""
        logits = self.model(inputs)
        return self.criterion(logits, target), logits

    def parameter_groups(
        self,
        *,
        lr: float,
        weight_decay: float,
        residual_lr: float = 1.0,
        residual_weight_decay: float = 0.0,
        decay_biases: bool = True,
    ) -> list[dict[str, Any]]:
        """Optimizer groups: the model's parameters, then the criterion's own, marked ``"criterion": True``.

        Args:
            lr: the model's learning rate.
            weight_decay: on the model's parameters.
            residual_lr: the criterion's rate as a multiple of `lr`.
            residual_weight_decay: on the criterion's own parameters.
            decay_biases: False leaves biases and normalisation weights (all that is one-dimensional) undecayed.
        """
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        undecayed = [] if decay_biases else [parameter for parameter in trained if parameter.ndim <= 1]
        decayed = trained if decay_biases else [parameter for parameter in trained if parameter.ndim > 1]
        groups: list[dict[str, Any]] = [
            {"params": decayed, "lr": lr, "weight_decay": weight_decay},
            {"params": undecayed, "lr": lr, "weight_decay": 0.0},
            *self._criterion_groups(lr * residual_lr, residual_weight_decay),
        ]
        return [group for group in groups if group["params"]]

    def _criterion_groups(self, lr: float, weight_decay: float) -> Iterator[dict[str, Any]]:
        offer = self._offered("parameter_groups")
        groups = offer(lr=lr) if offer is not None else [{"params": list(self.criterion.parameters())}]
        for group in groups:
            trained = [parameter for parameter in group["params"] if parameter.requires_grad]
            yield {"lr": lr, **group, "weight_decay": weight_decay, "params": trained, "criterion": True}

    def epoch_end(self) -> None:
        """Tell the criterion that an epoch of training is over."""
        end = self._offered("epoch_end")
        if end is not None:
            end()

    @property
    def parts(self) -> dict[str, Tensor]:
        """The scalar parts of the last loss, detached; empty if the criterion names none."""
        parts: dict[str, Tensor] = getattr(self.criterion, "parts", {})
        return {name: part.detach().reshape(()) for name, part in parts.items() if part.numel() == 1}

    def accumulation(self) -> AbstractContextManager[object]:
        """A context in which several forwards count as one optimizer step for the criterion's own state."""
        context = self._offered("accumulation")
        return nullcontext() if context is None else context()

    def residual_labels(self) -> Tensor | None:
        """The criterion's class similarities (K, K), detached, or None if it learns none."""
        labels = self._offered("residual_labels")
        return None if labels is None else labels().detach()

    def _offered(self, name: str) -> Any:
        """A method that a criterion may have, or None."""
        return getattr(self.criterion, name, None)

"""Model and criterion as one module, for trainers and loops that train, wrap and save one module."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from adaptive_labels.losses.base import Criterion


class ModelAndCriterion(nn.Module):
    """From inputs and targets to the loss and the logits.

    Whatever wraps, moves or saves this module (``DistributedDataParallel``, accelerate, a ``LightningModule``) does so
    with the criterion's state, too; the loss is then normalised over the batch of all processes.

    Args:
        model: gives the logits (N, K) of an input.
        criterion: any criterion that needs no teacher.

    >>> from adaptive_labels import AdaptiveLabelLoss
    >>> trained = ModelAndCriterion(torch.nn.Linear(5, 3), AdaptiveLabelLoss(3))
    >>> loss, logits = trained(torch.zeros(2, 5), torch.tensor([0, 2]))
    >>> logits.shape
    torch.Size([2, 3])
    """

    def __init__(self, model: nn.Module, criterion: Criterion) -> None:
        super().__init__()
        self.model = model
        self.criterion = check_criterion(criterion)
        self.criterion.shares_batches = True

    def forward(self, input: Any, target: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and the logits (N, K)."""
        logits = self.model(input)
        return self.criterion(logits, target), logits

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Optimizer groups: the model's parameters, and those of the criterion if it has any that are trained."""
        return [{"params": list(self.model.parameters())}, *self.criterion.parameter_groups()]


def check_criterion(criterion: object) -> Criterion:
    """The criterion, or an error if a trainer that has a batch's logits and labels alone cannot compute it."""
    if not isinstance(criterion, Criterion):
        raise TypeError(f"criterion must be one of adaptive_labels.losses, got {type(criterion).__name__}")
    if criterion.needs_teacher_logits:
        raise ValueError(f"{type(criterion).__name__} needs a teacher or peers, which this trainer does not have")
    if criterion.reduction != "mean":
        raise ValueError(f"criterion must have reduction='mean', got {criterion.reduction!r}")
    return criterion


def check_optimized(criterion: Criterion, groups: Iterable[Mapping[str, Any]]) -> None:
    """Raise unless an optimizer's ``groups`` have all parameters of the criterion that are trained."""
    optimized = {id(parameter) for group in groups for parameter in group["params"]}
    for name, parameter in criterion.named_parameters():
        if parameter.requires_grad and id(parameter) not in optimized:
            raise ValueError(
                f"no optimizer has {type(criterion).__name__}.{name}, so it would never change: give "
                "criterion.parameter_groups() to the optimizer"
            )

"""Predictions and figures for held-out examples, in large batches."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from adaptive_labels.objectives import Inputs
from adaptive_labels.training.batches import inputs_of
from adaptive_labels.training.contracts import Encoded, Padded
from adaptive_labels.training.means import RunningMeans

__all__ = ["evaluate", "predict_logits", "to_device"]

LARGE_BATCH = 512
_PLACES = 2**16  # of a padded batch: 256 words of 256 texts, for which attention needs about as much memory as weights


def to_device(inputs: Inputs, device: torch.device) -> Inputs:
    """Inputs on a device; those that are there already are not copied."""
    if isinstance(inputs, Tensor):
        return inputs.to(device, non_blocking=True)
    return tuple(tensor.to(device, non_blocking=True) for tensor in inputs)


def evaluate(
    objective: nn.Module, examples: Encoded, labels: Tensor, *, device: torch.device, batch_size: int = LARGE_BATCH
) -> tuple[float, float]:
    """Accuracy and mean loss in evaluation mode, where a criterion is plain cross entropy; the mode is put back."""
    means = RunningMeans()
    with _evaluating(objective):
        groups = _groups(examples, batch_size)
        for number, (indices, inputs) in enumerate(zip(groups, inputs_of(examples, groups), strict=True)):
            target = labels[indices].to(device)
            loss, logits = objective(to_device(inputs, device), target)
            means.add(number, loss, logits, target, {})
    means.fold()
    return means.accuracy, means.loss


def predict_logits(
    model: nn.Module, examples: Encoded, *, device: torch.device | None = None, batch_size: int = LARGE_BATCH
) -> Tensor:
    """The logits (N, K) of all examples, float32 on the CPU; the model is moved to `device` if one is given."""
    if device is not None:
        model.to(device)
    else:
        device = next((tensor.device for tensor in model.state_dict().values()), torch.device("cpu"))
    with _evaluating(model):
        groups = _groups(examples, batch_size)
        logits = [model(to_device(inputs, device)).float().cpu() for inputs in inputs_of(examples, groups)]
    in_place = torch.empty(len(examples), logits[0].shape[1])
    in_place[torch.cat(groups)] = torch.cat(logits)
    return in_place


def _groups(examples: Encoded, batch_size: int) -> list[Tensor]:
    """All examples in order; those that are padded by their length, in batches that are small where they are long."""
    order = torch.arange(len(examples))
    if isinstance(examples, Padded):
        order = examples.lengths.argsort(stable=True)
        batch_size = max(1, min(batch_size, _PLACES // max(1, int(examples.lengths.max()))))
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients, and back to the mode before."""
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        module.train(training)

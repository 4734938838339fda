"""Means over an epoch of training, and predictions and figures for held-out examples."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from adaptive_labels.lab.objectives import Call, Inputs
from adaptive_labels.lab.training import processes
from adaptive_labels.lab.training.batches import BatchSource, PaddedSource, ProcessSlice, inputs_of, slice_of, to_device

LARGE_BATCH = 512
_PLACES = 2**16  # of a padded batch: 256 words of 256 texts, for which attention needs about as much memory as weights
# So many logits are kept before the right ones are counted: one large operation costs less than many small ones.
HELD_LOGITS = 2**18


class RunningMeans:
    """Means of loss, accuracy and loss parts over examples.

    Adding a batch does not wait for the device, and mostly does not compute: `fetch` gets at once what was set aside.
    The means are those of the batches fetched so far.
    """

    def __init__(self) -> None:
        self.examples = 0
        self.loss_sum = 0.0
        self.correct = 0
        self.bad_step: int | None = None
        self._parts: dict[str, tuple[float, int]] = {}
        self._pending: list[tuple[int, int, Tensor, Mapping[str, Tensor]]] = []  # step, examples, loss, parts
        self._logits: list[Tensor] = []
        self._targets: list[Tensor] = []
        self._held = 0
        self._corrects: list[Tensor] = []

    def add(self, step: int, loss: Tensor, logits: Tensor, target: Tensor, parts: Mapping[str, Tensor]) -> None:
        """Set a batch of a step aside: its mean loss, logits (N, K), labels (N,) and the scalar parts of its loss."""
        self._pending.append((step, len(target), loss.detach(), parts))
        self._logits.append(logits.detach())
        self._targets.append(target)
        self._held += logits.numel()
        if self._held >= HELD_LOGITS:
            self._count_correct()

    def fetch(self) -> None:
        """Fetch what is set aside; `bad_step` becomes the first step with a loss that is not finite."""
        if not self._pending:
            return
        losses = torch.stack([loss for _, _, loss, _ in self._pending]).tolist()
        for (step, count, _, _), loss in zip(self._pending, losses, strict=True):
            if self.bad_step is None and not math.isfinite(loss):
                self.bad_step = step
            self.examples += count
            self.loss_sum += count * loss
        named = [(name, part, count) for _, count, _, parts in self._pending for name, part in parts.items()]
        values = torch.stack([part for _, part, _ in named]).tolist() if named else []
        for (name, _, count), value in zip(named, values, strict=True):
            total, examples = self._parts.get(name, (0.0, 0))
            self._parts[name] = (total + count * value, examples + count)
        self._pending.clear()
        self._count_correct()
        self.correct += sum(torch.stack(self._corrects).tolist())
        self._corrects.clear()

    def _count_correct(self) -> None:
        if self._logits:
            logits = self._logits[0] if len(self._logits) == 1 else torch.cat(self._logits)
            self._corrects.append((logits.argmax(dim=1) == torch.cat(self._targets)).sum())
            self._logits.clear()
            self._targets.clear()
            self._held = 0

    def state(self) -> dict[str, Any]:
        """What `restore` needs to go on from here, once all is fetched."""
        sums = {"examples": self.examples, "loss_sum": self.loss_sum, "correct": self.correct}
        return {**sums, "parts": {name: list(both) for name, both in self._parts.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.examples, self.loss_sum, self.correct = state["examples"], state["loss_sum"], state["correct"]
        self._parts = {name: (total, examples) for name, (total, examples) in state["parts"].items()}

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


def evaluate_objective(
    objective: nn.Module,
    examples: BatchSource,
    labels: Tensor,
    *,
    device: torch.device,
    batch_size: int = LARGE_BATCH,
    caller: Callable[[ProcessSlice], Call] = lambda part: lambda network, inputs: network(inputs),
) -> tuple[float, float]:
    """Accuracy and mean loss in evaluation mode, where a criterion is plain cross entropy; the mode is put back.

    ``caller`` makes how networks are called for the slice of each batch; the loss is that of the whole batch.
    """
    means = RunningMeans()
    with _evaluating(objective):
        for part, inputs in _slices(examples, batch_size):
            target = labels[part.whole].to(device)
            loss, logits = objective(to_device(inputs, device), target, caller(part))
            means.add(0, loss, logits, target, {})
    means.fetch()
    return means.accuracy, means.loss


def predicted_batches(
    model: nn.Module, examples: BatchSource, *, batch_size: int = LARGE_BATCH
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the indices (B,) of some examples and their logits (B, K), float32 on the CPU, by a model on any device.

    Several processes compute a slice each; the first one gets the whole, the others nothing, (0,) and (0, K).
    """
    device = next((tensor.device for tensor in model.state_dict().values()), torch.device("cpu"))
    with _evaluating(model):
        for part, inputs in _slices(examples, batch_size):
            logits = processes.gather(model(to_device(inputs, device)).float().cpu(), part.sizes)
            yield (part.whole, logits) if processes.rank() == 0 else (part.whole[:0], logits[:0])


def predict_logits(model: nn.Module, examples: BatchSource, *, batch_size: int = LARGE_BATCH) -> Tensor:
    """The logits (N, K) of all examples, float32 on the CPU.

    Several processes compute a slice each; the first one gets the whole, the others nothing, (0, K).
    """
    in_place: Tensor | None = None
    for indices, logits in predicted_batches(model, examples, batch_size=batch_size):
        if in_place is None:
            in_place = torch.empty(len(examples) if processes.rank() == 0 else 0, logits.shape[1])
        in_place[indices] = logits
    assert in_place is not None, "there are no examples"
    return in_place


def _slices(examples: BatchSource, batch_size: int) -> Iterator[tuple[ProcessSlice, Inputs]]:
    """This process's slices of all examples, with their inputs.

    The examples are in order; those that are padded by their length, in batches that are small where they are long.
    """
    order = torch.arange(len(examples))
    if isinstance(examples, PaddedSource):
        order = examples.lengths.argsort(stable=True)
        batch_size = max(1, min(batch_size, _PLACES // max(1, int(examples.lengths.max()))))
    world, rank, starts = processes.world(), processes.rank(), range(0, len(order), batch_size)
    slices = [slice_of(order[start : start + batch_size], world, rank) for start in starts]
    return zip(slices, inputs_of(examples, [part.indices for part in slices]), strict=True)


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

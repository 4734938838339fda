"""The training accuracy that drives the weight on L_res: 1 − acc, or min(acc, 1 − acc)."""

import torch
from torch import Tensor, nn

from adaptive_labels.losses.arguments import check_number
from adaptive_labels.losses.batch import number, numbers, over, wide_dtype

RESIDUAL_WEIGHTS = ("running", "batch", "epoch", "waiting")


class TrainingAccuracy(nn.Module):
    """Counts correct predictions over batches and epochs, and computes the weight on L_res from them.

    The counts of a batch stay in ``pending_counts`` until the next step begins. So the running average always lags by
    one step, and several micro-batches can be one step.

    After step t the average is a_t = a_{t−1} + (acc_t − a_{t−1}) (1 − m) / (1 − m^t): the mean of all batches, recent
    ones counting more, and of these alone. Without the division it would start from an accuracy of 0 that no batch had,
    and after 100 steps with m = 0.99 still consist of it by 37%.

    Args:
        residual_weight: ``"running"``, ``"batch"``, ``"epoch"``, ``"waiting"``, or a number at least 0.
        momentum: of the running average, in [0, 1).
    """

    running: Tensor
    steps: Tensor
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
        self.residual_weight = residual_weight
        self.momentum = check_number("accuracy_momentum", momentum, 0, 1, open_high=True)
        self.register_buffer("running", torch.zeros((), dtype=wide_dtype()))
        self.register_buffer("steps", torch.zeros((), dtype=wide_dtype()))  # folded into it
        self.register_buffer("pending_counts", torch.zeros(2, dtype=wide_dtype()))  # hits, samples
        self.register_buffer("epoch_counts", torch.zeros(2, dtype=wide_dtype()))
        self.register_buffer("last_epoch", torch.zeros((), dtype=wide_dtype()))

    def weight(self, of_batch: Tensor | float | None = None, fold: bool = True) -> Tensor | float:
        """The weight on L_res of the step that begins; a number on the CPU.

        ``of_batch``: the batch's own accuracy, which only ``residual_weight="batch"`` needs; ``fold``: whether a new
        step begins.
        """
        if fold:
            self.fold()
        chosen = self.residual_weight
        if not isinstance(chosen, str):
            return chosen
        if chosen == "batch":
            assert of_batch is not None
            return 1 - of_batch
        accuracy = number(self.last_epoch if chosen == "epoch" else self.running)
        # waiting: min(acc, 1 − acc), of numbers and tensors alike
        weight: Tensor | float = 0.5 - abs(accuracy - 0.5) if chosen == "waiting" else 1 - accuracy
        return weight

    def count(self, hits: Tensor | float, samples: Tensor | float) -> None:
        """Add the counts of a batch."""
        pending = self.pending_counts
        if isinstance(hits, Tensor) or isinstance(samples, Tensor) or pending.device.type != "cpu":
            both = (torch.as_tensor(n, dtype=pending.dtype, device=pending.device) for n in (hits, samples))
            pending.add_(torch.stack(tuple(both)).detach())
        else:  # through numpy's view, in a third of the time
            counts = pending.numpy()
            counts[0] += hits
            counts[1] += samples

    def fold(self) -> None:
        """Add the counts of the last step to the averages; a step without samples does not change them."""
        pending, running, steps, m = self.pending_counts, self.running, self.steps, self.momentum
        hits, samples = numbers(pending)
        if isinstance(samples, Tensor):
            some = samples > 0
            steps.add_(some)
            share = some * (1 - m) / (1 - m ** steps.clamp_min(1))
            running.copy_((1 - share) * running + share * over(hits, samples))
        elif samples > 0:  # a few numbers cost less than operations on tiny tensors
            steps.fill_(done := steps.item() + 1)
            part = (1 - m) / (1 - m**done)
            running.fill_((1 - part) * running.item() + part * (hits / samples))
        else:
            return
        if self.residual_weight == "epoch":
            self.epoch_counts.add_(pending)
        pending.zero_()

    @torch.no_grad()
    def epoch_end(self) -> None:
        """Keep the accuracy of the epoch that ends, and begin to count the next."""
        self.fold()
        hits, samples = self.epoch_counts
        self.last_epoch.copy_(torch.where(samples > 0, over(hits, samples), self.last_epoch))
        self.epoch_counts.zero_()

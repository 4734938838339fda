"""The training accuracy that drives the weight on L_res: 1 − acc, or min(acc, 1 − acc)."""

import torch
from torch import Tensor, nn

from adaptive_labels.losses.arguments import check_number
from adaptive_labels.losses.batch import number, numbers, over, wide_dtype

MOMENTUM = 0.99
RESIDUAL_WEIGHTS = ("running", "waiting")


class TrainingAccuracy(nn.Module):
    """Counts correct predictions, and computes the weight on L_res from a running average of their share.

    The counts of a batch stay in ``pending_counts`` until the next step begins. So the running average always lags by
    one step, and several micro-batches can be one step.

    After step t the average is a_t = a_{t−1} + (acc_t − a_{t−1}) (1 − m) / (1 − m^t): the mean of all batches, recent
    ones counting more, and of these alone. Without the division it would start from an accuracy of 0 that no batch had,
    and after 100 steps with m = 0.99 still consist of it by 37%.

    Args:
        residual_weight: ``"running"``, ``"waiting"``, or a number at least 0.
    """

    running: Tensor
    steps: Tensor
    pending_counts: Tensor

    def __init__(self, residual_weight: str | float) -> None:
        super().__init__()
        if not isinstance(residual_weight, str):
            residual_weight = check_number("residual_weight", residual_weight, 0)
        elif residual_weight not in RESIDUAL_WEIGHTS:
            raise ValueError(
                f"residual_weight must be 'running', 'waiting' or a number at least 0, got {residual_weight!r}"
            )
        self.residual_weight = residual_weight
        self.register_buffer("running", torch.zeros((), dtype=wide_dtype()))
        self.register_buffer("steps", torch.zeros((), dtype=wide_dtype()))  # folded into it
        self.register_buffer("pending_counts", torch.zeros(2, dtype=wide_dtype()))  # hits, samples

    def weight(self) -> Tensor | float:
        """The weight on L_res, from the steps that are done; a number on the CPU."""
        if not isinstance(self.residual_weight, str):
            return self.residual_weight
        accuracy = number(self.running)
        # waiting: min(acc, 1 − acc), of numbers and tensors alike
        weight: Tensor | float = 0.5 - abs(accuracy - 0.5) if self.residual_weight == "waiting" else 1 - accuracy
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

    def update_average(self) -> None:
        """Add the counts of the last step to the average; a step without samples does not change it."""
        pending, running, steps = self.pending_counts, self.running, self.steps
        hits, samples = numbers(pending)
        if isinstance(samples, Tensor):
            some = samples > 0
            steps.add_(some)
            share = some * (1 - MOMENTUM) / (1 - MOMENTUM ** steps.clamp_min(1))
            running.copy_((1 - share) * running + share * over(hits, samples))
        elif samples > 0:  # a few numbers cost less than operations on tiny tensors
            steps.fill_(done := steps.item() + 1)
            part = (1 - MOMENTUM) / (1 - MOMENTUM**done)
            running.fill_((1 - part) * running.item() + part * (hits / samples))
        else:
            return
        pending.zero_()

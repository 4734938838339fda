"""Online label smoothing: soft labels are the mean correct predictions of the last epoch."""

from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptive_labels.losses.arguments import check_number, warn_caller
from adaptive_labels.losses.base import Criterion, Terms
from adaptive_labels.losses.batch import Batch, over, wide_dtype
from adaptive_labels.losses.registry import register_method
from adaptive_labels.losses.targets import cross_entropy, hits, is_index

STEPS_BEFORE_WARNING = 3_000


def online_label_smoothing_loss(logits: Tensor, target: Tensor, table: Tensor, hard_share: float = 0.5) -> Tensor:
    r"""Online label smoothing: cross entropy with the label and with the class's soft label of the last epoch.

    .. math:: L = α\,CE(z, t) + (1-α) \sum_k t_k \sum_i -T_{ki} \log p_i

    Args:
        logits: (N, K).
        target: class indices (N,) or class probabilities (N, K).
        table: T (K, K), row k the soft label of class k (its rows sum to 1).
        hard_share: α in [0, 1].

    Returns:
        (N,).

    >>> z, y = torch.tensor([[2.0, 0.0]]), torch.tensor([0])
    >>> online_label_smoothing_loss(z, y, torch.tensor([[0.9, 0.1], [0.5, 0.5]]))
    tensor([0.2269])

    Reference: Zhang et al. 2021 (Delving deep into label smoothing), equations 4 to 6.
    """
    soft = table[target] if is_index(target) else target @ table
    return hard_share * cross_entropy(logits, target) + (1 - hard_share) * cross_entropy(logits, soft)


def correct_prediction_sums(logits: Tensor, target: Tensor, weights: Tensor | float = 1.0) -> tuple[Tensor, Tensor]:
    """Sums of correct predictions by class, from which online label smoothing makes its next table.

    Args:
        logits: (N, K).
        target: class indices (N,) or class probabilities (N, K); with a mixture, a prediction of k counts
            for class k with its target probability.
        weights: (N,), how much each sample counts (0 where it is ignored); or one number for all.

    Returns:
        Sums of the predicted probabilities (K, K), and how many each row is made of (K,).

    >>> z, y = torch.tensor([[9.0, 0.0], [0.0, 9.0]]), torch.tensor([0, 0])
    >>> correct_prediction_sums(z, y, torch.ones(2))[1]     # the second one is wrong
    tensor([1., 0.])
    """
    shares = weights * hits(logits, target)  # (N,)
    predicted, p = logits.argmax(1), F.softmax(logits, dim=1)
    sums = p.new_zeros(p.shape[1], p.shape[1]).index_add(0, predicted, shares.unsqueeze(1) * p)
    return sums, p.new_zeros(p.shape[1]).index_add(0, predicted, shares)


@register_method("ols", "online label smoothing: mean correct predictions", main_option="hard_share", search=(0.1, 0.9))
@final
class OnlineLabelSmoothing(Criterion):
    """Online label smoothing: each epoch's soft labels are the mean correct predictions of the epoch before.

    The table starts uniform, and changes at :meth:`epoch_end`. See :func:`online_label_smoothing_loss`.

    Args:
        hard_share: α in [0, 1], the weight of the plain cross entropy.
        reset_missing: for a class without a correct prediction in the epoch: False keeps its row, True makes it uniform
            again, as in the authors' code.
    """

    shares_batches = True
    table: Tensor
    sums: Tensor
    counts: Tensor

    def __init__(
        self, num_classes: int, hard_share: float = 0.5, *, reset_missing: bool = False, **common: Any
    ) -> None:
        super().__init__(num_classes, **common)
        self.hard_share = check_number("hard_share", hard_share, 0, 1)
        self.reset_missing = reset_missing
        self.register_buffer("table", torch.full((num_classes, num_classes), 1.0 / num_classes, dtype=wide_dtype()))
        self.register_buffer("sums", torch.zeros(num_classes, num_classes, dtype=wide_dtype()))
        self.register_buffer("counts", torch.zeros(num_classes, dtype=wide_dtype()))
        self._steps: int | None = 0  # without epoch_end(); None once that was called, or warned of

    def _terms(self, batch: Batch, world: int) -> Terms:
        table = self.table.to(batch.logits.dtype)
        loss = online_label_smoothing_loss(batch.logits, batch.target, table, self.hard_share)
        with torch.no_grad():
            weights = batch.sample_weight * batch.logits.sum(1).isfinite()
            sums, counts = correct_prediction_sums(batch.logits.nan_to_num(0.0, 0.0, 0.0), batch.target, weights)
            shared = self._all_reduce(torch.cat((sums, counts.unsqueeze(1)), 1), world).to(self.sums.dtype)

        def trained_on() -> None:
            self.sums += shared[:, :-1]
            self.counts += shared[:, -1]
            if self._steps is not None and not torch.compiler.is_compiling():
                self._steps += 1
                self._warn_of_missing_ends()

        hard = cross_entropy(batch.logits.detach(), batch.target)
        return Terms(loss, parts={"hard": hard, "total": loss}, afterwards=trained_on)

    def _warn_of_missing_ends(self) -> None:
        if self._steps == STEPS_BEFORE_WARNING:
            self._steps = None
            warn_caller(
                f"OnlineLabelSmoothing has made {STEPS_BEFORE_WARNING:,} steps without epoch_end(): until you call it, "
                "at the end of each epoch, its soft labels stay uniform. If the first epoch is longer, all is well."
            )

    @torch.no_grad()
    def epoch_end(self) -> None:
        """Compute the next epoch's table from this epoch's correct predictions."""
        self._steps = None
        seen = (self.counts > 0).unsqueeze(1)
        missing = torch.full_like(self.table, 1 / self.num_classes) if self.reset_missing else self.table
        self.table.copy_(torch.where(seen, over(self.sums, self.counts.unsqueeze(1)), missing))
        self.sums.zero_()
        self.counts.zero_()

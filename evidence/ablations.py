"""What the paper leaves open and only studies vary, as a method composed from `adaptive_labels.functional`.

    alr study evidence/studies/factors.toml --plugin evidence/ablations.py

S is a parameter of the optimizer. Shapes: M samples, K classes.
"""

from typing import Any

import torch
from torch import Tensor, nn

from adaptive_labels import functional as F
from adaptive_labels.losses import Criterion, register_method
from adaptive_labels.losses.accuracy import TrainingAccuracy
from adaptive_labels.losses.base import Terms
from adaptive_labels.losses.batch import Batch, over


@register_method("alr-ablation", "adaptive label regularisation, read in other ways")
class AblatedLoss(Criterion):
    """L_hard + a·L_res + L_upd with what its arguments change.

    Args:
        num_classes: K.
        label_smoothing: ε of L_hard.
        smooth_over: spread ε over ``"all"`` K classes, or over the K−1 ``"others"``.
        attraction: τ of L_res.
        normalization: ``"sum"`` over classes; ``"literal"``, the equations' factors 1/K on L_hard and 1/(K−1) on the
            others; ``"hybrid"``, 1/(K−1) on the others only.
        residual_weight: a is 1 − accuracy: ``"running"``, of past batches; ``"batch"``, of this one; ``"epoch"``, of
            the epoch before.
        residual_reduction: the mean of L_upd over the ``"batch"``, or over each ``"class"`` and summed over classes.
        **common: see :class:`Criterion`.
    """

    shares_batches = True
    sums: Tensor
    last: Tensor

    def __init__(
        self,
        num_classes: int,
        label_smoothing: float = 0.0,
        *,
        smooth_over: str = "all",
        attraction: float = 1.0,
        normalization: str = "sum",
        residual_weight: str = "running",
        residual_reduction: str = "batch",
        **common: Any,
    ) -> None:
        super().__init__(num_classes, **common)
        self.label_smoothing, self.smooth_over, self.attraction = label_smoothing, smooth_over, attraction
        self.normalization, self.residual_weight = normalization, residual_weight
        self.residual_reduction = residual_reduction
        self.residual_logits = nn.Parameter(torch.zeros(num_classes, num_classes - 1))
        self.accuracy = TrainingAccuracy("running")
        self.register_buffer("sums", torch.zeros(2))  # hits and samples of this epoch
        self.register_buffer("last", torch.zeros(()))  # the accuracy of the one before

    def _terms(self, batch: Batch, world: int) -> Terms:
        z, t, own = batch.logits, batch.target, batch.sample_weight
        self.accuracy.update_average()
        hits, samples = (F.hits(z.detach(), t) * own).sum(), batch.sum(own)
        weights = {"batch": 1 - over(hits, samples), "epoch": 1 - self.last, "running": self.accuracy.weight()}
        a = weights[self.residual_weight]
        # Over the K−1 others, ε is K/(K−1) times as large over all K.
        spread = self.num_classes / (self.num_classes - 1) if self.smooth_over == "others" else 1.0
        hard = F.hard_loss(z, t, spread * self.label_smoothing)
        rows = self.residual_logits.to(z.dtype)
        residual, update = F.residual_loss(z, t, rows, self.attraction), F.update_loss(z, t, rows)
        if self.residual_reduction == "class":  # of labels; times M, since the mean over the batch follows
            counts = torch.bincount(t, minlength=self.num_classes)
            update = update * (len(t) / counts[t])
        of_hard = 1 / self.num_classes if self.normalization == "literal" else 1.0
        of_others = 1.0 if self.normalization == "sum" else 1 / (self.num_classes - 1)
        parts = {"hard": hard, "residual": residual, "update": update, "accuracy": over(hits, samples), "weight": a}

        def trained_on() -> None:
            self.accuracy.count(hits, samples)
            self.sums += torch.stack([torch.as_tensor(count, dtype=self.sums.dtype) for count in (hits, samples)])

        return Terms(of_hard * hard + a * of_others * residual, of_others * update, parts, trained_on)

    def epoch_end(self) -> None:
        """Keep the accuracy of the epoch that ends."""
        hits, samples = self.sums
        self.last.copy_(over(hits, samples))
        self.sums.zero_()

    def residual_labels(self) -> Tensor:
        """The residual labels (K, K)."""
        return F.residual_labels(self.residual_logits.detach())

"""Every loss and target as a pure function: unreduced, with its formula, a numeric example and its source.

Shapes everywhere: N samples, K classes; ``logits`` (N, K); ``target`` class indices (N,) or class probabilities (N, K).
The criteria in :mod:`adaptive_labels.losses` add checks, state and reduction, and compute in float32 or wider.
"""

from adaptive_labels.functional.alr import (
    cross_entropy,
    hard_loss,
    hard_loss_gradient,
    hits,
    residual_labels,
    residual_logits_from_labels,
    residual_loss,
    residual_loss_gradient,
    residual_loss_of_rows,
    smoothing_share,
    update_gradient_of_rows,
    update_loss,
    update_loss_gradient,
    update_loss_of_rows,
)
from adaptive_labels.functional.distillation import distillation_loss, mutual_learning_kl, teacher_free_loss
from adaptive_labels.functional.peers import (
    complement_entropy,
    confidence_penalty,
    correct_prediction_sums,
    label_smoothing_plus_plus_losses,
    max_suppression,
    online_label_smoothing_loss,
)
from adaptive_labels.functional.targets import (
    as_probabilities,
    disturb_labels,
    erase,
    is_index,
    restore,
    smooth_labels,
)

__all__ = [
    "as_probabilities",
    "complement_entropy",
    "confidence_penalty",
    "correct_prediction_sums",
    "cross_entropy",
    "distillation_loss",
    "disturb_labels",
    "erase",
    "hard_loss",
    "hard_loss_gradient",
    "hits",
    "is_index",
    "label_smoothing_plus_plus_losses",
    "max_suppression",
    "mutual_learning_kl",
    "online_label_smoothing_loss",
    "residual_labels",
    "residual_logits_from_labels",
    "residual_loss",
    "residual_loss_gradient",
    "residual_loss_of_rows",
    "restore",
    "smooth_labels",
    "smoothing_share",
    "teacher_free_loss",
    "update_gradient_of_rows",
    "update_loss",
    "update_loss_gradient",
    "update_loss_of_rows",
]

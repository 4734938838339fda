"""Every loss and target as a pure function: unreduced, with its formula, a numeric example and its source.

Shapes everywhere: N samples, K classes; ``logits`` (N, K); ``target`` class indices (N,) or class probabilities (N, K).
The criteria in :mod:`adaptive_labels.losses` add checks, state and reduction, and compute in float32 or wider.
"""

from adaptive_labels.losses.complement_entropy import complement_entropy
from adaptive_labels.losses.confidence_penalty import confidence_penalty
from adaptive_labels.losses.distillation import distillation_loss
from adaptive_labels.losses.disturb_label import disturb_labels
from adaptive_labels.losses.label_smoothing import hard_loss, hard_loss_gradient, smooth_labels
from adaptive_labels.losses.label_smoothing_plus_plus import label_smoothing_plus_plus_losses
from adaptive_labels.losses.max_suppression import max_suppression
from adaptive_labels.losses.mutual_learning import mutual_learning_kl
from adaptive_labels.losses.online_label_smoothing import correct_prediction_sums, online_label_smoothing_loss
from adaptive_labels.losses.residual import (
    residual_labels,
    residual_logits_from_labels,
    residual_loss,
    residual_loss_gradient,
    residual_loss_of_rows,
    update_gradient_of_rows,
    update_loss,
    update_loss_gradient,
    update_loss_of_rows,
)
from adaptive_labels.losses.targets import as_probabilities, cross_entropy, erase, hits, is_index, restore
from adaptive_labels.losses.teacher_free import teacher_free_loss

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
    "teacher_free_loss",
    "update_gradient_of_rows",
    "update_loss",
    "update_loss_gradient",
    "update_loss_of_rows",
]

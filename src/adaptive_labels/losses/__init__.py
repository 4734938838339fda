"""One criterion a method, each in the place of ``torch.nn.CrossEntropyLoss``: ``loss = criterion(logits, target)``."""

from adaptive_labels.losses.adaptive import AdaptiveLabelLoss
from adaptive_labels.losses.base import Criterion
from adaptive_labels.losses.confusions import Confusion
from adaptive_labels.losses.learned import LabelSmoothingPlusPlus, OnlineLabelSmoothing
from adaptive_labels.losses.peers import (
    ComplementEntropy,
    ConfidencePenalty,
    CrossEntropy,
    Distillation,
    DisturbLabel,
    LabelSmoothing,
    MaxSup,
    MutualLearning,
    TeacherFree,
)
from adaptive_labels.losses.registry import METHODS, Method, create_loss, find_method

__all__ = [
    "METHODS",
    "AdaptiveLabelLoss",
    "ComplementEntropy",
    "ConfidencePenalty",
    "Confusion",
    "Criterion",
    "CrossEntropy",
    "Distillation",
    "DisturbLabel",
    "LabelSmoothing",
    "LabelSmoothingPlusPlus",
    "MaxSup",
    "Method",
    "MutualLearning",
    "OnlineLabelSmoothing",
    "TeacherFree",
    "create_loss",
    "find_method",
]

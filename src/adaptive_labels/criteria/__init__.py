"""One criterion a method, each in the place of ``torch.nn.CrossEntropyLoss``: ``loss = criterion(logits, target)``."""

from adaptive_labels.criteria.adaptive import AdaptiveLabelLoss
from adaptive_labels.criteria.base import Criterion
from adaptive_labels.criteria.confusions import Confusion
from adaptive_labels.criteria.learned import LabelSmoothingPlusPlus, OnlineLabelSmoothing
from adaptive_labels.criteria.peers import (
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
from adaptive_labels.criteria.registry import METHODS, Method, create_criterion, find_method

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
    "create_criterion",
    "find_method",
]

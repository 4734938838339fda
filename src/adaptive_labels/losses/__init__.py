"""One criterion per method, each used like ``torch.nn.CrossEntropyLoss``: ``loss = criterion(logits, target)``.

A method is one file in this folder: its function, its class and its registration. All of them are imported here.
"""

import importlib
import pkgutil

# METHODS lists the methods in this order.
# isort: off
from adaptive_labels.losses.cross_entropy import CrossEntropy
from adaptive_labels.losses.label_smoothing import LabelSmoothing
from adaptive_labels.losses.adaptive import AdaptiveLabelLoss

# isort: on
from adaptive_labels.losses.base import Criterion
from adaptive_labels.losses.complement_entropy import ComplementEntropy
from adaptive_labels.losses.confidence_penalty import ConfidencePenalty
from adaptive_labels.losses.confusions import Confusion

# isort: off, since METHODS lists them in this order
from adaptive_labels.losses.distillation import Distillation
from adaptive_labels.losses.disturb_label import DisturbLabel
from adaptive_labels.losses.label_smoothing_plus_plus import LabelSmoothingPlusPlus
from adaptive_labels.losses.low_rank import LowRankAdaptiveLabelLoss
from adaptive_labels.losses.max_suppression import MaxSup
from adaptive_labels.losses.mutual_learning import MutualLearning
from adaptive_labels.losses.online_label_smoothing import OnlineLabelSmoothing
from adaptive_labels.losses.registry import METHODS, Method, create_loss, find_method, register_method
from adaptive_labels.losses.teacher_free import TeacherFree

for _module in pkgutil.iter_modules(__path__):  # a new file needs no line above
    importlib.import_module(f"{__name__}.{_module.name}")

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
    "LowRankAdaptiveLabelLoss",
    "MaxSup",
    "Method",
    "MutualLearning",
    "OnlineLabelSmoothing",
    "TeacherFree",
    "create_loss",
    "find_method",
    "register_method",
]

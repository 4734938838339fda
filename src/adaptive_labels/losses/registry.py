"""The criteria by the names that commands and configurations use."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from adaptive_labels.errors import UserError
from adaptive_labels.losses.adaptive import AdaptiveLabelLoss
from adaptive_labels.losses.base import Criterion
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

_NETWORK_OPTIONS = {
    "teacher": ("teacher", "teacher_run", "teacher_model", "teacher_options"),
    "peers": ("peers", "peer_models"),
    "generations": ("generations",),
}


@dataclass(frozen=True)
class Method:
    """A criterion with the options that its name stands for, and the one option worth tuning."""

    name: str
    description: str
    criterion: Callable[..., Criterion]
    options: dict[str, Any]
    main_option: str | None = None
    search: tuple[
        float, ...
    ] = ()  # (lowest, highest) of the main option, in logarithmic steps if the lowest is above 0
    guide: Literal["teacher", "peers", "generations"] | None = None  # what is followed beside the labels

    @property
    def network_options(self) -> tuple[str, ...]:
        """The options that say which other networks there are; they are the training's, not the criterion's."""
        return _NETWORK_OPTIONS.get(self.guide or "", ())

    def trials(self, count: int) -> tuple[str, list[float]]:
        """The main option, and ``count`` values of it to try, evenly spread over what makes sense.

        >>> METHODS["slr"].trials(3)
        ('label_smoothing', [0.02, 0.1, 0.5])
        """
        if self.main_option is None:
            raise UserError(f"method {self.name!r} has no option to tune")
        low, high = self.search
        steps = [i / (count - 1) for i in range(count)] if count > 1 else [0.5]
        if low > 0:
            values = [low * (high / low) ** step for step in steps]
        else:
            values = [low + (high - low) * step for step in steps]
        return self.main_option, [float(f"{value:.3g}") for value in values]


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("baseline", "plain cross entropy", CrossEntropy, {}),
        Method("slr", "label smoothing", LabelSmoothing, {"label_smoothing": 0.1}, "label_smoothing", (0.02, 0.5)),
        Method("alr", "adaptive label regularisation", AdaptiveLabelLoss, {}, "attraction", (-8.0, 1.0)),
        Method(
            "alr-s",
            "adaptive label regularisation with label smoothing",
            AdaptiveLabelLoss,
            {"label_smoothing": 0.1},
            "label_smoothing",
            (0.02, 0.5),
        ),
        Method(
            "alr-wait",
            "adaptive label regularisation that waits until something is learned",
            AdaptiveLabelLoss,
            {"residual_weight": "waiting"},
            "attraction",
            (-8.0, 1.0),
        ),
        Method(
            "disturb-label",
            "a share of the labels drawn at random in each step",
            DisturbLabel,
            {},
            "disturbance",
            (0.02, 0.5),
        ),
        Method("confidence-penalty", "confident predictions penalised", ConfidencePenalty, {}, "strength", (0.02, 1.0)),
        Method("kd", "knowledge distillation from a teacher", Distillation, {}, "alpha", (0.1, 0.9), "teacher"),
        Method("dml", "deep mutual learning with a peer", MutualLearning, {}, "strength", (0.1, 2.0), "peers"),
        Method("label-refinery", "labels refined by the generation before", CrossEntropy, {}, guide="generations"),
        Method(
            "ols",
            "online label smoothing: mean correct predictions",
            OnlineLabelSmoothing,
            {},
            "hard_share",
            (0.1, 0.9),
        ),
        Method(
            "ls++",
            "Label Smoothing++: a fixed mass, divided as learned",
            LabelSmoothingPlusPlus,
            {},
            "mass",
            (0.02, 0.5),
        ),
        Method("tf-kd", "teacher-free distillation from a virtual teacher", TeacherFree, {}, "alpha", (0.02, 0.9)),
        Method(
            "complement-entropy",
            "entropy over the wrong classes maximised",
            ComplementEntropy,
            {},
            "strength",
            (0.1, 10.0),
        ),
        Method("max-sup", "the largest logit suppressed", MaxSup, {}, "strength", (0.02, 0.5)),
    )
}


def find_method(name: str) -> Method:
    """The method called ``name``, or a ``ValueError`` with the nearest name."""
    if name in METHODS:
        return METHODS[name]
    near = difflib.get_close_matches(name, METHODS, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UserError(f"unknown method {name!r}: {hint}the methods are {', '.join(METHODS)}")


def create_loss(name: str, num_classes: int, **options: Any) -> Criterion:
    """The criterion of the method called ``name``; ``options`` are its arguments and override the method's own.

    >>> create_loss("alr-s", 10)
    AdaptiveLabelLoss(
      10, residual_weight='running', label_smoothing=0.1
      (accuracy): TrainingAccuracy()
    )
    """
    method = find_method(name)
    known = set(inspect.signature(method.criterion).parameters) | set(inspect.signature(Criterion).parameters)
    known -= {"common", "num_classes"}
    for option in options:
        if option in method.network_options:
            raise UserError(
                f"option {option!r} of method {name!r} is for training; its criterion is called with guide="
            )
        if option not in known:
            known |= set(method.network_options)
            near = difflib.get_close_matches(option, known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise UserError(f"unknown option {option!r} of method {name!r}: {hint}it takes {', '.join(sorted(known))}")
    return method.criterion(num_classes, **{**method.options, **options})

"""Checks of the criteria's arguments: each message names the argument, the value and what is allowed; and warnings."""

import math
import sys
import warnings
from collections.abc import Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor

STEPS_BEFORE_WARNING = 100


def check_number(
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """``value`` as a float in [low, high]; ``open_low`` and ``open_high`` leave out the ends."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    number = float(value)
    inside = (number > low if open_low else number >= low) and (number < high if open_high else number <= high)
    if not math.isfinite(number) or not inside:
        if low == -math.inf and high == math.inf:
            allowed = "finite"
        elif high == math.inf:
            allowed = f"finite and {'above' if open_low else 'at least'} {low:g}"
        else:
            allowed = f"in {'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"
        raise ValueError(f"{name} must be {allowed}, got {value}")
    return number


def check_choice(name: str, value: str, choices: Sequence[str]) -> str:
    """``value`` if it is one of ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def warn_caller(message: str) -> None:
    """Warn at the line of the caller's own code, which called this package through torch or by itself."""
    frame, level, passed = sys._getframe(1), 2, ("adaptive_labels", "torch", "contextlib")
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in passed:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


class StillnessWarning:
    """Warns if S has gradients and never changes: with update="optimizer" it was left out of the optimizer."""

    def __init__(self, criterion: Any) -> None:
        self.criterion, self.steps, self.start = [criterion], 0, torch.zeros(())

    def __call__(self, parameter: Tensor) -> None:
        """The parameter has a gradient: count a step, and look whether the one before it has moved S."""
        if self.criterion[0]._accumulating or parameter.is_meta:  # micro-batches are no steps
            return
        self.steps += 1
        if self.steps == 1:
            self.start = parameter.detach().abs().sum()
        elif self.steps == STEPS_BEFORE_WARNING and bool(parameter.detach().abs().sum() == self.start):
            warn_caller(
                f"{type(self.criterion[0]).__name__}: the residual labels receive gradients but never change: their "
                "parameter was left out of the optimizer. Give the optimizer criterion.parameter_groups() as well, or "
                "leave update at 'self'."
            )

"""Warn if S was left out of the optimizer, so that it gets gradients and never changes."""

from torch import Tensor

from adaptive_labels.losses.arguments import warn_caller

STEPS_BEFORE_WARNING = 100


class GradientWatch:
    """Counts the steps in which a parameter got a gradient, and warns once if it has not moved."""

    def __init__(self) -> None:
        self.steps: int | None = 0  # None: no longer of interest
        self.got_gradient = False
        self.start: Tensor | None = None  # the sum of the parameter's sizes before the first step

    def notice(self, gradient: Tensor) -> None:
        """Remember that there was a gradient: it may be cleared before the next step begins."""
        if self.steps is not None and not self.got_gradient and not gradient.is_meta:
            self.got_gradient = bool(gradient.any())

    def begin_step(self, parameter: Tensor) -> None:
        """Count the step before, if it had a gradient."""
        if self.steps is None or parameter.is_meta:
            return
        if self.start is None:
            self.start = parameter.detach().abs().sum()
        self.steps += self.got_gradient
        self.got_gradient = False
        if self.steps >= STEPS_BEFORE_WARNING:
            self.warn_if_still(parameter)

    def warn_if_still(self, parameter: Tensor) -> None:
        """Warn if the parameter got gradients in several steps and has not changed."""
        if self.steps is None or self.start is None or self.steps + self.got_gradient < 2:
            return
        self.steps = None
        if bool(parameter.detach().abs().sum() == self.start):
            warn_caller(
                "AdaptiveLabelLoss: the residual labels receive gradients but never change: their parameter was left "
                "out of the optimizer. Give the optimizer criterion.parameter_groups() as well, or "
                "construct the criterion with update='self' or 'frozen'."
            )

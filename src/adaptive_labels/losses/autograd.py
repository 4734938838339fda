"""A loss that comes with its gradients, and changes its state when it is trained on: what autograd is told of it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adaptive_labels.losses.batch import full_precision


class DerivedLoss(NamedTuple):
    """A loss, a scalar or (M,), its gradients by logits and parameters, and what is done when it is trained on."""

    loss: Tensor
    gradient: Tensor
    of_parameters: tuple[Tensor, ...]
    afterwards: Callable[[], None]


class ClosedForm(torch.autograd.Function):
    """A loss whose gradients are computed together with its value. Its first backward pass runs ``afterwards``.

    So a forward that is not trained on, or that activation checkpointing repeats, changes no state.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, compute: Callable[[Tensor], DerivedLoss], *parameters: Tensor) -> Tensor:
        """Compute, and keep the gradients by ``logits`` and ``parameters``."""
        outcome = compute(logits)
        ctx.save_for_backward(outcome.gradient, *outcome.of_parameters)
        ctx.afterwards = outcome.afterwards
        if not any(ctx.needs_input_grad):
            outcome.afterwards()
        return outcome.loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients."""
        gradient, *of_parameters = ctx.saved_tensors
        _run_once(ctx, upstream)
        twice = torch.is_grad_enabled()  # create_graph=True
        with torch.no_grad():
            if upstream.dim() == 1:  # reduction="none"
                gradient = gradient * upstream.unsqueeze(1)
            elif upstream.device.type != "cpu" or upstream.item() != 1.0:  # as it almost always is
                gradient = gradient * upstream
                of_parameters = [one * upstream.to(one.dtype) for one in of_parameters]
        if twice:
            gradient = _Once.apply(gradient, torch.zeros((), requires_grad=True))  # type: ignore[no-untyped-call]
        return gradient, None, *of_parameters


def _run_once(ctx: Any, upstream: Tensor) -> None:
    afterwards, ctx.afterwards = ctx.afterwards, None
    if afterwards is not None:
        with torch.no_grad(), full_precision(upstream.device.type):
            afterwards()


class _Once(torch.autograd.Function):
    """A gradient that raises an error when it is differentiated again, rather than being taken for a constant."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, tracked: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        raise RuntimeError(
            "AdaptiveLabelLoss has no second derivative: compose the loss from adaptive_labels.functional to "
            "differentiate its gradient"
        )


class _Afterwards(torch.autograd.Function):
    """The identity; its first backward pass calls a function."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, afterwards: Callable[[], None]) -> Tensor:
        ctx.afterwards = afterwards
        ctx.save_for_backward(loss)
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        _ = ctx.saved_tensors  # activation checkpointing repeats the forward now, with the state as it was
        _run_once(ctx, upstream)
        return upstream, None


def when_trained(loss: Tensor, afterwards: Callable[[], None]) -> Tensor:
    """The loss, whose first backward pass calls a function; at once where there is none to come, or while compiling."""
    if torch.compiler.is_compiling() or not loss.requires_grad:
        with torch.no_grad():
            afterwards()
        return loss
    trained: Tensor = _Afterwards.apply(loss, afterwards)  # type: ignore[no-untyped-call]
    return trained

"""Losses of other packages that can be measured beside ours, if they are installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from torch import Tensor

# What it is called here: the module, the class and its arguments.
RELATED: dict[str, tuple[str, str, dict[str, float]]] = {
    "timm: LabelSmoothingCrossEntropy": ("timm.loss", "LabelSmoothingCrossEntropy", {"smoothing": 0.1}),
    "pytorch-toolbelt: SoftCrossEntropyLoss": (
        "pytorch_toolbelt.losses",
        "SoftCrossEntropyLoss",
        {"smooth_factor": 0.1},
    ),
}


def installed_packages() -> tuple[dict[str, Callable[[Tensor, Tensor], Tensor]], dict[str, str]]:
    """The losses that can be had, and for the others why not."""
    found: dict[str, Callable[[Tensor, Tensor], Tensor]] = {}
    missing: dict[str, str] = {}
    for name, (module, loss, options) in RELATED.items():
        try:
            found[name] = getattr(import_module(module), loss)(**options)
        except Exception as error:  # another package may fail in its own way
            missing[name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return found, missing

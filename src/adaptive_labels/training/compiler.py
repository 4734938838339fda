"""`torch.compile` of a network, answered with a sentence where it cannot be."""

import os
import shutil
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from adaptive_labels.config import ConfigError

__all__ = ["check_compiler", "compiled_forward"]

_COMPILERS = ("g++", "clang++", "c++", "cl")


def check_compiler(device: torch.device) -> None:
    """Raise a ConfigError if torch would find no compiler for this device."""
    if device.type != "cpu":
        return  # torch brings its own for GPUs, or says what is missing
    given = os.environ.get("CXX")
    wanted = (given,) if given else _COMPILERS
    if not any(shutil.which(name) for name in wanted):
        raise ConfigError(
            f"training.compile is true, but no C++ compiler is here (looked for {', '.join(wanted)}): install one, "
            "name it in the environment variable CXX, or leave compile off"
        )


def compiled_forward(model: nn.Module) -> Callable[..., Any]:
    """What takes the place of `model.forward`; nothing is compiled before its first call."""
    from torch._dynamo.exc import TorchDynamoException

    run = torch.compile(model.forward)

    def forward(*inputs: Any) -> Any:
        try:
            return run(*inputs)
        except TorchDynamoException as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            raise ConfigError(
                f"training.compile is true, but torch cannot compile {type(model).__name__} here ({lines[0]}): "
                "leave compile off"
            ) from error

    return forward

"""The device, number format and compiler of a run, with an error message where one cannot be used."""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from adaptive_labels.lab.config import ConfigError
from adaptive_labels.lab.training import processes
from adaptive_labels.lab.training.progress import warn
from adaptive_labels.lab.words import first_line


def choose_device(name: str) -> torch.device:
    """The device of a name; "auto" takes CUDA, then MPS, then the CPU. Several processes take one GPU each."""
    if processes.world() > 1:
        if name not in ("auto", "cpu", "cuda"):
            raise ConfigError(f"training.device is {name!r}: several processes take a GPU each (cuda), or the cpu")
        cuda = name == "cuda" or (name == "auto" and torch.cuda.is_available())
        name = f"cuda:{os.environ.get('LOCAL_RANK', processes.rank())}" if cuda else "cpu"
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", 0)
        return torch.device("mps", 0) if torch.backends.mps.is_available() else torch.device("cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"training.device is {name!r}: this machine has {torch.cuda.device_count()} CUDA devices that torch can use"
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"training.device is {name!r}: torch finds no MPS device here")
    return device if device.type == "cpu" else torch.device(device.type, device.index or 0)


def check_precision(precision: str, device: torch.device) -> None:
    """Raise a ConfigError if training in `precision` on `device` cannot work, and say where it may not."""
    if device.type == "cpu" and precision == "16-mixed":
        raise ConfigError("training.precision is '16-mixed', which needs a GPU: on a CPU use 32 or bf16-mixed")
    if device.type == "cpu" and precision == "bf16-mixed" and "ONEDNN_MAX_CPU_ISA" not in os.environ:
        warn(
            "if bf16-mixed ends with 'Illegal instruction', this processor lacks what it advertises: use precision 32, "
            "or set the environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"
        )


def compiled(network: nn.Module) -> Callable[..., Any]:
    """A network's forward, compiled at its first call."""
    from torch._dynamo.exc import TorchDynamoException

    run = torch.compile(network.forward)

    def forward(inputs: Any) -> Any:
        try:
            return run(inputs)
        except TorchDynamoException as error:
            raise ConfigError(
                f"training.compile is true, but torch cannot compile {type(network).__name__} here "
                f"({first_line(error)}): leave compile off, or on a CPU see that a C++ compiler is installed"
            ) from error

    return forward

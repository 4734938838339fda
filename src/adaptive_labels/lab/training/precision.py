"""Which device, number format and compiler a run can use on this machine, with an error message if it cannot."""

import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from adaptive_labels.lab.config import ConfigError
from adaptive_labels.lab.training import processes
from adaptive_labels.lab.words import first_line

_BF16_PROBE = """
import torch
layers = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 64))
with torch.autocast("cpu", torch.bfloat16):
    loss = layers(torch.ones(16, 3, 8, 8)).float().square().mean()
loss.backward()
"""
_COMPILERS = ("g++", "clang++", "c++", "cl")


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
    """Raise a ConfigError if training in `precision` on `device` cannot work."""
    if device.type != "cpu":
        return
    if precision == "16-mixed":
        raise ConfigError("training.precision is '16-mixed', which needs a GPU: on a CPU use 32 or bf16-mixed")
    if precision == "bf16-mixed" and (ended := _probe(_BF16_PROBE)) != "well":
        raise ConfigError(
            f"training.precision is 'bf16-mixed', but a bfloat16 product ends the process here ({ended}): use 32, "
            "or set the environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before starting"
        )


@functools.cache
def _probe(code: str) -> str:
    """Run code in a child process, which a trapped instruction may end; "well", or how it ended."""
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    if child.returncode == 0:
        return "well"
    if child.returncode < 0:
        return signal.strsignal(-child.returncode) or f"signal {-child.returncode}"
    lines = child.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit status {child.returncode}"


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
    """`model.forward`, compiled at its first call."""
    from torch._dynamo.exc import TorchDynamoException

    run = torch.compile(model.forward)

    def forward(*inputs: Any) -> Any:
        try:
            return run(*inputs)
        except TorchDynamoException as error:
            raise ConfigError(
                f"training.compile is true, but torch cannot compile {type(model).__name__} here "
                f"({first_line(error)}): leave compile off"
            ) from error

    return forward

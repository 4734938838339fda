"""Which device and number format a run can use here, answered with a sentence where it cannot."""

import functools
import signal
import subprocess
import sys
from typing import Literal

import torch

from adaptive_labels.config import ConfigError

__all__ = ["check_precision", "choose_device"]

_BF16_PROBE = """
import torch
layers = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 64))
with torch.autocast("cpu", torch.bfloat16):
    loss = layers(torch.ones(16, 3, 8, 8)).float().square().mean()
loss.backward()
"""


def choose_device(name: str) -> torch.device:
    """The device of a name; "auto" takes CUDA, then MPS, then the CPU."""
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
    if precision == "16-mixed" and device.type == "cpu":
        raise ConfigError("training.precision is '16-mixed', which needs a GPU: on a CPU use 32 or bf16-mixed")
    if precision == "bf16-mixed" and device.type == "cpu":
        ended = _probe(_BF16_PROBE)
        if ended != "well":
            raise ConfigError(
                f"training.precision is 'bf16-mixed', but a bfloat16 product ends the process here ({ended}): use 32, "
                "or set the environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before starting"
            )


@functools.cache
def _probe(code: str) -> Literal["well"] | str:
    """Run code in a child process, which a trapped instruction may end, and say how it ended."""
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    if child.returncode == 0:
        return "well"
    if child.returncode < 0:
        return signal.strsignal(-child.returncode) or f"signal {-child.returncode}"
    lines = child.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit status {child.returncode}"

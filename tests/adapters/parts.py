"""What the tests of all trainers share: a network, a plain loop that every trainer must equal, two processes.

Every trainer sees the same 24 examples in the same order, in optimizer steps of 8.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from adaptive_labels import AdaptiveLabelLoss
from adaptive_labels.losses import create_loss

SCRIPTS = Path(__file__).parent.parent.parent / "examples"
K, EXAMPLES, EPOCHS, STEP = 4, 24, 3, 8
OPTIMIZER = {"lr": 0.1, "weight_decay": 0.1}
CRITERIA = {
    "alr": lambda: AdaptiveLabelLoss(K),
    "weighted": lambda: AdaptiveLabelLoss(K, weight=torch.tensor([1.0, 2.0, 0.5, 3.0])),
    "optimizer": lambda: AdaptiveLabelLoss(K, update="optimizer"),
    "ols": lambda: create_loss("ols", K),
    "ls++": lambda: create_loss("ls++", K),
    "slr": lambda: create_loss("slr", K),
}


class Network(nn.Module):
    """Without biases, which some trainers exempt from weight decay."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Linear(6, 8, bias=False)
        self.head = nn.Linear(8, K, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        logits: Tensor = self.head(self.stem(input).relu())
        return logits


def examples(soft: bool = False) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(3)
    inputs = torch.randn(EXAMPLES, 6, generator=random)
    labels = (inputs[:, :K] + 0.5 * inputs[:, 1 : K + 1]).argmax(1)
    if soft:
        one_hot = nn.functional.one_hot(labels, K).float()
        return inputs, 0.7 * one_hot + 0.3 * one_hot.flip(0)
    return inputs, labels


def state_of(model: nn.Module, criterion: nn.Module) -> dict[str, Tensor]:
    found = {"model": model.state_dict(), "criterion": criterion.state_dict()}
    return {f"{owner}.{name}": value.clone() for owner, state in found.items() for name, value in state.items()}


def train_plainly(name: str, soft: bool = False, per_label: bool = False) -> dict[str, Tensor]:
    """A loop over whole batches in one process; ``per_label`` divides by the number of labels, not by their weights."""
    model, criterion = Network(), CRITERIA[name]()
    groups = [{"params": model.parameters()}, *criterion.parameter_groups()]
    optimizer = torch.optim.SGD(groups, **OPTIMIZER)
    if per_label:
        criterion.reduction = "sum"
    inputs, labels = examples(soft)
    for _ in range(EPOCHS):
        for x, y in zip(inputs.split(STEP), labels.split(STEP), strict=True):
            optimizer.zero_grad()
            (criterion(model(x), y) / (STEP if per_label else 1)).backward()
            optimizer.step()
        criterion.epoch_end()
    if name == "alr":
        assert criterion.residual_logits.abs().max() > 1e-2  # it has moved
    return state_of(model, criterion)


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 0.0) -> None:
    """The same names with the same tensors; bit by bit unless a tolerance is given."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


def load_example(name: str) -> ModuleType:
    """A script of examples/ as a module that pickle can find."""
    found = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def run_in_two_processes(script: Path, *arguments: Any) -> str:
    """What a script prints whose processes form a group of ``torch.distributed``."""
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout

"""ModelAndCriterion: what wraps it wraps both, and what it lacks is said; adapters name the extra they need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from adapters.parts import (
    CRITERIA,
    EPOCHS,
    OPTIMIZER,
    STEP,
    K,
    Network,
    assert_equal,
    examples,
    state_of,
    train_plainly,
)
from adaptive_labels import AdaptiveLabelLoss
from adaptive_labels.adapters import ModelAndCriterion
from adaptive_labels.adapters.module import check_criterion, check_optimized
from adaptive_labels.losses import create_loss


def train_in_two_processes(name: str, folder: Path) -> dict[str, Tensor]:
    """Batches of unequal sizes: 5 of each 8 examples here, 3 there."""
    trained = ModelAndCriterion(Network(), CRITERIA[name]())
    wrapped = nn.parallel.DistributedDataParallel(trained)
    optimizer = torch.optim.SGD(trained.parameter_groups(), **OPTIMIZER)
    inputs, labels = examples()
    own = slice(5) if dist.get_rank() == 0 else slice(5, None)
    for _ in range(EPOCHS):
        for x, y in zip(inputs.split(STEP), labels.split(STEP), strict=True):
            optimizer.zero_grad()
            wrapped(x[own], y[own])[0].backward()
            optimizer.step()
        trained.criterion.epoch_end()
    return state_of(trained.model, trained.criterion)


@pytest.mark.slow
@pytest.mark.parametrize("name", CRITERIA)
def test_two_processes_equal_one(two_processes: Path, name: str) -> None:
    for rank in range(2):
        assert_equal(torch.load(two_processes / f"module-{name}.{rank}"), train_plainly(name), 1e-4)


def test_what_no_trainer_can_compute_is_refused() -> None:
    with pytest.raises(TypeError, match=r"must be one of adaptive_labels\.losses, got CrossEntropyLoss"):
        ModelAndCriterion(Network(), nn.CrossEntropyLoss())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs a teacher"):
        check_criterion(create_loss("kd", K))
    with pytest.raises(ValueError, match="reduction='mean', got 'sum'"):
        check_criterion(AdaptiveLabelLoss(K, reduction="sum"))


def test_parameters_without_an_optimizer_are_noticed() -> None:
    trained = ModelAndCriterion(Network(), CRITERIA["optimizer"]())
    with pytest.raises(ValueError, match=r"no optimizer has AdaptiveLabelLoss\.residual_logits"):
        check_optimized(trained.criterion, [{"params": trained.model.parameters()}])
    check_optimized(trained.criterion, trained.parameter_groups())
    check_optimized(AdaptiveLabelLoss(K), [])


CODE = """
import sys
for name in ("sklearn", "transformers", "lightning", "pytorch_lightning", "timm"):
    sys.modules[name] = None
import adaptive_labels.adapters
for adapter in ("sklearn", "transformers", "lightning", "timm"):
    try:
        __import__(f"adaptive_labels.adapters.{adapter}")
    except ImportError as error:
        print(error)
"""


def test_without_a_trainer_its_adapter_names_the_extra() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    for line, adapter in zip(lines, ("sklearn", "transformers", "lightning", "timm"), strict=True):
        assert line.endswith(f"pip install 'adaptive-labels[{adapter}]'")

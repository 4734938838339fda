"""CriterionTask in a loop as timm's train script has it: against timm, or a stand-in of its task contract."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from adapters.parts import CRITERIA, EPOCHS, OPTIMIZER, K, Network, assert_equal, examples, state_of, train_plainly
from adapters.timm_stand_in import install
from adaptive_labels import AdaptiveLabelLoss

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
REFUSED = ("optimizer", "ls++")
# With class weights, a mean of the means of micro-batches is not the mean over the step.
TAKEN = [name for name in CRITERIA if name not in ("weighted", *REFUSED)]


@pytest.fixture(autouse=True)
def timm() -> Iterator[None]:
    added = install()
    yield
    for name in (*added, "adaptive_labels.adapters.timm"):
        sys.modules.pop(name, None)


def task_of(criterion: nn.Module) -> tuple[Any, torch.optim.Optimizer]:
    from timm.optim import create_optimizer_v2

    from adaptive_labels.adapters.timm import CriterionTask

    task = CriterionTask(Network(), criterion, verbose=False)
    return task, create_optimizer_v2(task.get_trainable_module(), "momentum", momentum=0.0, **OPTIMIZER)


def train_epoch(task: Any, optimizer: torch.optim.Optimizer, rank: slice = slice(None), soft: bool = False) -> None:
    """Batches of 2 with ``no_sync`` for the first three of each four, as in timm's train script."""
    task.train()
    inputs, labels = examples(soft)
    for number, (x, y) in enumerate(zip(inputs.split(2), labels.split(2), strict=True), 1):
        with task.no_sync() if number % 4 else nullcontext():
            (task(x[rank], y[rank])["loss"] / 4).backward()
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
            task.update_ema()
    task.epoch_end()


def trained(task: Any, optimizer: torch.optim.Optimizer, epochs: int = EPOCHS, **options: Any) -> dict[str, Tensor]:
    for _ in range(epochs):
        train_epoch(task, optimizer, **options)
    return state_of(getattr(task.trainable_module, "module", task.trainable_module), task.criterion)


def train_in_two_processes(name: str, folder: Path) -> dict[str, Tensor]:
    install()
    task, optimizer = task_of(CRITERIA[name]())
    task.prepare_distributed()
    return trained(task, optimizer, rank=slice(dist.get_rank(), dist.get_rank() + 1))


@pytest.mark.parametrize("name", TAKEN)
def test_two_processes_equal_one(two_processes: Path, name: str) -> None:
    for rank in range(2):
        assert_equal(torch.load(two_processes / f"timm-{name}.{rank}"), train_plainly(name), 1e-4)


@pytest.mark.parametrize(("name", "soft"), [*((name, False) for name in TAKEN), ("alr", True)])
def test_four_accumulated_batches_equal_one_of_four_times_the_size(name: str, soft: bool) -> None:
    assert_equal(trained(*task_of(CRITERIA[name]()), soft=soft), train_plainly(name, soft), 1e-4)


@pytest.mark.parametrize("name", ["alr", "ols"])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, name: str) -> None:
    from timm.task import load_task_ema_checkpoint, resume_task_checkpoint
    from timm.utils import CheckpointSaver

    whole, optimizer = task_of(CRITERIA[name]())
    whole.setup_ema(decay=0.9)
    train_epoch(whole, optimizer)
    path = tmp_path / "0.pth.tar"
    CheckpointSaver(whole.get_trainable_module(), optimizer, task=whole)._save(str(path), 0)
    expected = trained(whole, optimizer, epochs=2)
    again, optimizer = task_of(CRITERIA[name]())
    again.setup_ema(decay=0.9)
    begin = resume_task_checkpoint(again, str(path), optimizer)
    load_task_ema_checkpoint(again, str(path))
    assert_equal(trained(again, optimizer, epochs=EPOCHS - begin), expected)
    average, expected_average = (task.get_eval_model(ema=True).state_dict() for task in (again, whole))
    assert_equal(average, expected_average)


def test_the_checkpoint_has_the_network_alone_and_the_criterion_beside_it() -> None:
    task, _ = task_of(AdaptiveLabelLoss(K))
    state = task.get_checkpoint_state()
    assert state["state_dict"].keys() == Network().state_dict().keys()
    assert "residual_logits" in state["task_state"]["criterion"]
    with pytest.raises(ValueError, match="the checkpoint has no criterion in 'task_state'"):
        task.load_checkpoint_state(Network().state_dict())
    task.load_checkpoint_state(Network().state_dict(), strict=False)


@pytest.mark.parametrize("name", REFUSED)
def test_a_criterion_that_would_not_be_trained_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"has parameters, and timm's optimizer takes those of the network only"):
        task_of(CRITERIA[name]())

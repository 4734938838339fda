"""The loop of examples/accelerate_loop.py: it resumes to the same bits, and two processes equal one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from adapters.parts import CRITERIA, assert_equal, load_example, state_of

pytest.importorskip("accelerate")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the trainer's own


def trained(folder: Path, name: str, **options: Any) -> dict[str, Tensor]:
    found = load_example("accelerate_loop").train(str(folder), CRITERIA[name](), **options)
    return state_of(found.model, found.criterion)


def train_in_two_processes(name: str, folder: Path) -> dict[str, Tensor]:
    return trained(folder, name, epochs=2, batch_size=8)


@pytest.mark.parametrize("name", CRITERIA)
def test_two_processes_equal_one(two_processes: Path, tmp_path: Path, name: str) -> None:
    expected = trained(tmp_path, name, epochs=2)
    for rank in range(2):
        assert_equal(torch.load(two_processes / f"accelerate-{name}.{rank}"), expected, 1e-4)


@pytest.mark.parametrize("name", ["alr", "optimizer", "ols", "ls++"])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, name: str) -> None:
    whole = trained(tmp_path, name, epochs=3)
    for stop in (5, 16):  # an epoch has 16 steps
        trained(tmp_path, name, epochs=3, stop_after=stop)
        assert_equal(trained(tmp_path, name, epochs=3, resume=True), whole)


def test_accumulated_batches_equal_whole_ones(tmp_path: Path) -> None:
    for name in ("alr", "weighted"):
        whole = trained(tmp_path, name, epochs=1, batch_size=64, micro_batches=1)
        assert_equal(trained(tmp_path, name, epochs=1), whole, 1e-4)


def test_the_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_example("accelerate_loop").main(str(tmp_path))
    printed = capsys.readouterr().out
    assert "accuracy 9" in printed
    assert "cloud 0 is taken for cloud 1" in printed

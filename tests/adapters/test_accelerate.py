"""The loop of examples/accelerate_loop.py: it resumes to the same bits, and two processes equal one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from adapters.parts import assert_equal, run_script
from adaptive_labels import AdaptiveLabelLoss
from adaptive_labels.losses import create_loss

pytest.importorskip("accelerate")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # the trainer's own
]

SCRIPT = Path(__file__).parent.parent.parent / "examples" / "accelerate_loop.py"
K = 4
CRITERIA = {
    "alr": lambda: AdaptiveLabelLoss(K, update="optimizer"),
    "epoch": lambda: AdaptiveLabelLoss(K, update="optimizer", residual_weight="epoch"),
    "class mean": lambda: AdaptiveLabelLoss(K, update="optimizer", residual_reduction="class"),
    "weighted": lambda: AdaptiveLabelLoss(K, update="optimizer", weight=torch.tensor([1.0, 2.0, 0.5, 3.0])),
    "ols": lambda: create_loss("ols", K),
    "ls++": lambda: create_loss("ls++", K),
    "slr": lambda: create_loss("slr", K),
}


def train(folder: Path, criterion: nn.Module, **options: Any) -> dict[str, Tensor]:
    """The network and the criterion after training."""
    found = importlib.util.spec_from_file_location("accelerate_loop", SCRIPT)
    assert found is not None
    assert found.loader is not None
    script = importlib.util.module_from_spec(found)
    found.loader.exec_module(script)
    states = {"model": script.train(str(folder), criterion, **options), "criterion": criterion}
    return {f"{owner}.{name}": value.clone() for owner, m in states.items() for name, value in m.state_dict().items()}


@pytest.mark.parametrize("name", ["alr", "epoch", "ols", "ls++"])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, name: str) -> None:
    whole = train(tmp_path, CRITERIA[name](), epochs=3)
    if name == "alr":
        assert whole["criterion.residual_logits"].abs().max() > 1e-2
    for stop in (5, 16, 20):  # an epoch has 16 steps
        train(tmp_path, CRITERIA[name](), epochs=3, stop_after=stop)
        assert_equal(train(tmp_path, CRITERIA[name](), epochs=3, resume=True), whole)


def test_the_running_accuracy_is_folded_once_per_step(tmp_path: Path) -> None:
    criterion = AdaptiveLabelLoss(K, update="optimizer")
    folds = []
    fold = criterion.accuracy.fold
    criterion.accuracy.fold = lambda: folds.append(float(criterion.accuracy.pending_counts[1])) or fold()
    train(tmp_path, criterion, epochs=1)
    assert [count for count in folds if count] == [64.0] * 16


WORKER = """
import sys
sys.path.insert(0, {tests!r})
import os, torch
from pathlib import Path
from accelerate import PartialState
from adapters.test_accelerate import CRITERIA, train
from process_end import leave
folder = Path(sys.argv[1])
for name, make in CRITERIA.items():
    state = train(folder, make(), epochs=2, batch_size=8)
    torch.save(state, folder / f"{{name}}.{{os.environ['RANK']}}")
assert PartialState().num_processes == 2
leave()
"""


def launch(*arguments: str) -> str:
    return run_script(*arguments, processes=2, ACCELERATE_USE_CPU="true")


def test_two_processes_equal_one(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER.format(tests=str(Path(__file__).parent.parent)))
    launch(str(script), str(tmp_path))
    for name, make in CRITERIA.items():
        expected = train(tmp_path / "one", make(), epochs=2)
        for rank in range(2):
            assert_equal(torch.load(tmp_path / f"{name}.{rank}", weights_only=True), expected, 1e-4)


def test_the_script_in_two_processes(tmp_path: Path) -> None:
    found = launch(str(SCRIPT), str(tmp_path))
    assert "accuracy 9" in found
    assert "cloud 0 is taken for cloud 1" in found

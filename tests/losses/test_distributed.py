"""Two real processes (gloo) equal one process on the whole batch, also with unequal shares of it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from adaptive_labels.losses import LowRankAdaptiveLabelLoss, create_loss

K, STEPS = 4, 6

WORKER = """
import sys
import torch, torch.distributed as dist
sys.path.insert(0, {tests!r})
from losses.test_distributed import CASES, work
from process_end import leave
rank, init, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method="file://" + init, rank=rank, world_size=2)
for case in CASES:
    work(rank, out, case)
leave()
"""

# name of the case: (method, options of the criterion, where it stands, sizes of the two processes' shares)
CASES: dict[str, tuple[str, dict, str, tuple[int, int]]] = {
    "inside": ("alr-s", {}, "inside", (8, 4)),
    "inside-weighted": ("alr-s", {"weight": torch.tensor([1.0, 2.0, 0.5, 3.0])}, "inside", (10, 2)),
    "inside-ignored": ("alr", {"ignore_index": 9}, "inside", (8, 4)),
    "inside-optimizer": ("alr", {"update": "optimizer"}, "inside", (9, 3)),
    "inside-ols": ("ols", {}, "inside", (8, 4)),
    "inside-ls++": ("ls++", {}, "inside", (8, 4)),
    "beside": ("alr", {}, "beside", (10, 2)),
    "beside-pairs": ("alr-s", {}, "beside", (7, 5)),
    "beside-soft": ("alr-s", {}, "beside", (7, 5)),
    "beside-ignored": ("alr", {"ignore_index": 9}, "beside", (6, 6)),
    "beside-accumulated": ("alr", {}, "beside", (6, 6)),
    "beside-optimizer": ("alr", {"update": "optimizer"}, "beside", (9, 3)),
    "beside-low-rank": ("low-rank", {}, "beside", (8, 4)),
    "beside-low-rank-soft": ("low-rank", {}, "beside", (8, 4)),
    "beside-low-rank-accumulated": ("low-rank", {}, "beside", (6, 6)),
    "beside-low-rank-optimizer": ("low-rank", {"update": "optimizer"}, "beside", (8, 4)),
    "beside-ols": ("ols", {}, "beside", (8, 4)),
    "beside-ls++": ("ls++", {}, "beside", (8, 4)),
}


class Objective(nn.Module):
    def __init__(self, model: nn.Module, criterion: nn.Module) -> None:
        super().__init__()
        self.model, self.criterion = model, criterion

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.criterion(self.model(x), y)


def build(case: str) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(1)
    name, options, _, _ = CASES[case]
    criterion = LowRankAdaptiveLabelLoss(K, 3, **options) if name == "low-rank" else create_loss(name, K, **options)
    return nn.Linear(5, K).double(), criterion.double()


def batches(case: str) -> list[tuple[torch.Tensor, Any]]:
    torch.manual_seed(2)
    made: list[tuple[torch.Tensor, Any]] = []
    for step in range(STEPS):
        x, y = torch.randn(12, 5).double(), torch.randint(K, (12,))
        if "ignored" in case and step % 2:
            y[8:] = 9
        soft = torch.rand(12, K).double().softmax(1)
        made.append((x, (y, y.flip(0), torch.rand(12)) if "pairs" in case else soft if "soft" in case else y))
    return made


def piece(target: Any, which: slice) -> Any:
    return tuple(part[which] for part in target) if isinstance(target, tuple) else target[which]


def optimizer_of(model: nn.Module, criterion: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([{"params": model.parameters()}, *criterion.parameter_groups()], lr=0.5)


def state(model: nn.Module, criterion: nn.Module) -> dict[str, torch.Tensor]:
    return {**model.state_dict(), **{f"criterion.{k}": v for k, v in criterion.state_dict().items()}}


def train(model: nn.Module, criterion: nn.Module, case: str, loss_of: Any, mine: slice, sync: bool) -> None:
    optimizer = optimizer_of(model, criterion)
    parts = 2 if "accumulated" in case else 1
    for step, (x, y) in enumerate(batches(case)):
        x, y = x[mine], piece(y, mine)
        optimizer.zero_grad()
        with criterion.accumulation() if parts > 1 else nullcontext():
            for part in range(parts):
                which = slice(part * len(x) // parts, (part + 1) * len(x) // parts)
                (loss_of(x[which], piece(y, which)) / parts).backward()
        if sync:
            criterion.sync()
        optimizer.step()
        if step == STEPS // 2:
            criterion.epoch_end()
    criterion.epoch_end()
    if hasattr(criterion, "accuracy"):
        criterion.accuracy.update_average()


def work(rank: int, out: str, case: str) -> None:
    """One process: trains on its share of every batch."""
    from torch.nn.parallel import DistributedDataParallel

    model, criterion = build(case)
    _, _, place, shares = CASES[case]
    inside = place == "inside"
    wrapped = DistributedDataParallel(Objective(model, criterion) if inside else model)
    mine = slice(0, shares[0]) if rank == 0 else slice(shares[0], None)
    sync = not inside and "ls++" in case
    train(model, criterion, case, wrapped if inside else lambda x, y: criterion(wrapped(x), y), mine, sync)
    torch.save(state(model, criterion), f"{out}.{case}.{rank}")


def single(case: str) -> dict[str, torch.Tensor]:
    model, criterion = build(case)
    train(model, criterion, case, lambda x, y: criterion(model(x), y), slice(None), False)
    return state(model, criterion)


def run_two_processes(folder: Path) -> None:
    """Train every case in two processes: one pair for all of them, since torch starts slowly."""
    script = WORKER.format(tests=str(Path(__file__).parent.parent))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(rank), str(folder / "init"), str(folder / "state")],
            stderr=subprocess.PIPE,
            env=environment,
        )
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=300)[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(errors)


def test_two_processes_equal_one(tmp_path: Path) -> None:
    run_two_processes(tmp_path)
    for case, (name, *_, shares) in CASES.items():
        expected = single(case)
        exact = {"rtol": 1e-10, "atol": 1e-10}
        for rank in range(2):
            found = torch.load(tmp_path / f"state.{case}.{rank}", weights_only=True)
            assert found.keys() == expected.keys()
            for key, value in expected.items():
                where = f"{case} ({name}, {shares}), process {rank}, {key}"
                torch.testing.assert_close(found[key], value, **exact, msg=lambda m, w=where: f"{w}: {m}")

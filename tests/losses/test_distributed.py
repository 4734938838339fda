"""Two real processes (gloo) equal one process on the whole batch, also with unequal shares of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

from adaptive_labels.losses import create_loss

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
    "inside": ("alr-s", {}, "inside", (6, 6)),
    "inside-unequal": ("alr", {"accuracy_momentum": 0.5}, "inside", (9, 3)),
    "inside-unequal-weighted": ("alr-s", {"weight": torch.tensor([1.0, 2.0, 0.5, 3.0])}, "inside", (10, 2)),
    "inside-self": ("alr", {"update": "self"}, "inside", (8, 4)),
    "inside-class-mean": ("alr", {"residual_reduction": "class", "residual_weight": "batch"}, "inside", (7, 5)),
    "inside-one-rank-all-ignored": ("alr", {"ignore_index": 9}, "inside", (8, 4)),
    "inside-low-rank": ("alr", {"rank": 3, "update": "self"}, "inside", (8, 4)),
    "inside-ols": ("ols", {}, "inside", (8, 4)),
    "inside-ls++": ("ls++", {}, "inside", (8, 4)),
    "beside": ("alr-s", {}, "beside", (6, 6)),
    "beside-sparse": ("alr", {"sparse": True}, "beside", (6, 6)),
    "beside-unequal": ("alr", {"accuracy_momentum": 0.5}, "beside", (9, 3)),
    "beside-weighted": ("alr-s", {"weight": torch.tensor([1.0, 2.0, 0.5, 3.0])}, "beside", (6, 6)),
    "beside-ignored": ("alr", {"ignore_index": 9, "residual_weight": "batch"}, "beside", (6, 6)),
    "beside-batch-weight": ("alr", {"residual_weight": "batch"}, "beside", (6, 6)),
    "beside-class-mean": ("alr", {"residual_reduction": "class"}, "beside", (7, 5)),
    "beside-low-rank": ("alr", {"rank": 3}, "beside", (8, 4)),
    "beside-self": ("alr", {"update": "self", "residual_reduction": "batch"}, "beside", (6, 6)),
    "beside-self-unequal": ("alr", {"update": "self"}, "beside", (10, 2)),
    "beside-ols": ("ols", {}, "beside", (8, 4)),
    "beside-ls++": ("ls++", {}, "beside", (8, 4)),
    "beside-never-synced": ("alr", {}, "beside", (6, 6)),
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
    return nn.Linear(5, K), create_loss(name, K, **options)


def batches(case: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(2)
    made = []
    for step in range(STEPS):
        x, y = torch.randn(12, 5), torch.randint(K, (12,))
        if "ignored" in case and step % 2:
            y[8:] = 9
        made.append((x, y))
    return made


def optimizer_of(model: nn.Module, criterion: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([{"params": model.parameters()}, *criterion.parameter_groups()], lr=0.5)


def state(model: nn.Module, criterion: nn.Module) -> dict[str, torch.Tensor]:
    return {**model.state_dict(), **{f"criterion.{k}": v for k, v in criterion.state_dict().items()}}


def work(rank: int, out: str, case: str) -> None:
    """One process: trains on its share of every batch."""
    import warnings

    from torch.nn.parallel import DistributedDataParallel

    model, criterion = build(case)
    _, _, place, shares = CASES[case]
    inside = place == "inside"
    wrapped = DistributedDataParallel(Objective(model, criterion) if inside else model)
    optimizer = optimizer_of(model, criterion)
    mine = slice(0, shares[0]) if rank == 0 else slice(shares[0], None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step, (x, y) in enumerate(batches(case)):
            optimizer.zero_grad()
            loss = wrapped(x[mine], y[mine]) if inside else criterion(wrapped(x[mine]), y[mine])
            loss.backward()
            if not inside and case != "beside-never-synced":
                criterion.sync()
            optimizer.step()
            if step == STEPS // 2:
                criterion.epoch_end()
    criterion.epoch_end()
    bare = [str(w.message) for w in caught if "outside a DistributedDataParallel module" in str(w.message)]
    assert len(bare) == (case == "beside-never-synced"), bare
    torch.save(state(model, criterion), f"{out}.{case}.{rank}")


def single(case: str) -> dict[str, torch.Tensor]:
    model, criterion = build(case)
    optimizer = optimizer_of(model, criterion)
    for step, (x, y) in enumerate(batches(case)):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
        if step == STEPS // 2:
            criterion.epoch_end()
    criterion.epoch_end()
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
    for case in CASES:
        if case == "beside-never-synced":
            continue
        expected = single(case)
        for rank in range(2):
            found = torch.load(tmp_path / f"state.{case}.{rank}", weights_only=True)
            assert found.keys() == expected.keys()
            for key, value in expected.items():
                if "pending" in key:
                    continue  # what a process has not shared yet is its own
                where = f"{case}, process {rank}, {key}"
                torch.testing.assert_close(found[key], value, rtol=1e-4, atol=1e-5, msg=lambda m, w=where: f"{w}: {m}")

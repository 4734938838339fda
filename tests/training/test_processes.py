"""Two and three real processes (gloo) train as one does on the whole batch, with every method."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from two_processes import CASES

SCRIPT = Path(__file__).parent / "two_processes.py"
# Some processors trap on the instructions that torch would choose for bfloat16.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}


Found = list[dict[str, Any]]


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Found]]:
    """What all cases end with, for each process of so many; pairs and triples are started at once, as torch is slow."""
    known: dict[int, Found] = {}

    def start(world: int, folder: Path) -> list[subprocess.Popen[bytes]]:
        where = [str(world), folder / f"init{world}", folder / "state"]
        command = [[sys.executable, SCRIPT, str(rank), *where] for rank in range(world)]
        return [subprocess.Popen(one, stderr=subprocess.PIPE, env=os.environ | ENVIRONMENT) for one in command]

    def train(*worlds: int) -> list[Found]:
        folder = tmp_path_factory.mktemp("processes")
        started = {world: start(world, folder) for world in worlds if world not in known}
        for world, processes in started.items():
            errors = [process.communicate(timeout=300)[1].decode() for process in processes]
            assert [process.returncode for process in processes] == [0] * world, "\n".join(errors)
            states = [folder / f"state.{world}.{rank}" for rank in range(world)]
            known[world] = [torch.load(state, weights_only=True) for state in states]
        return [known[world] for world in worlds]

    return train


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("world", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_several_processes_train_as_one(train: Callable[..., list[Found]], case: str, world: int) -> None:
    (alone,), several = train(1, world)
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if case == "bfloat16" else {"rtol": 1e-4, "atol": 2e-5}
    for rank, states in enumerate(several):
        assert states[case].keys() == alone[case].keys()
        for name, value in alone[case].items():
            if name == "logits" and rank > 0:
                assert len(states[case][name]) == 0  # only the first process writes
                continue
            where = f"process {rank}, {name}"
            torch.testing.assert_close(
                states[case][name].float(), value.float(), **tolerance, msg=lambda m, w=where: f"{w}: {m}"
            )

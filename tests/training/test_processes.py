"""Two and three real processes (gloo) train as one does on the whole batch, with every method."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from two_processes import CASES

SCRIPT = Path(__file__).parent / "two_processes.py"
# Some processors trap on the instructions that torch would choose for bfloat16.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}


def start(world: int, folder: Path) -> list[subprocess.Popen[bytes]]:
    where = [str(world), folder / f"init{world}", folder / "state"]
    command = [[sys.executable, SCRIPT, str(rank), *where] for rank in range(world)]
    return [subprocess.Popen(one, stderr=subprocess.PIPE, env=os.environ | ENVIRONMENT) for one in command]


def ends(processes: list[subprocess.Popen[bytes]], folder: Path) -> list[dict[str, Any]]:
    """What all cases end with, for each process."""
    world = len(processes)
    errors = [process.communicate(timeout=300)[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0] * world, "\n".join(errors)
    return [torch.load(folder / f"state.{world}.{rank}", weights_only=True) for rank in range(world)]


# One test for all cases, as importing torch in each process takes longer than they do.
@pytest.mark.parametrize("world", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_several_processes_train_as_one(tmp_path: Path, world: int) -> None:
    started = [start(count, tmp_path) for count in (1, world)]
    (alone,), several = [ends(processes, tmp_path) for processes in started]
    assert alone.keys() == set(CASES)
    different = [f"{case}: {words}" for case in CASES for words in differences(case, alone[case], several)]
    assert not different, "\n".join(different)


def differences(case: str, alone: dict[str, torch.Tensor], several: list[dict[str, Any]]) -> Iterator[str]:
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if case == "bfloat16" else {"rtol": 1e-4, "atol": 2e-5}
    for rank, states in enumerate(several):
        if states[case].keys() != alone.keys():
            yield f"process {rank} has {sorted(states[case])}, one process {sorted(alone)}"
            continue
        for name, value in alone.items():
            # Only the first process writes logits.
            expected = value[:0] if name == "logits" and rank > 0 else value
            try:
                torch.testing.assert_close(states[case][name].float(), expected.float(), **tolerance)
            except AssertionError as error:
                yield f"process {rank}, {name}: {error}"

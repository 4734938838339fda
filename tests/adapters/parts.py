"""What the tests of all adapters share: comparing states, and running scripts in one or two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch
from torch import Tensor

SCRIPTS = Path(__file__).parent.parent.parent / "examples"


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 0.0) -> None:
    """The same names with the same tensors; bit by bit unless a tolerance is given."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


def run_script(script: str | Path, *arguments: str | Path, processes: int = 1, **environment: str) -> str:
    """What a script prints; with several processes they form a group of ``torch.distributed``."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    done = subprocess.run(
        [sys.executable, *(launcher if processes > 1 else []), str(script), *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout

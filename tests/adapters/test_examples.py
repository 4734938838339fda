"""The scripts in examples/ do what their pages say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def run(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_transformers_trainer(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    found = run("transformers_trainer.py", str(tmp_path))
    assert "accuracy 9" in found
    assert "topic 0 is taken for topic 1" in found
    assert (tmp_path / "checkpoint-64" / "criterion.safetensors").is_file()

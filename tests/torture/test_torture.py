"""The short form of `make torture`: a few of everything."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("torture.py")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="the faults need a C compiler")
@pytest.mark.parametrize(
    "words",
    [
        ["kills", "--count", "12", "--task", "train text", "--task", "compare image"],
        ["kills", "--count", "3", "--task", "compare text, 2 workers"],
        ["faults", "--every", "15", "--task", "train text"],
        ["damage", "--every", "20", "--task", "train image"],
    ],
    ids=["kills", "kills of two workers", "faults", "damage"],
)
def test_a_few_kills_faults_and_damages(words, tmp_path):
    table = tmp_path / "outcomes.csv"
    command = [sys.executable, str(SCRIPT), *words, "--csv", str(table)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = table.read_text().splitlines()
    assert rows[-1] == "violations,,,0"
    assert len(rows) > 3

"""Two processes are started once for all trainers, since importing the trainers takes most of their time."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.parts import run_in_two_processes


@pytest.fixture(scope="session")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with ``TRAINER-CRITERION.RANK``: the states after training in two processes."""
    folder = tmp_path_factory.mktemp("two")
    run_in_two_processes(Path(__file__).parent / "two_processes.py", folder)
    return folder

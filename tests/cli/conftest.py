"""The real command on tiny real files: in this process, or as a process of its own where that is the point."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_parts import COMMAND, RECIPE, SOURCE, Alr, Ended, write_images, write_texts


@pytest.fixture
def alr(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Alr:
    """Calls the command's own `main` in this process, in an empty folder; importing torch again would cost seconds."""
    from adaptive_labels.lab.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALR_DEBUG", "")  # put back afterwards, whatever --debug does to it

    def run(*arguments: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["alr", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return Ended(end.value.code or 0, out, err)

    return run


@pytest.fixture
def start_alr(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the command as a process of its own, leader of a group; what is left of it at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("texts") / "small.csv")


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("images") / "colours")


@pytest.fixture(scope="session")
def compared(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with finished runs: baseline and alr, two seeds each. Tests read it and leave it as it is."""
    from adaptive_labels import compare

    out = tmp_path_factory.mktemp("compared")
    quick = {**RECIPE, "training": {**RECIPE["training"], "epochs": 4}}
    compare(texts, ["baseline", "alr"], 2, out=out, settings=quick)
    return out

"""Real schedulers and workers, on this machine; what a test starts ends with it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "cli"))  # cli_parts and job_tasks

from cli_parts import COMMAND, SOURCE, Start, free_port, wait_until, write_texts  # noqa: E402


def environment(**more: str) -> dict[str, str]:
    """What a process needs to find the package, the tasks of the tests, and whatever extra is installed."""
    path = [str(SOURCE), str(TESTS / "cli"), str(TESTS / "jobs"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path)), "OMP_NUM_THREADS": "1"} | more


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a process as the leader of a group, in the test's folder; its output goes to a file of its own."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str | Path, cwd: Path = tmp_path, **more: str) -> subprocess.Popen[str]:
        with (tmp_path / f"process-{len(started)}.log").open("w") as log:
            process = subprocess.Popen(
                list(map(str, arguments)),
                cwd=cwd,
                env=environment(**more),
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        started.append(process)
        return process

    yield run
    for process in reversed(started):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def alr(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command as a process of its own, in the test's folder."""

    def run(*arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, *map(str, arguments)]
        return subprocess.run(
            command, cwd=tmp_path, env=environment(**more), capture_output=True, text=True, timeout=300, check=False
        )

    return run


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return write_texts(tmp_path / "small.csv")


@pytest.fixture
def scheduler(start: Start) -> str:
    """The address of a Dask scheduler without workers."""
    pytest.importorskip("distributed", reason="the extra `sweeps` is not installed")
    port = free_port()
    dask = [sys.executable, "-m", "dask"]
    start(*dask, "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard", "--no-show")
    wait_until(lambda: answers(port))
    return f"tcp://127.0.0.1:{port}"


@pytest.fixture
def start_worker(start: Start, scheduler: str) -> Start:
    """Starts a worker for one run at a time; without a nanny, so that killing it is losing it."""
    from distributed import Client

    def run(**more: str) -> subprocess.Popen[str]:
        with Client(scheduler, set_as_default=False) as client:
            before = len(client.scheduler_info()["workers"])
            options = ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1"]
            worker = start(sys.executable, "-m", "dask", "worker", scheduler, *options, **more)
            client.wait_for_workers(before + 1, timeout=60)
        return worker

    return run


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True

"""Executors under a comparison: failures, deaths, threads, progress, and what any executor must do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from cli_parts import is_running, wait_until
from job_tasks import do, make_jobs

from adaptive_labels.errors import UserError
from adaptive_labels.lab.jobs import Here, as_job_executor, make_executor, processes
from adaptive_labels.lab.jobs.processes import LocalExecutor
from adaptive_labels.lab.jobs.queue import run_jobs

HERE = Path(__file__).parent
DEATH = "its process ended without a word: out of memory, or a crash in a library"


def tries(folder, number):
    return len((folder / f"{number}" / "tries").read_text().split())


def run_local(jobs, listener=lambda event: None, workers=2):
    with LocalExecutor(workers) as executor:
        return run_jobs(jobs, do, listener, executor)


def test_workers_share_the_cores_and_their_ends_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "usable_cores", lambda: 8)
    before, told = dict(os.environ), []
    outcomes = run_local(
        make_jobs(tmp_path, "", "raise", ""), lambda event: told.append((event, threading.current_thread()))
    )
    assert [outcome.path for outcome in outcomes] == ["0 on 4", None, "2 on 4"]
    assert [outcome.error for outcome in outcomes] == [None, "ValueError: that cannot be", None]
    assert sorted((event.job, event.kind) for event, _ in told) == [(0, "done"), (1, "failed"), (2, "done")]
    assert {event.data for event, _ in told} == {"0 on 4", "ValueError: that cannot be", "2 on 4"}
    assert {thread for _, thread in told} == {threading.main_thread()}  # and so never come too late
    assert dict(os.environ) == before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_workers_share_the_gpus(tmp_path):
    """Each worker sees one, before torch is imported there; they are taken in turns."""
    with LocalExecutor(3, gpus=("4", "6")) as executor:
        outcomes = run_jobs(make_jobs(tmp_path, *["gpu"] * 3), do, lambda event: None, executor)
    assert sorted(outcome.path for outcome in outcomes) == ["4", "4", "6"]


def test_an_error_in_this_process_costs_one_job(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    outcomes = run_jobs(make_jobs(tmp_path, "raise", ""), do, lambda event: None, Here())
    assert [(outcome.path, outcome.error) for outcome in outcomes] == [
        (None, "ValueError: that cannot be"),
        ("1 on 1", None),
    ]


def test_progress_is_the_history_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    told = []
    run_jobs(make_jobs(tmp_path, "learn", ""), do, told.append, Here())
    assert [(event.job, event.kind) for event in told] == [(0, "progress"), (0, "done"), (1, "done")]
    assert told[0].data == {"epoch": 3, "train_loss": 0.5, "epochs": None}


def test_a_killed_worker_costs_one_try_of_what_was_under_way(tmp_path):
    told = []
    outcomes = run_local(make_jobs(tmp_path, "die", "", "", ""), told.append)
    assert [outcome.path is None for outcome in outcomes] == [True, False, False, False]
    assert outcomes[0].error == DEATH
    assert tries(tmp_path, 0) in (1, 2)  # 1 if the other worker died before this one had begun
    assert [event.job for event in told if event.kind == "failed"] == [0]
    assert sorted(event.job for event in told if event.kind == "done") == [1, 2, 3]


def test_a_job_whose_worker_died_is_tried_again(tmp_path):
    outcomes = run_local(make_jobs(tmp_path, "die once", "", ""))
    assert all(outcome.error is None for outcome in outcomes)
    assert tries(tmp_path, 0) == 2


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_any_executor_will_do_and_one_that_breaks_fails_its_jobs(tmp_path, kind, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    context = {"mp_context": get_context("spawn")} if kind is ProcessPoolExecutor else {}
    last = "die" if kind is ProcessPoolExecutor else ""
    with kind(1, **context) as executor:
        outcomes = run_jobs(make_jobs(tmp_path, "", "raise", last), do, lambda _: None, as_job_executor(executor))
    assert [outcome.path for outcome in outcomes] == ["0 on 3", None, None if last else "2 on 3"]
    assert [outcome.error for outcome in outcomes] == [None, "ValueError: that cannot be", DEATH if last else None]


def test_what_is_wrong_is_a_sentence():
    known = r"executor is 'locl': the executors are dask, local, submitit; did you mean local\?"
    with pytest.raises(UserError, match=known):
        make_executor("locl", None)


def script(folder, text):
    (folder / "script.py").write_text(f"from test_queue import *\n{text}")
    path = os.pathsep.join(map(str, [HERE, HERE.parent / "cli", HERE.parents[1] / "src"]))
    command = [sys.executable, "script.py"]
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


def test_a_script_without_its_guard_is_told_what_to_do(tmp_path):
    process = script(tmp_path, "run_local(make_jobs(Path('.'), ''), workers=1)\n")
    said = process.communicate(timeout=60)[1].splitlines()[-1]
    assert re.search(r"UserError: the worker processes end while they import this program: call it under `if __n", said)


def test_workers_end_with_the_process_that_started_them(tmp_path):
    parent = script(tmp_path, "if __name__ == '__main__':\n    run_local(make_jobs(Path('.'), 'sleep', 'sleep'))\n")
    try:
        marks = [tmp_path / "0" / "tries", tmp_path / "1" / "tries"]
        wait_until(lambda: all(mark.exists() and mark.read_text() for mark in marks))
        workers = [int(mark.read_text()) for mark in marks]
        assert all(map(is_running, workers))
    finally:
        parent.kill()
        parent.communicate()
    wait_until(lambda: not any(map(is_running, workers)))

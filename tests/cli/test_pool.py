"""Executors under a comparison: failures, deaths, threads, and what any executor must do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from cli_parts import is_running, wait_until
from pool_tasks import do

from adaptive_labels.errors import UserError
from adaptive_labels.lab.experiments.executors import Job, find_executor, run_jobs

HERE = Path(__file__).parent


def run_local(jobs, listener, workers=2, cores=2):
    with find_executor("local")(workers, cores=cores) as executor:
        return run_jobs(jobs, do, listener, executor)


def jobs(folder, *acts):
    return [Job(f"job {i}", {"name": f"{i}", "act": act}, str(folder), ()) for i, act in enumerate(acts)]


def tries(folder, number):
    return len((folder / f"{number}").read_text().split())


def test_workers_share_the_cores(tmp_path):
    before = dict(os.environ)
    told = []
    outcomes = run_local(jobs(tmp_path, None, None, None), told.append, cores=8)
    assert [outcome.path for outcome in outcomes] == ["0 on 4", "1 on 4", "2 on 4"]
    assert sorted((event.job, event.kind) for event in told) == [
        (i, kind) for i in range(3) for kind in ("done", "start")
    ]
    assert dict(os.environ) == before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_workers_share_the_gpus(tmp_path):
    """Each worker sees one, before torch is imported there; they are taken in turns."""
    with find_executor("local")(3, gpus=("4", "6")) as executor:
        outcomes = run_jobs(jobs(tmp_path, *["gpu"] * 3), do, lambda event: None, executor)
    assert sorted(outcome.path for outcome in outcomes) == ["4", "4", "6"]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_costs_one_job(tmp_path, workers, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    told = []
    work = jobs(tmp_path, None, "raise", None)
    outcomes = run_jobs(work, do, told.append) if workers == 1 else run_local(work, told.append)
    assert [outcome.path for outcome in outcomes] == ["0 on 1", None, "2 on 1"]
    assert [outcome.error for outcome in outcomes] == [None, "ValueError: that cannot be", None]
    assert [(event.job, event.data) for event in told if event.kind == "failed"] == [(1, "ValueError: that cannot be")]


def test_the_end_of_a_job_is_told_by_the_thread_that_waits_for_it(tmp_path):
    told = []
    run_local(jobs(tmp_path, None, "raise"), lambda event: told.append((event.kind, threading.current_thread())))
    ends = {kind: thread for kind, thread in told if kind in ("done", "failed")}
    assert ends == dict.fromkeys(("done", "failed"), threading.main_thread())  # and so never comes too late


def test_a_killed_worker_costs_one_job(tmp_path):
    told = []
    outcomes = run_local(jobs(tmp_path, "die", None, None, None), told.append)
    assert [outcome.path is None for outcome in outcomes] == [True, False, False, False]
    assert outcomes[0].error.startswith("its process ended without a word: ")
    assert tries(tmp_path, 0) == 2
    assert [event.job for event in told if event.kind == "failed"] == [0]
    assert sorted({event.job for event in told if event.kind == "done"}) == [1, 2, 3]


def test_a_job_whose_worker_was_killed_is_tried_again(tmp_path):
    outcomes = run_local(jobs(tmp_path, "die once", None), lambda event: None)
    assert [outcome.path for outcome in outcomes] == ["0 on 1", "1 on 1"]
    assert outcomes[0].error is None
    assert tries(tmp_path, 0) == 2


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_any_executor_will_do(tmp_path, kind, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    told = []
    context = {"mp_context": get_context("spawn")} if kind is ProcessPoolExecutor else {}
    with kind(2, **context) as executor:
        outcomes = run_jobs(jobs(tmp_path, None, "raise", None), do, told.append, executor)
    assert [outcome.path for outcome in outcomes] == ["0 on 3", None, "2 on 3"]
    assert outcomes[1].error == "ValueError: that cannot be"
    ends = {event.job: event.kind for event in told}
    assert ends == {0: "done", 1: "failed", 2: "done"}


def test_a_foreign_pool_that_breaks_fails_its_jobs(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    told = []
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        outcomes = run_jobs(jobs(tmp_path, None, "die", None), do, told.append, executor)
    assert outcomes[0].path == "0 on 3"
    assert [outcome.error[:11] for outcome in outcomes[1:]] == ["its process", "its process"]


def test_an_unknown_executor_is_a_sentence():
    with pytest.raises(
        UserError, match=r"executor is 'locl': the executors are dask, local, submitit; did you mean local\?"
    ):
        find_executor("locl")


def test_workers_end_with_the_process_that_started_them(tmp_path):
    script = (
        "from test_pool import jobs, run_local\n"
        "from pathlib import Path\n"
        "if __name__ == '__main__':\n"
        "    run_local(jobs(Path('.'), 'sleep', 'sleep'), print)\n"
    )
    (tmp_path / "script.py").write_text(script)
    path = os.pathsep.join([str(HERE), str(HERE.parents[1] / "src")])
    parent = subprocess.Popen(
        [sys.executable, "script.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.DEVNULL
    )
    try:
        marks = [tmp_path / "0", tmp_path / "1"]
        wait_until(lambda: all(mark.exists() and mark.read_text() for mark in marks))
        workers = [int(mark.read_text()) for mark in marks]
        assert all(map(is_running, workers))
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: not any(map(is_running, workers)))

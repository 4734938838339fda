"""The pool of processes under a comparison: failures, deaths and threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_parts import is_running, wait_until
from pool_tasks import do

from adaptive_labels.experiments.executors import Job, run_jobs

HERE = Path(__file__).parent


def jobs(folder, *acts):
    return [Job(f"job {i}", {"name": f"{i}", "act": act}, str(folder), ()) for i, act in enumerate(acts)]


def tries(folder, number):
    return len((folder / f"{number}").read_text().split())


def test_workers_share_the_cores(tmp_path):
    before = dict(os.environ)
    told = []
    outcomes = run_jobs(jobs(tmp_path, None, None, None), do, told.append, workers=2, cores=8)
    assert [outcome.path for outcome in outcomes] == ["0 on 4", "1 on 4", "2 on 4"]
    assert sorted((event.job, event.kind) for event in told) == [
        (i, kind) for i in range(3) for kind in ("done", "start")
    ]
    assert dict(os.environ) == before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_costs_one_job(tmp_path, workers, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    told = []
    outcomes = run_jobs(jobs(tmp_path, None, "raise", None), do, told.append, workers=workers, cores=2)
    assert [outcome.path for outcome in outcomes] == ["0 on 1", None, "2 on 1"]
    assert [outcome.error for outcome in outcomes] == [None, "that cannot be", None]
    assert [(event.job, event.data) for event in told if event.kind == "failed"] == [(1, "that cannot be")]


def test_a_killed_worker_costs_one_job(tmp_path):
    told = []
    outcomes = run_jobs(jobs(tmp_path, "die", None, None, None), do, told.append, workers=2, cores=2)
    assert [outcome.path is None for outcome in outcomes] == [True, False, False, False]
    assert outcomes[0].error.startswith("its process ended without a word: ")
    assert tries(tmp_path, 0) == 2
    assert [event.job for event in told if event.kind == "failed"] == [0]
    assert sorted({event.job for event in told if event.kind == "done"}) == [1, 2, 3]


def test_a_job_whose_worker_was_killed_is_tried_again(tmp_path):
    outcomes = run_jobs(jobs(tmp_path, "die once", None), do, lambda event: None, workers=2, cores=2)
    assert [outcome.path for outcome in outcomes] == ["0 on 2", "1 on 1"] or outcomes[1].path == "1 on 2"
    assert outcomes[0].error is None
    assert tries(tmp_path, 0) == 2


def test_workers_end_with_the_process_that_started_them(tmp_path):
    script = (
        "from adaptive_labels.experiments.executors import run_jobs\n"
        "from test_pool import do, jobs\n"
        "from pathlib import Path\n"
        "if __name__ == '__main__':\n"
        "    run_jobs(jobs(Path('.'), 'sleep', 'sleep'), do, print, workers=2, cores=2)\n"
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

"""A Dask scheduler and its workers, over TCP: workers that are lost, and what is said before any run."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from cli_parts import COMMAND, QUICK, metrics, results, wait_until, weights
from job_tasks import do, make_jobs

from adaptive_labels.errors import UserError
from adaptive_labels.lab.jobs import make_executor
from adaptive_labels.lab.jobs.queue import run_jobs

pytestmark = pytest.mark.slow
pytest.importorskip("distributed", reason="the extra `sweeps` is not installed")


def holder(lock: Path) -> int | None:
    """The process that holds a run's lock."""
    try:
        return int(re.fullmatch(r"process (\d+) on .*", lock.read_text())[1])
    except (OSError, TypeError):
        return None


def test_a_lost_worker_s_runs_are_done_by_another(start, start_worker, scheduler, alr, texts, tmp_path):
    """Two workers, one killed in the middle of a run: all runs end once, and as they end here."""
    workers = [start_worker(), start_worker()]
    command = ["compare", texts, "--methods", "baseline,alr", "--seeds", "2", "--epochs", "100", *QUICK]
    there = ["--out", "there", "--executor", "dask", "--scheduler", scheduler]
    process = start(*COMMAND, *command, *there, "--set", "checkpoint_seconds=0")
    log = tmp_path / "process-3.log"

    def doomed():
        return [
            path
            for path in (tmp_path / "there").glob("*/checkpoint/epoch-[1-9]*.json")
            if holder(path.parents[1] / ".lock") == workers[0].pid
        ]

    wait_until(doomed)
    workers[0].send_signal(signal.SIGKILL)
    assert process.wait(240) == 0, log.read_text()
    said = re.findall(r"^\[\d/4, .*?\] (\w+ seed \d): validation accuracy", log.read_text(), flags=re.M)
    assert sorted(said) == ["alr seed 0", "alr seed 1", "baseline seed 0", "baseline seed 1"]
    assert alr(*command, "--out", "here", "--workers", "1").returncode == 0
    assert len(results(tmp_path / "there")) == 4
    assert metrics(tmp_path / "there") == metrics(tmp_path / "here")
    assert weights(tmp_path / "there") == weights(tmp_path / "here")
    assert not [path.name for path in (tmp_path / "there").iterdir() if path.name.startswith(".")]


def test_an_error_costs_one_job_and_progress_is_seen(start_worker, scheduler, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    start_worker()
    told = []
    with make_executor("dask", None, [f"scheduler={scheduler}"]) as executor:
        assert executor.workers == 1
        outcomes = run_jobs(make_jobs(tmp_path, "", "raise", "learn"), do, told.append, executor)
    assert [outcome.path for outcome in outcomes] == ["0 on 1", None, "2 on 1"]
    assert outcomes[1].error == "ValueError: that cannot be"
    assert [event.kind for event in told] == ["done", "failed", "progress", "done"]


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_runs_end_when_nobody_waits_for_them(start, start_worker, scheduler, texts, tmp_path, ending):
    """Ctrl-C at the command stops its runs on the workers, which stay; a killed command's runs go on to their end."""
    worker = start_worker()
    command = ["compare", texts, "--methods", "baseline", "--seeds", "1", "--epochs", "100", *QUICK, "--out", "there"]
    process = start(*COMMAND, *command, "--executor", "dask", "--scheduler", scheduler, "--set", "checkpoint_seconds=0")
    wait_until(lambda: list((tmp_path / "there").glob("*/checkpoint/epoch-[1-9]*.json")))
    (lock,) = (tmp_path / "there").glob("*/.lock")
    assert holder(lock) == worker.pid
    process.send_signal(ending)
    process.wait(60)
    if ending == signal.SIGINT:
        time.sleep(2)
        history = lock.with_name("history.jsonl")
        before = history.read_bytes()
        time.sleep(1)
        assert history.read_bytes() == before
        assert not results(tmp_path / "there")
    else:
        wait_until(lambda: results(tmp_path / "there"))
    assert worker.poll() is None
    again = start(*COMMAND, *command, "--executor", "dask", "--scheduler", scheduler)
    assert again.wait(120) == 0
    assert len(results(tmp_path / "there")) == 1


def test_what_is_wrong_is_one_sentence(alr, scheduler, texts, tmp_path):
    def said(*options):
        ended = alr("compare", texts, *QUICK, "--epochs", "1", "--executor", "dask", *options)
        assert (ended.returncode, ended.stdout) == (2, ""), ended
        assert not (tmp_path / "runs").exists()
        return ended.stderr

    assert said() == "alr: the executor dask needs --scheduler ADDRESS, such as tcp://host:8786\n"
    nowhere = ["--scheduler", "tcp://127.0.0.1:9", "--executor-option", "timeout=1"]
    assert said(*nowhere) == "alr: scheduler is 'tcp://127.0.0.1:9': nothing answers there within 1 s\n"
    assert said("--scheduler", scheduler) == (
        f"alr: scheduler is {scheduler!r}: it has no workers; start some with `dask worker`\n"
    )
    assert said("--scheduler", scheduler, "--executor-option", "gpu=1") == (
        "alr: executor-option is 'gpu=1': dask takes scheduler=…, gpus=…, timeout=…; did you mean gpus?\n"
    )
    assert said("--scheduler", scheduler, "--executor-option", "gpus=one") == (
        "alr: executor-option gpus is 'one': allowed is a whole number\n"
    )


def test_a_folder_that_a_worker_does_not_share_is_refused(start, start_worker, scheduler, tmp_path):
    """The worker has a file system of its own mounted over the folder of the runs."""
    hidden = tmp_path / "runs"
    hidden.mkdir()
    mount = f"mount -t tmpfs none {hidden}"
    can = shutil.which("unshare") and subprocess.run(["unshare", "-m", "sh", "-c", mount], check=False).returncode == 0
    if not can:
        pytest.skip("this machine lets nobody mount a file system")
    worker = f"{sys.executable} -m dask worker {scheduler} --no-nanny --nthreads 1 --no-dashboard --host 127.0.0.1"
    start("unshare", "-m", "sh", "-c", f"{mount} && exec {worker}")

    def executor():
        return make_executor("dask", None, [f"scheduler={scheduler}"])

    def has_workers():
        try:
            executor().shutdown()
        except UserError:
            return False
        return True

    wait_until(has_workers)
    (hidden / "shared").mkdir()
    (job,) = make_jobs(hidden, "")
    with executor() as chosen:
        (outcome,) = run_jobs([replace(job, shared=hidden / "shared")], do, lambda event: None, chosen)
    assert f"does not share {hidden} with the comparison" in outcome.error

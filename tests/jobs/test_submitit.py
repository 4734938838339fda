"""Jobs through submitit, as processes of this machine: interrupted ones go on. Slurm itself is in test_slurm.py."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from cli_parts import COMMAND, QUICK, RECIPE, is_running, metrics, results, wait_until, weights

import adaptive_labels
from adaptive_labels.lab.jobs import make_executor
from adaptive_labels.lab.jobs.queue import run_jobs

pytestmark = pytest.mark.slow
pytest.importorskip("submitit", reason="the extra `sweeps` is not installed")
LONG = {**RECIPE, "training": {**RECIPE["training"], "epochs": 100, "checkpoint_seconds": 0.0}}


def children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def run_of(path: Path) -> Path:
    """The run that has a checkpoint, once there is one."""
    wait_until(lambda: list(path.glob("*/checkpoint/epoch-[1-9]*.json")))
    return next(path.glob("*/checkpoint/epoch-[1-9]*.json")).parents[1]


@pytest.fixture(autouse=True)
def _for_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What submitit's jobs find in their environment."""
    path = [str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[1] / "cli"), str(Path(__file__).parent)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")]))


@pytest.mark.parametrize(("minutes", "why"), [(5, "timed-out"), (600, "preempted")])
def test_an_interrupted_job_is_queued_again_and_goes_on(texts, tmp_path, minutes, why):
    """The signal that Slurm sends before it ends a job; submitit takes it for a timeout within the last ten minutes."""
    histories, jobs = [], []

    def interrupt() -> None:
        run = run_of(tmp_path / "there")
        (job,) = jobs[:] = executor.jobs.values()
        # job._interrupt() would signal submitit's controller, which stands for Slurm here and dies of it.
        (task,) = children(job._process.pid)
        histories.append((run / "history.jsonl").read_text())
        os.kill(task, signal.SIGUSR2)

    with make_executor("submitit", None, ["cluster=local", f"time={minutes}"]) as executor:
        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        (run,) = adaptive_labels.compare(texts, "alr", 1, out=tmp_path / "there", settings=LONG, executor=executor)
        interrupting.join()
    (job,) = jobs
    assert f"this job is {why}" in job.stderr()
    assert "Requeued job" in job.stdout()
    assert 0 < len(histories[0].splitlines()) < 100  # it was in the middle
    assert [record["epoch"] for record in run.history()] == list(range(1, 101))
    adaptive_labels.compare(texts, "alr", 1, out=tmp_path / "here", settings=LONG)
    assert metrics(tmp_path / "there") == metrics(tmp_path / "here")
    assert weights(tmp_path / "there") == weights(tmp_path / "here")


def test_a_job_that_runs_out_of_time_too_often_fails_in_one_sentence(texts, tmp_path):
    def interrupt() -> None:
        run_of(tmp_path / "there")
        (job,) = executor.jobs.values()
        os.kill(children(job._process.pid)[0], signal.SIGUSR2)

    with make_executor("submitit", None, ["cluster=local", "time=5", "requeues=0"]) as executor:
        threading.Thread(target=interrupt).start()
        with pytest.raises(
            RuntimeError, match=r"baseline seed 0: .*: Job not requeued because: timed-out too many times"
        ):
            adaptive_labels.compare(texts, "baseline", 1, out=tmp_path / "there", settings=LONG, executor=executor)
    assert not results(tmp_path / "there")


def test_the_command_hands_jobs_over(alr, texts, tmp_path):
    """Trials of a tuning, two jobs at a time, whose data is read once and shared."""
    command = ["tune", texts, "--method", "slr", "--trials", "2", "--epochs", "2", *QUICK]
    options = ["--executor", "submitit", "--executor-option", "cluster=local", "--workers", "2"]
    ended = alr(*command, "--out", "there", *options)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "2 at a time" in ended.stdout
    assert ended.stdout.count(" after 2 epochs") == 2
    assert alr(*command, "--out", "here", "--workers", "1").returncode == 0
    assert metrics(tmp_path / "there") == metrics(tmp_path / "here")
    assert weights(tmp_path / "there") == weights(tmp_path / "here")
    assert len(list((tmp_path / "there" / ".submitit").glob("*_submitted.pkl"))) == 2


def test_ctrl_c_takes_the_jobs_back(start, texts, tmp_path):
    command = ["compare", texts, "--methods", "baseline", "--seeds", "1", "--epochs", "3000", *QUICK]
    there = ["--out", "there", "--executor", "submitit", "--executor-option", "cluster=local"]
    process = start(*COMMAND, *command, *there, "--set", "checkpoint_seconds=0")
    lock = run_of(tmp_path / "there") / ".lock"
    trainer = int(lock.read_text().split()[1])
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    wait_until(lambda: not is_running(trainer))
    assert not results(tmp_path / "there")


def test_studies_and_reproductions_hand_jobs_over(alr, texts, tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(
        'title = "A"\nquestion = "B?"\nseeds = 1\n'
        '[[variant]]\nname = "baseline"\nmethod = "baseline"\n'
        f'[task.t.data]\nname = "{texts}"\n[task.t.training]\nepochs = 1\n'
    )
    options = ["--executor", "submitit", "--executor-option", "cluster=local", "--out", "there"]
    for command in (
        ["study", study, "--results", "there"],
        ["reproduce", "text", "--only", "baseline", "--networks", "fasttext", "--seeds", "1"],
    ):
        before = len(results(tmp_path / "there"))
        ended = alr(*command, *options)
        assert (ended.returncode, ended.stderr) == (0, ""), ended
        assert len(results(tmp_path / "there")) == before + 1
    assert len(list((tmp_path / "there" / ".submitit").glob("*_submitted.pkl"))) == 2


def test_what_is_wrong_is_one_sentence(alr, texts, tmp_path):
    def said(*options, **more):
        ended = alr("compare", texts, *QUICK, "--epochs", "1", "--executor", "submitit", *options, **more)
        assert ended.returncode == 2, ended
        assert not results(tmp_path)
        return ended.stderr

    assert said("--executor-option", "partion=gpu") == (
        "alr: executor-option is 'partion=gpu': submitit takes partition=…, time=…, gpus=…, cpus=…, memory=…, "
        "account=…, qos=…, constraint=…, requeues=…, cluster=…; did you mean partition?\n"
    )
    assert said("--executor-option", "time=4h") == "alr: executor-option time is '4h': allowed is a whole number\n"
    assert said("--scheduler", "tcp://here:1").startswith("alr: executor-option is 'scheduler=tcp://here:1': submitit ")
    assert said(PATH="/nowhere") == (
        "alr: the executor submitit finds no Slurm here: use a machine that has `sbatch` and `srun`, "
        "or --executor-option cluster=local\n"
    )


def test_a_job_that_cannot_start_is_said(tmp_path, monkeypatch):
    """As on a node that has no such Python, or not this package."""
    from job_tasks import do, make_jobs

    monkeypatch.setenv("PYTHONPATH", os.environ["PYTHONPATH"].partition(os.pathsep)[2])
    broken = tmp_path / "broken" / "adaptive_labels"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PYTHONPATH", f"{broken.parent}{os.pathsep}{os.environ['PYTHONPATH']}")
    with make_executor("submitit", None, ["cluster=local"]) as executor:
        executor.prepare(tmp_path)
        (outcome,) = run_jobs(make_jobs(tmp_path, ""), do, lambda event: None, executor)
    assert outcome.error.startswith("the job ")
    assert "not here" in Path(outcome.error.rpartition("its log is ")[2]).read_text()
    assert subprocess.run(["pgrep", "-f", str(tmp_path)], check=False, capture_output=True).stdout == b""

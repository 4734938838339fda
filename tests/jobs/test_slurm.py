"""Slurm itself: its controller and one node, started here (Debian's slurm-wlm), and jobs that are interrupted there."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_parts import COMMAND, QUICK, Start, free_port, metrics, results, wait_until, weights

pytestmark = pytest.mark.slow
pytest.importorskip("submitit", reason="the extra `sweeps` is not installed")
if not all(map(shutil.which, ("slurmctld", "slurmd", "munged", "sbatch"))):
    pytest.skip("Slurm is not installed (apt-get install slurm-wlm)", allow_module_level=True)
if os.getuid() != 0:
    pytest.skip("Slurm's node must be started by root", allow_module_level=True)

Command = Callable[..., str]


@pytest.fixture
def slurm(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """Starts a cluster; gives what runs one of its commands and returns what that prints."""
    folder = tmp_path / "slurm"
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    template = (Path(__file__).parent / "slurm.conf").read_text()
    conf = folder / "slurm.conf"
    names = {"host": socket.gethostname(), "folder": folder, "port": free_port(), "other_port": free_port()}
    conf.write_text(template.format(**names))
    monkeypatch.setenv("SLURM_CONF", str(conf))
    files = {"key": key, "socket": folder / "munge.socket", "pid": folder / "m.pid", "seed": folder / "m.seed"}
    start("munged", "--force", "--foreground", f"--log-file={folder / 'munged.log'}", *_flags(files))
    wait_until(files["socket"].exists)
    start("slurmctld", "-D", "-f", conf)
    start("slurmd", "-D", "-f", conf)

    def run(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    wait_until(lambda: "idle" in run("sinfo", "--noheader"))
    yield run
    run("scancel", "--user", "root")  # jobs outlive the daemons
    wait_until(lambda: not run("squeue", "--noheader"))


def _flags(files: dict[str, Path]) -> list[str]:
    return [f"--{name}{'' if name == 'socket' else '-file'}={path}" for name, path in files.items()]


def job_at_work(out: Path, epochs: int = 1) -> tuple[Path, str]:
    """A run that has a checkpoint, and the id of the first job."""
    wait_until(lambda: list(out.glob(f"*/checkpoint/epoch-{epochs}*.json")))
    (script,) = (out / ".submitit").glob("*_submission.sh")
    return next(out.glob("*/checkpoint/epoch-*.json")).parents[1], script.name.partition("_")[0]


@pytest.mark.parametrize("how", ["time is up", "preempted", "requeued"])
def test_an_interrupted_job_goes_on(slurm, start, alr, texts, tmp_path, how):
    command = ["compare", texts, "--methods", "alr", "--seeds", "1", "--epochs", "80", *QUICK]
    options = [f"--executor-option={option}" for option in ("partition=short", "time=60", "cpus=1")]
    there = ["--out", "there", "--executor", "submitit", *options]
    process = start(*COMMAND, *command, *there, "--set", "checkpoint_seconds=0")
    run, job = job_at_work(tmp_path / "there")
    trainer = (run / ".lock").read_text()
    if how == "requeued":  # as Slurm does for one that has more right to the node: all processes are ended
        slurm("scontrol", "requeue", job)
    else:
        if how == "preempted":
            slurm("scancel", job, "--signal", "SIGTERM")  # what Slurm sends first
        slurm("scancel", job, "--signal", "USR2")
    wait_until(lambda: (run / ".lock").exists() and (run / ".lock").read_text() != trainer)  # another process is at it
    log = tmp_path / "process-3.log"
    assert process.wait(240) == 0, log.read_text()
    assert "Restarts=1" in slurm("scontrol", "show", "job", job)
    assert len(re.findall(r"alr seed 0: validation accuracy", log.read_text())) == 1
    assert alr(*command, "--out", "here", "--workers", "1").returncode == 0
    assert len(results(tmp_path / "there")) == 1
    assert metrics(tmp_path / "there") == metrics(tmp_path / "here")
    assert weights(tmp_path / "there") == weights(tmp_path / "here")


def test_what_slurm_refuses_or_ends_is_said(slurm, start, alr, texts, tmp_path):
    command = ["compare", texts, "--methods", "alr", "--seeds", "1", "--epochs", "2000", *QUICK]
    elsewhere = ["--executor", "submitit", "--executor-option"]
    ended = alr(*command, *elsewhere, "partition=long", "--out", "refused")
    assert ended.returncode == 1
    assert "alr seed 0: the job was not accepted: " in ended.stderr
    assert "nvalid partition" in ended.stderr
    process = start(*COMMAND, *command, *elsewhere, "time=60", "--out", "there", "--set", "checkpoint_seconds=0")
    _, job = job_at_work(tmp_path / "there")
    slurm("scancel", job)  # there is no accounting here: the queue alone tells that it is gone
    assert process.wait(120) == 1
    assert f"the job {job} ended without a result; its log is " in (tmp_path / "process-3.log").read_text()

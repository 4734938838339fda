"""Jobs for worker processes, which import them by name; no torch, so that they start at once."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from adaptive_labels.lab.config import RunConfig
from adaptive_labels.lab.jobs import Job


def make_jobs(out: Path, *acts: str) -> list[Job]:
    return [Job(f"job {i}", RunConfig(), out / f"{i}", (act,)) for i, act in enumerate(acts)]


def do(job: Job) -> str:
    """What the job's command says, once noted in a file of its own."""
    (act,) = job.command
    job.folder.mkdir(parents=True, exist_ok=True)
    mark = job.folder / "tries"
    with mark.open("a") as tries:
        tries.write(f"{os.getpid()} ")
    if act == "raise":
        raise ValueError("that cannot be")
    if act == "die" or (act == "die once" and len(mark.read_text().split()) == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "sleep":
        time.sleep(60)
    if act == "gpu":
        while len(list(job.folder.parent.iterdir())) < 3:  # so that each worker gets one of these
            time.sleep(0.05)
        return os.environ["CUDA_VISIBLE_DEVICES"]
    if act == "learn":
        (job.folder / "history.jsonl").write_text(json.dumps({"epoch": 3, "train_loss": 0.5}) + "\n")
        time.sleep(1.2)  # until somebody has looked
    return f"{job.folder.name} on {os.environ['OMP_NUM_THREADS']}"

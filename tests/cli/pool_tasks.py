"""Tasks for worker processes, which import them by name; no torch, so that they start at once."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any


def do(job: Any, reporter: Any) -> str:
    """What ``config["act"]`` says, once noted in a file of its own."""
    config = job.config
    mark = Path(job.out) / config["name"]
    tries = len(mark.read_text().split()) if mark.exists() else 0
    mark.write_text(f"{mark.read_text() if mark.exists() else ''}{os.getpid()} ")
    act = config.get("act")
    if act == "raise":
        raise ValueError("that cannot be")
    if act == "die" or (act == "die once" and tries == 0):
        time.sleep(0.2)  # the event that says it has begun is on its way
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "sleep":
        time.sleep(60)
    if act == "gpu":
        while len(list(Path(job.out).iterdir())) < 3:  # so that each worker gets one of these
            time.sleep(0.05)
        return os.environ["CUDA_VISIBLE_DEVICES"]
    if act == "tell":
        from adaptive_labels.lab.training.progress import Progress

        for epoch in range(1, 4):
            time.sleep(1.1)  # a note a second at most
            reporter.progress(Progress(epoch, 3, epoch, 3, 0.5, 0.5, 0.1, 100.0, None))
    return f"{config['name']} on {os.environ['OMP_NUM_THREADS']}"

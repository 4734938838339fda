"""`--devices N`: run this command in N processes on this machine, as torchrun would."""

import os
import signal
import socket
import subprocess
import sys
import time
from types import FrameType

from adaptive_labels.lab.machine import usable_cores

_FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
_GRACE = 30.0  # seconds that the others have to end when one has failed


def run_on(devices: int) -> int:
    """Start this command once per device, pass signals on to all, and wait; returns the exit status of the whole."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        "WORLD_SIZE": devices,
        "LOCAL_WORLD_SIZE": devices,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", max(1, usable_cores() // devices)),
    }
    children: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        for child in children:
            child.send_signal(number)

    for name in _FORWARDED:
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) != signal.SIG_IGN:
            signal.signal(getattr(signal, name), pass_on)
    for rank in range(devices):
        variables = {**shared, "RANK": rank, "LOCAL_RANK": rank}
        children.append(
            subprocess.Popen(
                [sys.executable, "-m", "adaptive_labels", *sys.argv[1:]],
                env=os.environ | {name: str(value) for name, value in variables.items()},
                process_group=0,  # Ctrl-C on a terminal reaches this process, which passes it on once
            )
        )
    return _wait(children)


def _wait(children: list[subprocess.Popen[bytes]]) -> int:
    """Wait until all have ended, and return the status of one that failed, or 0; after a failure, end the others."""
    limit, others = None, children[1:]
    while any(child.poll() is None for child in children):
        while children[0].returncode and others:  # it has said why, which is what the others may be waiting for
            others.pop().terminate()
        if limit is None and any(child.returncode for child in children):
            limit = time.monotonic() + _GRACE
        if limit is not None and time.monotonic() > limit:
            for child in children:
                child.kill()
        time.sleep(0.05)
    failed = [child.returncode for child in children if child.returncode]
    status = failed[0] if failed else 0
    return status if status >= 0 else 128 - status

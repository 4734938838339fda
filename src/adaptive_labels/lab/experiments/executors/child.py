"""A call in a child process, which ends when its caller no longer waits.

Workers on other machines train in such a child process, so that they can answer the scheduler meanwhile.
"""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_NAME = "adaptive_labels.lab.experiments.executors.child"
_SENT = ("ALR_", "GOMP_", "MALLOC_")  # variables of the environment that go along to another machine
_TOLD_TO_END = 128 + signal.SIGTERM  # status
_GRACE_SECONDS = 60.0  # for a run to end its step and keep a checkpoint


@dataclass(frozen=True)
class Origin:
    """Where a call comes from: its folder, if the other machine has it, and what it finds in its environment."""

    folder: str = field(default_factory=lambda: str(Path.cwd()))
    environment: Mapping[str, str] = field(
        default_factory=lambda: {name: value for name, value in os.environ.items() if name.startswith(_SENT)}
    )


class EndedError(BrokenExecutor):
    """Someone else has told the process to end: as a scheduler does before it ends the machine's work."""


class Child:
    """A process for one call. It is started in a session of its own: signals to its parent do not reach it."""

    def __init__(self, origin: Origin) -> None:
        path = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(
            [sys.executable, "-m", _NAME, origin.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **origin.environment, "PYTHONPATH": path},
        )

    def call(self, call: Callable[..., Any], *args: Any) -> Any:
        """What the call returns; a `BrokenExecutor` says that the process ended without an answer."""
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                asked.write(pickle.dumps((call, args)))
                asked.flush()
            answer = answers.read()
        finally:
            self.stop()
        if not answer:
            status = self._process.wait()
            kind = EndedError if status in (-signal.SIGTERM, _TOLD_TO_END) else BrokenExecutor
            raise kind(f"the process of a run ended with status {status}")
        found = pickle.loads(answer)
        if isinstance(found, Exception):
            raise found
        return found

    def stop(self) -> None:
        """Say that nobody waits any more."""
        asked = self._process.stdin
        with contextlib.suppress(OSError):
            if asked is not None:
                asked.close()

    def end(self) -> None:
        """Stop it and wait until it has ended; safe in a signal's handler, while `call` waits for the answer."""
        self.stop()
        end = time.monotonic() + _GRACE_SECONDS
        while self._process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)


def in_child(origin: Origin, call: Callable[..., Any], *args: Any) -> Any:
    """Call in a process of its own."""
    return Child(origin).call(call, *args)


def main() -> None:
    """Do the one call that comes on standard input; what it prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if hasattr(signal, "SIGUSR2"):  # which Slurm sends to all processes of a job: the parent acts on it
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.suppress(OSError):
        os.chdir(sys.argv[1])
    try:
        call, args = pickle.load(sys.stdin.buffer)
        threading.Thread(target=_end_with_input, daemon=True).start()
        answer = call(*args)
    except Exception as error:  # of the pickle: a worker that lacks a module
        answer = error
    except KeyboardInterrupt as stopped:
        print(stopped, file=sys.stderr)
        sys.exit(_TOLD_TO_END)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers.write(pickle.dumps(answer))
    answers.close()


def _end_with_input() -> None:
    """End this process when its input ends: by Ctrl-C, so that a run can keep a checkpoint, and by force after that."""
    while os.read(0, 4096):  # not through sys.stdin, whose lock Python wants at its end
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_GRACE_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()

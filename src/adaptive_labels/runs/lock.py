"""A lock, so that two processes do not write the same run."""

import contextlib
import os
import socket
from pathlib import Path

from filelock import FileLock, Timeout

from adaptive_labels.files import RunError, write_error


class RunLock:
    """The right to write one run folder, held from ``with RunLock(folder):`` to the end of the block.

    The system holds the lock on the file ``.lock`` and lets go when the process ends, however it ends; the file's
    content says in words who has it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / ".lock"
        # Not shared by the threads or the objects of a process: a second one is kept out as well.
        self._lock = FileLock(self.path, thread_local=False)

    def acquire(self) -> None:
        """Take the lock, or raise a `RunError` that says who has it."""
        try:
            self._lock.acquire(timeout=0)
            self.path.write_text(_this_process(), encoding="utf-8")
        except Timeout:
            raise RunError(f"{self.path.parent} is being written by {self._words()}.") from None
        except OSError as error:
            self._lock.release()
            raise write_error(self.path, error) from error

    def release(self) -> None:
        """Give the lock back; nothing happens if this object does not hold it."""
        if self._lock.is_locked:
            with contextlib.suppress(OSError):
                self.path.unlink()  # before it is given back: afterwards the file may be another's
            self._lock.release()

    def holder(self) -> str | None:
        """Describe the holder in words, or None when the lock is free."""
        if not self.path.exists():
            return None
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return self._words()
        except OSError:  # a folder that cannot be written to has no writer that we could meet
            return None
        self.release()
        return None

    def __enter__(self) -> "RunLock":
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def _words(self) -> str:
        words = ""
        with contextlib.suppress(OSError):
            words = self.path.read_text(encoding="utf-8")
        if words == _this_process():
            return f"this process ({os.getpid()}) already"
        return words.replace(f" on {socket.gethostname()}", " on this machine") or "another process"


def _this_process() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"

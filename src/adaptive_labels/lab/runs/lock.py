"""A lock that keeps two processes from writing the same run, on one machine or on two that share the folder."""

import contextlib
import errno
import os
import socket
import threading
import time
from pathlib import Path

from filelock import FileLock, Timeout

from adaptive_labels.lab.files import RunError, read_text, write_error

BEAT_SECONDS = 4.0  # between two signs of life of a holder
WATCH_SECONDS = 15.0  # without one, a holder on another machine is dead
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP)  # some network file systems


class LockedError(RunError):
    """A run that another process is writing."""


class RunLock:
    """The right to write one run folder, held from ``with RunLock(folder):`` to the end of the block.

    The system holds the lock on the file ``.lock`` and lets go when the process ends, however it ends; the file's
    content says in words who has it. On a shared file system the system's lock may not reach other machines, or there
    may be none. So the holder also touches the file every few seconds, and one that another machine has written is
    taken over only after it was watched for a while and nobody touched it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / ".lock"
        # Not shared by the threads or the objects of a process: a second one is kept out as well.
        self._lock = FileLock(self.path, thread_local=False)
        self._stop: threading.Event | None = None  # of the thread that touches the file

    def acquire(self) -> None:
        """Take the lock, or raise a `LockedError` that says who has it."""
        try:
            if not self._take():
                raise LockedError(f"{self.path.parent} is being written by {self._words()}.")
            self.path.write_text(_this_process(), encoding="utf-8")
        except OSError as error:
            self._lock.release()
            raise write_error(self.path, error) from error
        self._stop = threading.Event()
        threading.Thread(target=_touch, args=(self.path, self._stop), daemon=True).start()

    def _take(self) -> bool:
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        if self._is_alive():
            self._lock.release()
            return False
        return True

    def _is_alive(self) -> bool:
        """Whether someone touches the file whom the system's lock does not keep out: it names another machine."""
        words = self._read()
        if not words or (self._lock.is_locked and words.endswith(f" on {socket.gethostname()}")):
            return False
        end, first = time.monotonic() + WATCH_SECONDS, self._last_touch()
        while time.monotonic() < end:
            time.sleep(BEAT_SECONDS / 8)
            if self._last_touch() != first:
                return True
        return False

    def _last_touch(self) -> int:
        with contextlib.suppress(OSError), self.path.open("rb") as file:  # NFS asks the server when a file is opened
            return os.fstat(file.fileno()).st_mtime_ns
        return 0

    def release(self) -> None:
        """Give the lock back; nothing happens if this object does not hold it."""
        if self._stop is not None or self._lock.is_locked:
            if self._stop is not None:
                self._stop.set()
                self._stop = None
            with contextlib.suppress(OSError):
                self.path.unlink()  # before it is given back: afterwards the file may be another's
            self._lock.release()

    def holder(self) -> str | None:
        """Describe the holder in words, or None when the lock is free."""
        if not self.path.exists():
            return None
        try:
            if not self._take():
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

    def _read(self) -> str:
        with contextlib.suppress(OSError):
            return read_text(self.path)
        return ""

    def _words(self) -> str:
        words = self._read()
        if words == _this_process():
            return f"this process ({os.getpid()}) already"
        return words.replace(f" on {socket.gethostname()}", " on this machine") or "another process"


def _touch(path: Path, stop: threading.Event) -> None:
    while not stop.wait(BEAT_SECONDS):
        with contextlib.suppress(OSError):
            os.utime(path)


def _this_process() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"

"""A lock file, so that two processes do not write the same run."""

import contextlib
import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from adaptive_labels.files import RunError, write_error

_SECONDS_TO_WRITE_A_LOCK = 10.0


class RunLock:
    """The right to write one run folder, held from ``with RunLock(folder):`` to the end of the block.

    The file ``lock.json`` says who holds it: process, host, and the process's start (a process number can be given out
    again). A lock whose process has ended on this host is stale and is taken over; one from another host cannot be
    judged from here, and is respected.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / "lock.json"
        self._token: str | None = None

    def acquire(self) -> None:
        """Take the lock, or raise a `RunError` that says who has it."""
        token = secrets.token_hex(8)
        pid = os.getpid()
        mine = {"pid": pid, "host": socket.gethostname(), "started": _process(pid)[1], "token": token}
        with _one_at_a_time(self.path.parent):
            holder = self.holder()
            if holder is not None:
                raise RunError(f"{self.path.parent} is being written by {holder}.")
            try:
                self.path.unlink(missing_ok=True)
                with self.path.open("x", encoding="utf-8") as file:
                    file.write(json.dumps(mine))
            except FileExistsError:
                raise RunError(f"{self.path.parent} has just been locked by another machine.") from None
            except OSError as error:
                raise write_error(self.path, error) from error
        self._token = token

    def release(self) -> None:
        """Give the lock back; nothing happens if this object does not hold it."""
        token, self._token = self._token, None
        if token is not None and _parse(self._read() or "").get("token") == token:
            with contextlib.suppress(OSError):
                self.path.unlink()

    def holder(self) -> str | None:
        """Describe the living holder in words, or None when the lock is free or stale."""
        content = self._read()
        if content is None:
            return None
        lock = _parse(content)
        pid, host = lock.get("pid"), lock.get("host")
        if not isinstance(pid, int) or not isinstance(host, str):
            # Between creating the file and filling it, another process may look at it.
            return "a process that has just started" if self._age() < _SECONDS_TO_WRITE_A_LOCK else None
        if host != socket.gethostname():
            return f"process {pid} on {host} (if that has ended, delete {self.path})"
        if pid == os.getpid() and lock.get("started") == _process(pid)[1]:
            return f"this process ({pid}) already"
        return f"process {pid} on this machine" if _alive(pid, lock.get("started")) else None

    def __enter__(self) -> "RunLock":
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _read(self) -> str | None:
        try:
            return self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunError(f"Cannot read {self.path}: {error.strerror}.") from None

    def _age(self) -> float:
        try:
            return time.time() - self.path.stat().st_mtime
        except OSError:
            return 0.0


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Let one process of this machine judge and replace a lock at a time, where the system can do that.

    Without it, two processes that find the same stale lock could each remove the other's fresh one.
    """
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        yield
        return
    try:
        with contextlib.suppress(OSError):  # some network file systems have no such locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _parse(content: str) -> dict[str, Any]:
    try:
        lock = json.loads(content)
    except ValueError:
        return {}
    return lock if isinstance(lock, dict) else {}


def _process(pid: int) -> tuple[str | None, str | None]:
    """A process's state and start in the kernel's own words and count, or None where they cannot be known."""
    try:
        # The command's name, in brackets, may hold spaces; the fields after it do not.
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = stat.rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return None, None


def _alive(pid: int, started: object) -> bool:
    if sys.platform == "win32":
        return True  # There os.kill(pid, 0) would send Ctrl-C; a lock is respected instead of tested.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    state, now = _process(pid)
    if state in ("Z", "X"):  # ended, and only waiting for its parent to notice
        return False
    return started is None or now is None or now == started

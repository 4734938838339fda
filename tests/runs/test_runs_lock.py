"""The lock between machines that share a folder: the system's own may not reach from one to the other."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import filelock
import pytest

from adaptive_labels.lab.runs import LockedError, RunLock, lock

ELSEWHERE = "process 7 on another-machine"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(lock, "WATCH_SECONDS", 1.0)


def test_a_holder_on_another_machine_is_left_alone_while_it_lives(tmp_path: Path) -> None:
    """As where flock is each machine's own: nothing but the file itself says that it is held."""
    path, stop = tmp_path / ".lock", threading.Event()
    path.write_text(ELSEWHERE)
    alive = threading.Thread(target=lock._touch, args=(path, stop))
    alive.start()
    try:
        with pytest.raises(LockedError, match=f"is being written by {ELSEWHERE}"):
            RunLock(tmp_path).acquire()
        assert RunLock(tmp_path).holder() == ELSEWHERE
        assert path.read_text() == ELSEWHERE
    finally:
        stop.set()
        alive.join()
    with RunLock(tmp_path):  # it died: nobody touches the file any more
        assert path.read_text() == f"process {os.getpid()} on {lock.socket.gethostname()}"
    assert not path.exists()


def test_a_holder_gives_signs_of_life(tmp_path: Path) -> None:
    with RunLock(tmp_path) as held:
        first, touched = held._last_touch(), threading.Event()
        for _ in range(100):
            if held._last_touch() != first:
                break
            touched.wait(0.05)
        assert held._last_touch() != first


def test_a_file_system_without_locks_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def acquire(self: object, timeout: float) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(filelock.FileLock, "acquire", acquire)
    with RunLock(tmp_path):
        with pytest.raises(LockedError, match=r"is being written by this process"):
            RunLock(tmp_path).acquire()
        assert RunLock(tmp_path).holder() is not None
    assert not (tmp_path / ".lock").exists()
    (tmp_path / ".lock").write_text(ELSEWHERE)  # left by a process that was killed
    with RunLock(tmp_path):
        pass

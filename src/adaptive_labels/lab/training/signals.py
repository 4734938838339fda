"""Signals from a user or a scheduler that stop a run: remembered until the current step has ended."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# Ctrl-C, what schedulers send, and a terminal that is closed; not every system has all of them.
STOPPING = tuple(
    int(getattr(signal, name)) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, name)
)


@contextmanager
def remembered_signals() -> Iterator[Callable[[], int]]:
    """A context that yields a function: which signal has asked this process to stop, 0 if none has.

    A second Ctrl-C raises at once. Signals that were ignored before, as Ctrl-C in a comparison's workers, stay so.
    """
    asked: list[int] = []
    owner = os.getpid()

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # a forked copy that reads data; the process that started it decides about Ctrl-C
            if number != signal.SIGINT:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            return
        asked.append(number)
        if asked.count(signal.SIGINT) == 2:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # more would only disturb its end
            before[signal.SIGINT](number, frame)

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():  # only there handlers can be set
        for number in STOPPING:
            handler = signal.getsignal(number)
            if callable(handler) or (number != signal.SIGINT and handler == signal.SIG_DFL):
                before[number] = handler
                signal.signal(number, handle)
    try:
        yield lambda: asked[0] if asked else 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

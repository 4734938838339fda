"""Ctrl-C that does not get lost."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["remembered_interrupts"]


@contextmanager
def remembered_interrupts() -> Iterator[Callable[[], None]]:
    """A context that yields a function to be called now and then: it raises what Ctrl-C should have raised.

    Ctrl-C raises at once, as ever. But Python prints and drops what is raised in a finaliser or around a fork, as when
    a `DataLoader` starts its workers, and the run would go on as if nobody had asked it to stop.
    """
    asked = False
    before = signal.getsignal(signal.SIGINT)

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        assert callable(before)
        before(number, frame)

    def check() -> None:
        if asked:
            raise KeyboardInterrupt

    # Only the main thread may set a handler; where Ctrl-C is ignored, as in a comparison's workers, it stays so.
    ours = callable(before) and threading.current_thread() is threading.main_thread()
    if ours:
        signal.signal(signal.SIGINT, handle)
    try:
        yield check
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)

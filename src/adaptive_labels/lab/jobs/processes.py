"""Processes on this machine that share its cores and GPUs."""

import concurrent.futures as futures
import multiprocessing as mp
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any

from adaptive_labels.errors import UserError
from adaptive_labels.lab.jobs import JobExecutor, register_executor
from adaptive_labels.lab.machine import usable_cores

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@register_executor("local")
class LocalExecutor(JobExecutor):
    """A pool of processes that can be restarted when one of them is killed.

    The workers share the cores that this process may use. Of ``gpus`` each sees one.
    """

    elsewhere = False

    def __init__(self, workers: int | None, *, gpus: tuple[str, ...] = ()) -> None:
        self.workers = workers or len(gpus) or usable_cores()
        self.threads = max(1, usable_cores() // self.workers)
        self._gpus = gpus
        self._start()

    def _start(self) -> None:
        context = mp.get_context("spawn")  # a forked copy of torch's threads would hang
        places: Any = context.SimpleQueue()  # each worker takes one
        for number in range(self.workers if self._gpus else 0):
            places.put(self._gpus[number % len(self._gpus)])
        self._started = context.Event()
        self._executor = futures.ProcessPoolExecutor(
            self.workers, context, initializer=_start_worker, initargs=(self._started, places)
        )

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        """As any executor's; a worker that is started by it has its share of the threads."""
        with _for_children(self.threads):
            return super().submit(call, *args, **kwargs)

    def restart(self) -> bool:
        """New workers, also after one of the old ones was killed."""
        if not self._started.is_set():  # none has come as far as to its first job
            raise UserError(
                "the worker processes end while they import this program: call it under "
                '`if __name__ == "__main__":`, or use workers=1'
            )
        self.shutdown(cancel_futures=True)
        self._start()
        return True

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # nobody waits for what is under way
            for process in list((self._executor._processes or {}).values()):
                process.terminate()
        self.shutdown(wait=True, cancel_futures=True)


def _start_worker(started: Any, places: Any) -> None:
    started.set()
    if not places.empty():
        os.environ["CUDA_VISIBLE_DEVICES"] = places.get()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when the one that started it is gone, killed perhaps: nobody waits for its work any more."""
    parent = mp.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextmanager
def _for_children(threads: int) -> Iterator[None]:
    """A context: processes that are started in it have so many threads from the first moment, and ignore Ctrl-C.

    A script that imports torch at its top does so in every worker before any code of ours runs there. Ctrl-C reaches
    all processes of a terminal, and the one that started the others decides.
    """
    before = {name: os.environ[name] for name in _THREADS if name in os.environ}
    os.environ.update(dict.fromkeys(_THREADS, str(threads)))
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main else None
    try:
        yield
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        for name in _THREADS:
            del os.environ[name]
        os.environ.update(before)

"""Runs on other machines, each watched by a thread of this process."""

import concurrent.futures as futures
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from adaptive_labels.lab.experiments.executors.child import Origin


class RemoteExecutor(futures.Executor, ABC):
    """Machines that do calls, so many at a time."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._threads = futures.ThreadPoolExecutor(workers)

    @abstractmethod
    def call(self, origin: Origin, call: Callable[..., Any], *args: Any) -> Any:
        """Do a call elsewhere and wait for what it returns; a `BrokenExecutor` if what did it died."""

    @abstractmethod
    def stop(self) -> None:
        """Give up what is under way: nobody waits for it."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        """As any executor's."""
        return self._threads.submit(self.call, Origin(), call, *args, **kwargs)

    def restart(self) -> None:
        """Nothing is to be done before a job is tried again: there are other workers."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As any executor's."""
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self.stop()
        self.shutdown(cancel_futures=True)

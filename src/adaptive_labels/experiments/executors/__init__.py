"""Where runs are done: any `concurrent.futures.Executor`, or this process.

An executor of one's own is one file: a function that makes it, under `@register_executor("name")`. It may also have

- ``listen(listener)``: a context in which `tell` reaches the listener from inside the executor's workers;
- ``restart()``: new workers in the place of dead ones, so that their jobs can be tried again.

This package never imports torch: a worker sets its number of threads before torch starts.
"""

from __future__ import annotations

import concurrent.futures as futures
import importlib
import os
import pkgutil
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Literal

from adaptive_labels.errors import UserError, did_you_mean


@dataclass(frozen=True)
class Job:
    """A run to do: its whole configuration, the folder that run folders go into, and the command to record.

    data: a file with the encoded data, so that workers need not read it again; None if there is none.
    """

    name: str
    config: Mapping[str, Any]
    out: str
    command: tuple[str, ...]
    data: str | None = None


@dataclass(frozen=True)
class Event:
    """What happens to a job: it begins, it moves on, it ends.

    data: of "progress" where the run is, of "done" the run's folder, of "failed" the reason.
    """

    job: int
    kind: Literal["start", "progress", "done", "failed"]
    data: Any = None


@dataclass(frozen=True)
class Outcome:
    """How a job ended: the run's folder, or why there is none."""

    job: Job
    path: str | None
    error: str | None


Listener = Callable[[Event], None]
Task = Callable[[Job, Any], str]
"""Does a job, tells a reporter of it, and returns the run's folder."""

_SILENT_END = "its process ended without a word: out of memory, or a crash in a library"
EXECUTORS: dict[str, Callable[..., futures.Executor]] = {}


def register_executor(name: str) -> Callable[[Callable[..., futures.Executor]], Callable[..., futures.Executor]]:
    """Add a function that makes an executor from the number of workers and options of its own, by name."""

    def add(make: Callable[..., futures.Executor]) -> Callable[..., futures.Executor]:
        EXECUTORS[name] = make
        return make

    return add


def find_executor(name: str) -> Callable[..., futures.Executor]:
    """What makes the executor called ``name``: to be called with the number of workers and its own options."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    if name not in EXECUTORS:
        known = ", ".join(sorted(EXECUTORS))
        raise UserError(f"executor is {name!r}: the executors are {known}{did_you_mean(name, EXECUTORS)}")
    return EXECUTORS[name]


class _Teller:
    """A reporter that passes on where the run is."""

    def __init__(self, job: int, tell: Listener) -> None:
        self._job, self._tell = job, tell

    def progress(self, now: Any) -> None:
        self._tell(Event(self._job, "progress", now))

    def epoch(self, record: Mapping[str, Any], epochs: int) -> None:
        pass

    def close(self) -> None:
        pass


# What a worker tells of its job goes here; an executor that can carry it sets it in its workers.
tell: Listener | None = None


def in_this_process(executor: futures.Executor | None) -> bool:
    """Whether jobs share this process's memory."""
    return executor is None or isinstance(executor, futures.ThreadPoolExecutor)


def run_jobs(
    jobs: Sequence[Job], task: Task, listener: Listener, executor: futures.Executor | None = None
) -> list[Outcome]:
    """Do all jobs and say how each ended; one that fails does not stop the others.

    Without an executor they are done here, one after the other. Where a worker dies (killed for its memory, say) and
    the executor can be restarted, the jobs that were under way are tried once more, one at a time, and those that had
    not begun go on as before.
    """
    if executor is None:
        return [_ended(number, _do(number, job, task, listener), listener) for number, job in enumerate(jobs)]
    restart = getattr(executor, "restart", None)
    outcomes: dict[int, Outcome] = {}
    left = dict(enumerate(jobs))
    while left:
        begun: set[int] = set()

        def hear(event: Event, begun: set[int] = begun) -> None:
            begun.add(event.job)
            listener(event)

        outcomes |= _submit(left, task, hear, executor)
        lost = [number for number in left if number not in outcomes]
        again = [number for number in lost if number in begun] or lost
        for number in again:
            if restart is not None:
                restart()
                outcomes |= _submit({number: jobs[number]}, task, listener, executor)
            if number not in outcomes:
                outcomes[number] = _ended(number, Outcome(jobs[number], None, _SILENT_END), listener)
        left = {number: jobs[number] for number in lost if number not in again}
        if left and restart is not None:
            restart()
    return [outcomes[number] for number in sorted(outcomes)]


def _submit(jobs: Mapping[int, Job], task: Task, listener: Listener, executor: futures.Executor) -> dict[int, Outcome]:
    """Outcomes by number, without the jobs whose worker died, or that waited for one that did."""
    listen = getattr(executor, "listen", None)
    outcomes: dict[int, Outcome] = {}
    waiting: dict[futures.Future[Outcome], int] = {}
    with nullcontext() if listen is None else listen(listener):
        try:
            with suppress(futures.BrokenExecutor):
                for number, job in jobs.items():
                    call = executor.submit(_do, number, job, task, listener if in_this_process(executor) else None)
                    waiting[call] = number
            for done in futures.as_completed(waiting):
                if not isinstance(done.exception(), futures.BrokenExecutor):
                    outcomes[waiting[done]] = _ended(waiting[done], done.result(), listener)
        except BaseException:
            for call in waiting:
                call.cancel()
            raise
    return outcomes


def _ended(number: int, outcome: Outcome, listener: Listener) -> Outcome:
    """Tell how a job ended. It is told here and not by the worker, whose words may come late or be lost."""
    if outcome.error is None:
        listener(Event(number, "done", outcome.path))
    else:
        listener(Event(number, "failed", outcome.error))
    return outcome


def _do(number: int, job: Job, task: Task, listener: Listener | None) -> Outcome:
    say = listener or tell or (lambda event: None)
    say(Event(number, "start"))
    try:
        return Outcome(job, task(job, _Teller(number, say)), None)
    except Exception as error:
        if os.environ.get("ALR_DEBUG"):
            traceback.print_exc()
        return Outcome(job, None, str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}")

"""Runs on a pool of local processes that share the cores, with their progress told to one listener.

This module never imports torch: a worker sets its number of threads before torch starts.
"""

from __future__ import annotations

import concurrent.futures as futures
import multiprocessing as mp
import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, Literal

from adaptive_labels.machine import usable_cores

Task = Callable[[Mapping[str, Any], str, Any, Sequence[str]], str]


@dataclass(frozen=True)
class Job:
    """A run to do: its whole configuration, the folder that run folders go into, and the command to record."""

    name: str
    config: Mapping[str, Any]
    out: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Event:
    """What a run tells: where it is, that it ended, or that it failed."""

    job: int
    kind: Literal["start", "progress", "epoch", "done", "failed"]
    data: Any = None


@dataclass(frozen=True)
class Outcome:
    """How a job ended: the run's folder, or why there is none."""

    job: Job
    path: str | None
    error: str | None


Listener = Callable[[Event], None]


class _Teller:
    """A reporter that passes everything on, from the worker's process or from this one."""

    def __init__(self, job: int, tell: Listener) -> None:
        self._job, self._tell = job, tell

    def progress(self, now: Any) -> None:
        self._tell(Event(self._job, "progress", now))

    def epoch(self, record: Mapping[str, Any], epochs: int) -> None:
        self._tell(Event(self._job, "epoch", (dict(record), epochs)))

    def close(self) -> None:
        pass


def run_jobs(
    jobs: Sequence[Job], task: Task, listener: Listener, *, workers: int, cores: int | None = None
) -> list[Outcome]:
    """Do all jobs, ``workers`` at a time, and say how each ended; one that fails does not stop the others.

    With one worker the jobs run in this process. A worker that dies (killed for its memory, say) costs its own job: the
    jobs that were under way are tried once more, one at a time, and those that had not begun go on as before.
    """
    if workers <= 1:
        return [_run_here(number, job, task, listener) for number, job in enumerate(jobs)]
    cores = cores or usable_cores()
    outcomes: dict[int, Outcome] = {}
    left = dict(enumerate(jobs))
    while left:
        begun: set[int] = set()

        def hear(event: Event, begun: set[int] = begun) -> None:
            begun.add(event.job)
            listener(event)

        found = _run_pool(left, task, hear, workers, max(1, cores // workers))
        outcomes |= {number: outcome for number, outcome in found.items() if outcome is not None}
        lost = [number for number, outcome in found.items() if outcome is None]
        under_way = [number for number in lost if number in begun] or lost
        for number in under_way:
            outcomes[number] = _run_alone(number, jobs[number], task, listener, cores)
        left = {number: jobs[number] for number in lost if number not in under_way}
    return [outcomes[number] for number in sorted(outcomes)]


def _run_alone(number: int, job: Job, task: Task, listener: Listener, threads: int) -> Outcome:
    outcome = _run_pool({number: job}, task, listener, 1, threads)[number]
    if outcome is None:
        reason = "its process ended without a word: out of memory, or a crash in a library"
        listener(Event(number, "failed", reason))
        outcome = Outcome(job, None, reason)
    return outcome


def _run_here(number: int, job: Job, task: Task, listener: Listener) -> Outcome:
    listener(Event(number, "start"))
    try:
        path = task(job.config, job.out, _Teller(number, listener), job.command)
    except Exception as error:
        if os.environ.get("ALR_DEBUG"):
            traceback.print_exc()
        listener(Event(number, "failed", _sentence(error)))
        return Outcome(job, None, _sentence(error))
    listener(Event(number, "done", path))
    return Outcome(job, path, None)


def _run_pool(
    jobs: Mapping[int, Job], task: Task, listener: Listener, workers: int, threads: int
) -> dict[int, Outcome | None]:
    """Outcomes by number; None for jobs whose worker died, or that waited for one that did."""
    context = mp.get_context("spawn")  # a forked copy of torch's threads would hang
    events: Any = context.Queue()
    listening = threading.Thread(target=_listen, args=(events, listener), daemon=True)
    listening.start()
    pool = futures.ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(events,))
    outcomes: dict[int, Outcome | None] = dict.fromkeys(jobs)
    try:
        with _for_children(threads):
            waiting = {pool.submit(_run_in_worker, number, job, task): number for number, job in jobs.items()}
        for done in futures.as_completed(waiting):
            number = waiting[done]
            try:
                outcomes[number] = done.result()
            except BrokenProcessPool:
                continue
    except KeyboardInterrupt:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        events.put(None)
        listening.join(timeout=5)
    return outcomes


def _listen(events: Any, listener: Listener) -> None:
    while True:
        try:
            event = events.get(timeout=1)
        except queue.Empty:
            continue
        except (EOFError, OSError):
            return
        if event is None:
            return
        listener(event)


_EVENTS: Any = None
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def _start_worker(events: Any) -> None:
    global _EVENTS
    _EVENTS = events
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when the one that started it is gone, killed perhaps: nobody waits for its work any more."""
    parent = mp.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextmanager
def _for_children(threads: int) -> Iterator[None]:
    """What processes started meanwhile find from their first moment: so many threads, and no Ctrl-C.

    A script that imports torch at its top does so in every worker before any code of ours runs there. Ctrl-C reaches
    all processes of a terminal, and the one that started the others decides.
    """
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, str(threads)))
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main else None
    try:
        yield
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _run_in_worker(number: int, job: Job, task: Task) -> Outcome:
    return _run_here(number, job, task, _EVENTS.put)


def _sentence(error: Exception) -> str:
    text = str(error).strip()
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text or 'no message'}"

"""Where runs are done: any `concurrent.futures.Executor`, or this process.

An executor of one's own is one file: its class, or a function that makes it, under `@register_executor("name")`. It
may also have

- ``listen(listener)``: a context in which `tell` reaches the listener from inside the executor's workers; without it
  they write what they tell into a folder beside the runs (`notes`);
- ``restart()``: new workers in the place of dead ones, so that their jobs can be tried again;
- ``prepare(folder)``: refuse, before any run, what would make runs in this folder fail.

This package never imports torch: a worker sets its number of threads before torch starts.
"""

import concurrent.futures as futures
import importlib
import inspect
import os
import pkgutil
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from adaptive_labels.errors import UserError, did_you_mean
from adaptive_labels.lab.config.checks import parse, typed
from adaptive_labels.lab.runs import LockedError
from adaptive_labels.lab.training.progress import Progress, Reporter
from adaptive_labels.plugins import loaded_plugins


@dataclass(frozen=True)
class Job:
    """A run to do: its whole configuration, the folder that run folders go into, and the command to record.

    data: a file with the encoded data, so that workers need not read it again; None if there is none.
    allowed: the seconds that it may take; a run that would take longer stops as soon as that is clear.
    latest: when it stops however far it is, in seconds since the epoch.
    plugins: the files that register its method and networks, if these are the user's own.
    """

    name: str
    config: Mapping[str, Any]
    out: str
    command: tuple[str, ...]
    data: str | None = None
    allowed: float | None = None
    latest: float | None = None
    plugins: tuple[str, ...] = field(default_factory=loaded_plugins)


@dataclass(frozen=True)
class Event:
    """What happens to a job: it begins, it moves on, it ends.

    data: of "progress" where the run is, of "waiting" what for, of "done" the run's folder, of "failed" and "late" why.
    A "plan" comes before the events of its jobs, also when runs are planned again; its data are the names of all.
    """

    job: int
    kind: Literal["plan", "start", "progress", "waiting", "done", "failed", "late"]
    data: Any = None


@dataclass(frozen=True)
class Outcome:
    """How a job ended: the run's folder, or why there is none.

    late: the seconds that it would have taken, if it was stopped because they are too many; 0 if its time was up.
    """

    job: Job
    path: str | None
    error: str | None
    late: float | None = None


class LateError(Exception):
    """A run that cannot end in its time; ``seconds`` are what it would take, 0 if that time is up."""

    def __init__(self, words: str, seconds: float) -> None:
        super().__init__(words)
        self.seconds = seconds


Listener = Callable[[Event], None]
Do = Callable[[Job, Any], str]
"""Does a job, tells a reporter of it, and returns the run's folder."""

SEEN = 0.05  # the share of its steps, or of its time, before a run is judged by its speed
WAIT_SECONDS = 2.0  # between two looks at a run that another process is writing
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


def make_executor(name: str, workers: int | None, options: Iterable[str] = ()) -> futures.Executor:
    """The executor called ``name``, for so many runs at a time, with options of its own given as ``key=value``."""
    make = find_executor(name)
    _, *known = inspect.signature(make, eval_str=True).parameters.values()
    kinds = {parameter.name: parameter.annotation for parameter in known}
    given = {}
    for option in options:
        key, equals, text = option.partition("=")
        if not equals or key not in kinds:
            raise UserError(
                f"executor-option is {option!r}: {name} takes {', '.join(f'{known}=…' for known in kinds)}"
                f"{did_you_mean(key, kinds)}"
            )
        given[key] = typed(parse(text, kinds[key], key), kinds[key], f"executor-option {key}")
    return make(workers, **given)


class Teller(Reporter):
    """A reporter that passes on where the run is, and stops one that takes too long."""

    def __init__(self, number: int, job: Job, tell: Listener, clock: Callable[[], float] = time.time) -> None:
        self._number, self._job, self._tell, self._clock, self._began = number, job, tell, clock, clock()

    def progress(self, now: Progress) -> None:
        """Take note of where the run is; a `LateError` if it cannot end in its time."""
        self._tell(Event(self._number, "progress", now))
        taken, allowed, latest = self._clock() - self._began, self._job.allowed, self._job.latest
        if latest is not None and self._clock() > latest:
            raise LateError("the time budget is used up: stopped", 0.0)
        if allowed is None or now.seconds_left is None:
            return
        expected = taken + now.seconds_left
        seen = now.steps_done >= SEEN * now.steps or taken >= SEEN * allowed  # the first steps say little
        if seen and expected > allowed:
            words = f"about {expected:.3g} s instead of the {allowed:.3g} s that are left: there are fewer epochs now"
            raise LateError(words, expected)


# What a worker tells of its job goes here; an executor that can carry it sets it in its workers.
tell: Listener | None = None


def in_this_process(executor: futures.Executor | None) -> bool:
    """Whether jobs share this process's memory."""
    return executor is None or isinstance(executor, futures.ThreadPoolExecutor)


def run_jobs(
    jobs: Sequence[Job], do: Do, listener: Listener, executor: futures.Executor | None = None
) -> list[Outcome]:
    """Do all jobs and say how each ended; one that fails does not stop the others.

    Without an executor they are done here, one after the other. Where a worker dies (killed for its memory, say) and
    the executor can be restarted, the jobs that were under way are tried once more, one at a time, and those that had
    not begun go on as before.
    """
    if executor is None:
        return [_ended(number, _do(number, job, do, listener), listener) for number, job in enumerate(jobs)]
    restart = getattr(executor, "restart", None)
    outcomes: dict[int, Outcome] = {}
    heard = _Heard(listener)
    left = dict(enumerate(jobs))
    while left:
        outcomes |= _submit(left, do, heard, executor)
        lost = [number for number in left if number not in outcomes]
        again = [number for number in lost if number in heard.begun] or lost
        for number in again:
            if restart is not None:
                restart()
                outcomes |= _submit({number: jobs[number]}, do, heard, executor)
            if number not in outcomes:
                size = jobs[number].config.get("training", {}).get("batch_size")
                tried = "" if size is None else f" (batch size {size})"
                words = f"its process ended without a word: out of memory{tried}, or a crash in a library"
                outcomes[number] = _ended(number, Outcome(jobs[number], None, words), heard)
        left = {number: jobs[number] for number in lost if number not in again}
        if left and restart is not None:
            restart()
    return [outcomes[number] for number in sorted(outcomes)]


class _Heard:
    """A listener that remembers which jobs have begun, and which have ended."""

    def __init__(self, listener: Listener) -> None:
        self._listener, self._lock = listener, threading.Lock()
        self.begun: set[int] = set()
        self._ended: set[int] = set()

    def __call__(self, event: Event) -> None:
        with self._lock:
            self.begun.add(event.job)
            if event.kind in ("done", "failed", "late"):
                self._ended.add(event.job)
            self._listener(event)

    def from_afar(self, event: Event) -> None:
        """Hear it unless the job has ended: it may come late, or from a worker that was thought dead."""
        if event.job not in self._ended:
            self(event)


def _submit(jobs: Mapping[int, Job], do: Do, listener: _Heard, executor: futures.Executor) -> dict[int, Outcome]:
    """Outcomes by number, without the jobs whose worker died, or that waited for one that did."""
    from adaptive_labels.lab.experiments.executors.notes import hear_notes

    outcomes: dict[int, Outcome] = {}
    waiting: dict[futures.Future[Outcome], int] = {}
    hearing: Any = nullcontext(listener)
    if not in_this_process(executor):
        listen = getattr(executor, "listen", None)
        out = next(iter(jobs.values())).out
        hearing = hear_notes(out, listener.from_afar) if listen is None else listen(listener)
    with hearing as say:  # what a job is to be told with, if it can be sent
        try:
            with suppress(futures.BrokenExecutor):
                for number, job in jobs.items():
                    waiting[executor.submit(_do, number, job, do, say)] = number
            for done in futures.as_completed(waiting):
                number = waiting[done]
                if (outcome := _outcome(done, jobs[number])) is not None:
                    outcomes[number] = _ended(number, outcome, listener)
        except BaseException:
            for call in waiting:
                call.cancel()
            raise
    return outcomes


@contextmanager
def looking(look: Callable[[], None], seconds: float) -> Iterator[None]:
    """A context in which a thread calls a function every so many seconds, and once more at the end."""
    stop = threading.Event()

    def work() -> None:
        stopped = False
        while not stopped:
            stopped = stop.wait(seconds)
            look()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=5)


def _outcome(done: futures.Future[Outcome], job: Job) -> Outcome | None:
    """How a job ended, also where its executor failed it; None if its worker died."""
    try:
        return done.result()
    except futures.BrokenExecutor:
        return None
    except futures.CancelledError:
        return Outcome(job, None, "its executor has given it up: is the scheduler gone?")
    except Exception as error:  # of the executor, since `_do` raises none
        return Outcome(job, None, _words(error))


def _ended(number: int, outcome: Outcome, listener: Listener) -> Outcome:
    """Tell how a job ended. It is told here and not by the worker, whose words may come late or be lost."""
    if outcome.error is None:
        listener(Event(number, "done", outcome.path))
    else:
        listener(Event(number, "failed" if outcome.late is None else "late", outcome.error))
    return outcome


def _do(number: int, job: Job, do: Do, listener: Listener | None) -> Outcome:
    say = listener or tell or (lambda event: None)
    try:
        say(Event(number, "start"))
        while True:
            try:
                return Outcome(job, do(job, Teller(number, job, say)), None)
            except LockedError as error:
                if not getattr(say, "waits", False):
                    raise
                # A machine that was thought dead, or that an earlier command has asked, is at it: it may finish.
                say(Event(number, "waiting", str(error)))
                time.sleep(WAIT_SECONDS)
    except LateError as error:
        return Outcome(job, None, str(error), error.seconds)
    except Exception as error:
        if os.environ.get("ALR_DEBUG"):
            traceback.print_exc()
        return Outcome(job, None, _words(error))


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"

"""Where runs are done: here, in processes of this machine, on a cluster, or by any `concurrent.futures.Executor`.

A place of one's own is one file: a function or class under `@register_executor("name")` that makes an executor. It may
be a `JobExecutor`, to say more of itself. Progress has no channel of its own: it is read from the history in each run's
folder, which all places share with the command.

This package never imports torch: a worker sets its number of threads before torch starts.
"""

import concurrent.futures as futures
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from adaptive_labels.errors import UserError, did_you_mean
from adaptive_labels.lab.config import RunConfig
from adaptive_labels.lab.config.checks import parse, typed
from adaptive_labels.plugins import loaded_plugins


@dataclass(frozen=True)
class Job:
    """A run to do: its configuration, the folder of the run, and the command to record.

    teacher: the folder of the finished run that it learns from, if there is one.
    data: a file with the encoded data, so that workers need not read it again; None if there is none.
    shared: a folder that other machines must see, too; when it is gone, nobody waits for the run any more.
    plugins: the files that register its method and networks, if these are the user's own.
    """

    name: str
    config: RunConfig
    folder: Path
    command: tuple[str, ...]
    teacher: Path | None = None
    data: Path | None = None
    shared: Path | None = None
    plugins: tuple[str, ...] = field(default_factory=loaded_plugins)


@dataclass(frozen=True)
class Event:
    """What happens to a job, by its number.

    data: of "progress" the last line of the run's history and the number of "epochs", or {"epoch": 0} while there is
    none; of "done" the run's folder, of "failed" why. A "plan" comes before the events of its jobs; its data are the
    names of all.
    """

    job: int
    kind: Literal["plan", "progress", "done", "failed"]
    data: Any = None


@dataclass(frozen=True)
class Outcome:
    """How a job ended: the run's folder, or why there is none."""

    job: Job
    path: str | None
    error: str | None = None


Listener = Callable[[Event], None]
Do = Callable[[Job], str]
"""Does a job and returns the run's folder."""


class JobExecutor(futures.Executor):
    """A place for runs: an executor, with what holds if a place says nothing else.

    workers: how many runs it does at a time.
    elsewhere: whether its workers may be on other machines, which share the folder of the runs and no other.
    """

    workers = sys.maxsize
    elsewhere = True

    def __init__(self, executor: futures.Executor | None = None) -> None:
        self._executor: Any = executor

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        future: futures.Future[Any] = self._executor.submit(call, *args, **kwargs)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._executor.shutdown(wait, cancel_futures=cancel_futures)

    def prepare(self, folder: Path) -> None:
        """Refuse, before any run, what would make runs in this folder fail."""

    def restart(self) -> bool:
        """Put new workers in the place of dead ones, so that their jobs can be tried again; False if it cannot."""
        return False


class Here(JobExecutor):
    """This process, one run after the other."""

    workers = 1
    elsewhere = False

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        done: futures.Future[Any] = futures.Future()
        done.set_result(call(*args, **kwargs))
        return done


def as_job_executor(executor: futures.Executor) -> JobExecutor:
    """The executor itself if it is one of ours, or one that hands jobs on to it."""
    return executor if isinstance(executor, JobExecutor) else JobExecutor(executor)


EXECUTORS: dict[str, Callable[..., futures.Executor]] = {}


def register_executor(name: str) -> Callable[[Callable[..., futures.Executor]], Callable[..., futures.Executor]]:
    """Add what makes an executor from the number of workers (None: as many as it has) and options of its own."""

    def add(make: Callable[..., futures.Executor]) -> Callable[..., futures.Executor]:
        EXECUTORS[name] = make
        return make

    return add


def make_executor(name: str, workers: int | None, options: Iterable[str] = ()) -> JobExecutor:
    """The executor called ``name``, for so many runs at a time, with options of its own given as ``key=value``."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    if name not in EXECUTORS:
        names = ", ".join(sorted(EXECUTORS))
        raise UserError(f"executor is {name!r}: the executors are {names}{did_you_mean(name, EXECUTORS)}")
    make = EXECUTORS[name]
    _, *own = inspect.signature(make, eval_str=True).parameters.values()
    kinds = {parameter.name: parameter.annotation for parameter in own}
    given = {}
    for option in options:
        key, equals, text = option.partition("=")
        if not equals or key not in kinds:
            raise UserError(
                f"executor-option is {option!r}: {name} takes {', '.join(f'{kind}=…' for kind in kinds)}"
                f"{did_you_mean(key, kinds)}"
            )
        given[key] = typed(parse(text, kinds[key], key), kinds[key], f"executor-option {key}")
    return as_job_executor(make(workers, **given))

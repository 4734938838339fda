"""How far long work is: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from adaptive_labels.cli.output import clock, counted

if TYPE_CHECKING:
    from adaptive_labels.experiments.comparison import Plan
    from adaptive_labels.experiments.executors import Event

HEARTBEAT_SECONDS = 30.0


@contextmanager
def show_progress(
    words: Callable[[int, int], str], seconds: float = 0.0
) -> Iterator[Callable[[int, int | None], None]]:
    """Something to tell how much is done, and of how much: shown on standard error in the ``words`` for these two.

    On a terminal they stand beside a bar; elsewhere they are printed at every tenth, but not within ``seconds`` of the
    start or of the last time.
    """
    tenths, last = 0, time.monotonic()
    bar: Any = None

    def tell(done: int, total: int | None) -> None:
        nonlocal tenths, last, bar
        if sys.stderr.isatty():
            bar = bar or _make_bar()
            bar.update(bar.tasks[0].id, completed=done, total=total, description=words(done, total) if total else "")
        elif total and 10 * done // total > tenths and time.monotonic() - last >= seconds:
            tenths, last = 10 * done // total, time.monotonic()
            typer.echo(words(done, total), err=True)

    try:
        yield tell
    finally:
        if bar is not None:
            bar.stop()


def _make_bar() -> Any:
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    bar.add_task("")
    bar.start()
    return bar


@contextmanager
def make_listener(plan: Plan, quiet: bool = False) -> Iterator[Callable[[Event], None]]:
    """Something to tell the events of a plan's runs to: bars on a terminal, one line per run elsewhere."""
    names = [plan.name_of(config) for config in plan.jobs]
    if quiet or not names:
        yield lambda event: None
    elif sys.stdout.isatty():
        with _Bars(names) as bars:
            yield bars
    else:
        yield _Lines(names)


class _Lines:
    """A line when a run ends, and one every half minute while nothing does."""

    def __init__(self, names: list[str]) -> None:
        self.names, self.done = names, 0
        self.began = self.spoke = time.monotonic()
        self.last: dict[int, dict[str, Any]] = {}

    def __call__(self, event: Event) -> None:
        if event.kind == "epoch":
            self.last[event.job] = event.data[0]
        if event.kind in ("done", "failed"):
            self.done += 1
            self._say(f"{self.names[event.job]}: {_ending(event, self.last.get(event.job))}")
        elif event.kind == "progress" and time.monotonic() - self.spoke > HEARTBEAT_SECONDS:
            now = event.data
            self._say(f"{self.names[event.job]}: epoch {now.epoch}/{now.epochs}, loss {now.loss:.3f}")

    def _say(self, words: str) -> None:
        self.spoke = time.monotonic()
        typer.echo(f"[{self.done}/{len(self.names)}, {clock(self.spoke - self.began)}] {words}")


class _Bars:
    """One bar for all runs, and one for each that is under way."""

    def __init__(self, names: list[str]) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self.names = names
        self.bars = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[figures]}"), TimeElapsedColumn()
        )
        self.whole = self.bars.add_task("all runs", total=len(names), figures=f"0/{len(names)}")
        self.tasks: dict[int, Any] = {}
        self.fractions = dict.fromkeys(range(len(names)), 0.0)
        self.last: dict[int, dict[str, Any]] = {}

    def __enter__(self) -> _Bars:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def __call__(self, event: Event) -> None:
        name = self.names[event.job]
        if event.kind == "start":
            if event.job in self.tasks:  # its process died, and it is tried again
                self.bars.remove_task(self.tasks[event.job])
            self.tasks[event.job] = self.bars.add_task(name, total=1.0, figures="starting")
        elif event.kind == "progress":
            now = event.data
            self.fractions[event.job] = now.steps_done / now.steps
            figures = f"epoch {now.epoch}/{now.epochs}  loss {now.loss:.3f}  accuracy {now.accuracy:.1%}"
            self.bars.update(self.tasks[event.job], completed=self.fractions[event.job], figures=figures)
        elif event.kind == "epoch":
            self.last[event.job] = event.data[0]
        else:
            self.fractions[event.job] = 1.0
            if event.job in self.tasks:
                self.bars.remove_task(self.tasks.pop(event.job))
            self.bars.console.print(
                f"{name}: {_ending(event, self.last.get(event.job))}", highlight=False, markup=False
            )
        done = sum(fraction == 1.0 for fraction in self.fractions.values())
        self.bars.update(self.whole, completed=sum(self.fractions.values()), figures=f"{done}/{len(self.names)}")


def _ending(event: Event, last: dict[str, Any] | None) -> str:
    if event.kind == "failed":
        return f"failed: {event.data}"
    from adaptive_labels.runs import RunFolder

    result = RunFolder(event.data).result or {}
    if result.get("status") == "diverged":
        return f"diverged: {result['reason']}"
    if last is None:
        return "done"
    return f"validation accuracy {last['validation_accuracy']:.2%} after {counted(last['epoch'], 'epoch')}"

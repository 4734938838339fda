"""Progress of long work: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from adaptive_labels.lab.cli.output import clock
from adaptive_labels.lab.words import plural

if TYPE_CHECKING:
    from adaptive_labels.lab.jobs import Event

HEARTBEAT_SECONDS = 30.0


@contextmanager
def show_progress(
    words: Callable[[int, int], str], seconds: float = 0.0
) -> Iterator[Callable[[int, int | None], None]]:
    """A function to call with how much is done, and of how much; ``words`` makes a text of the two for standard error.

    On a terminal the text stands beside a bar; elsewhere it is printed at every tenth, but not within ``seconds`` of
    the start or of the last time.
    """
    tenths, last = 0, time.monotonic()
    bar: Any = None

    def tell(done: int, total: int | None) -> None:
        nonlocal tenths, last, bar
        if sys.stderr.isatty():
            bar = bar or _make_bar()
            bar.update(bar.tasks[0].id, completed=done, total=total, description=words(done, total) if total else "")
            if done == total:  # another bar may come
                bar.stop()
                bar = None
            return
        if total and 10 * done // total < tenths:  # something else is counted now, such as another split
            tenths = 0
        if total and 10 * done // total > tenths and time.monotonic() - last >= seconds:
            tenths, last = 10 * done // total, time.monotonic()
            typer.echo(words(done, total), err=True)

    try:
        yield tell
    finally:
        if bar is not None:
            bar.stop()


@contextmanager
def show_encoding() -> Iterator[Callable[[int, int | None], None]]:
    """A function to call with how far a pretrained encoder is; it is shown, and afterwards how long that took."""
    began: float | None = None
    encoded, seconds = 0, 0.0

    def words(done: int, total: int) -> str:
        return f"encoded {done:,} of {total:,} with the pretrained network"

    def listen(done: int, total: int | None) -> None:
        nonlocal began, encoded, seconds
        began = time.monotonic() if began is None else began
        tell(done, total)
        if done == total:
            encoded, seconds, began = encoded + done, seconds + time.monotonic() - began, None

    with show_progress(words, seconds=5.0) as tell:
        yield listen
    if seconds >= 1:
        typer.echo(f"Encoding {encoded:,} inputs took {clock(seconds)}; they need not be encoded again.", err=True)


def _make_bar() -> Any:
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    bar.add_task("")
    bar.start()
    return bar


@contextmanager
def make_listener(quiet: bool = False) -> Iterator[Callable[[Event], None]]:
    """A function to call with each event of runs: it prints a line when a run ends, and shows the progress.

    On a terminal there is one bar for all runs, and one for each run under way; elsewhere there is a line when an epoch
    ends, if there was none for half a minute.
    """
    if quiet:
        yield lambda event: None
    elif sys.stdout.isatty():
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        texts = (TextColumn("{task.description}"), TextColumn("{task.fields[figures]}"))
        bars = Progress(texts[0], BarColumn(), texts[1], TimeElapsedColumn())
        try:
            yield _Listener(bars)
        finally:
            bars.stop()
    else:
        yield _Listener(None)


class _Listener:
    def __init__(self, bars: Any) -> None:
        self.bars, self.whole = bars, None
        self.began = self.spoke = time.monotonic()
        self.names: list[str] = []
        self.ended = 0
        self.tasks: dict[int, Any] = {}

    def __call__(self, event: Event) -> None:
        if event.kind == "plan":
            self.names = event.data
            if self.bars is not None and self.names:
                self.bars.start()
                self.whole = self.bars.add_task("all runs", total=len(self.names), figures="")
        elif event.kind == "progress":
            now, epochs = event.data, event.data["epochs"]
            words = f"epoch {now['epoch']}/{epochs}"
            if now["epoch"]:
                words += f", loss {now['train_loss']:.3f}, validation accuracy {now['validation_accuracy']:.1%}"
            self._move(event.job, words, now["epoch"] / epochs)
            if self.bars is None and time.monotonic() - self.spoke > HEARTBEAT_SECONDS:
                self._say(event.job, words)
        else:
            self.ended += 1
            self._say(event.job, _ending(event))
            self._move(event.job, None, 1.0)

    def _say(self, job: int, words: str) -> None:
        self.spoke = time.monotonic()
        line = f"[{self.ended}/{len(self.names)}, {clock(self.spoke - self.began)}] {self.names[job]}: {words}"
        if self.bars is None:
            typer.echo(line)
        else:
            self.bars.console.print(line, highlight=False, markup=False)

    def _move(self, job: int, words: str | None, fraction: float) -> None:
        """Move the bars; without words the run has ended."""
        if self.bars is None:
            return
        if job not in self.tasks:
            self.tasks[job] = self.bars.add_task(self.names[job], total=1.0, figures="")
        self.bars.update(self.tasks[job], completed=fraction, figures=words or "", visible=words is not None)
        done = sum(task.completed for task in self.bars.tasks if task.id != self.whole)
        self.bars.update(self.whole, completed=done, figures=f"{self.ended}/{len(self.names)}")


def _ending(event: Event) -> str:
    if event.kind == "failed":
        return f"failed: {event.data}"
    from adaptive_labels.lab.runs import RunFolder

    run = RunFolder(event.data)
    result, last = run.result or {}, run.history()[-1:]
    if result.get("status") == "diverged":
        return f"diverged: {result['reason']}"
    if not last:
        return "done"
    return f"validation accuracy {last[0]['validation_accuracy']:.2%} after {plural(last[0]['epoch'], 'epoch')}"

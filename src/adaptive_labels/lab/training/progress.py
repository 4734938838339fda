"""The progress of a run: a bar on a terminal, plain lines elsewhere, or any object with these methods."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TextIO

MEDIUM_TERMINAL, WIDE_TERMINAL = 96, 126  # columns


@dataclass(frozen=True)
class Progress:
    """Where a run is: plain numbers, so that a worker process can send it.

    steps_done, steps: optimizer steps of the whole run.
    loss, accuracy: running over the present epoch.
    examples_per_second: over the present epoch; seconds_left: of training, or None before it can be said.
    """

    epoch: int
    epochs: int
    steps_done: int
    steps: int
    loss: float
    accuracy: float
    learning_rate: float
    examples_per_second: float
    seconds_left: float | None


class Reporter:
    """Gets the progress a few times a second, every finished epoch, and the end of training. This one shows nothing."""

    def progress(self, now: Progress) -> None:
        """Take note of where the run is."""

    def epoch(self, record: Mapping[str, Any], epochs: int) -> None:
        """Take note of a finished epoch, as it stands in the history."""

    def close(self) -> None:
        """Training has ended, one way or another."""


class LineReporter(Reporter):
    """One line per epoch, and one every half minute within a long epoch."""

    def __init__(self, stream: TextIO | None = None, every: float = 30.0) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._every = every
        self._last = time.monotonic()

    def progress(self, now: Progress) -> None:
        if time.monotonic() - self._last >= self._every:
            self._print(
                f"epoch {now.epoch}/{now.epochs}  {now.steps_done / now.steps:.0%} of the run  "
                f"loss {now.loss:.4f}  accuracy {now.accuracy:.2%}  rate {now.learning_rate:.4g}  "
                f"{now.examples_per_second:,.0f}/s{_left(now)}"
            )

    def epoch(self, record: Mapping[str, Any], epochs: int) -> None:
        self._print(
            f"epoch {record['epoch']}/{epochs}  loss {record['train_loss']:.4f}  "
            f"train accuracy {record['train_accuracy']:.2%}  validation accuracy {record['validation_accuracy']:.2%}  "
            f"rate {record['learning_rate']:.4g}  {record['seconds']:.1f} s"
        )

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)
        self._last = time.monotonic()


class BarReporter(Reporter):
    def __init__(self, console: Any) -> None:
        from rich.progress import BarColumn, Progress as Bar, TextColumn

        self._width = console.width
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30 if self._width >= WIDE_TERMINAL else 5),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[figures]}"),
            console=console,
        )
        self._task = self._bar.add_task("training", total=None, figures="")
        self._validation = ""

    def progress(self, now: Progress) -> None:
        """Move the bar; what matters most is short enough for 80 columns, the rest is shown where there is room."""
        figures = f"loss {now.loss:.3f}  train {now.accuracy:.1%}{self._validation}"
        if self._width >= MEDIUM_TERMINAL:
            figures += f"  rate {now.learning_rate:.4g}"
        if self._width >= WIDE_TERMINAL:
            figures += f"  {now.examples_per_second:,.0f}/s"
        words = f"epoch {now.epoch}/{now.epochs}"
        figures += _left(now)
        self._bar.start()  # not before: it hides the cursor, which an error before training would leave hidden
        self._bar.update(self._task, description=words, total=now.steps, completed=now.steps_done, figures=figures)

    def epoch(self, record: Mapping[str, Any], epochs: int) -> None:
        self._validation = f"  validation {record['validation_accuracy']:.1%}"

    def close(self) -> None:
        self._bar.stop()


def make_reporter(stream: TextIO) -> Reporter:
    if not stream.isatty():
        return LineReporter(stream)
    from rich.console import Console

    return BarReporter(Console(file=stream))


def warn(words: str) -> None:
    """Say what the user must know even of a run that is silent otherwise: on standard error, above a bar."""
    print(f"alr: {words}", file=sys.stderr, flush=True)


def _left(now: Progress) -> str:
    """The time left as m:ss or h:mm:ss, or nothing while it is unknown."""
    if now.seconds_left is None:
        return ""
    minutes, second = divmod(round(now.seconds_left), 60)
    hours, minute = divmod(minutes, 60)
    return f"  {hours}:{minute:02}:{second:02} left" if hours else f"  {minute}:{second:02} left"

"""The application `alr`: each command's file registers itself here; start, errors and exit status."""

import contextlib
import ctypes
import io
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, TextIO, cast

import typer
from typer.core import TyperGroup

from adaptive_labels.errors import Stopped, UserError
from adaptive_labels.lab.machine import launched
from adaptive_labels.lab.tables import visible

# typer brings its own copy of click or imports it, depending on its version: this is the class in either.
UsageError: Any = typer.BadParameter.__mro__[1]
# For glibc's malloc: the numbers of two settings, the largest value that it takes for one, and as much free memory as
# a process may keep.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
MMAP_THRESHOLD, TRIM_THRESHOLD = 32 * 2**20, 2**30
TRAINING = (["train"], ["compare"], ["tune"], ["study"], ["reproduce"])  # commands that several processes do together
FIRST_SPEAKS = 20.0  # seconds that the first of several processes has to say what went wrong


class Group(TyperGroup):
    """A group of commands whose help takes no time."""

    def get_help_option(self, ctx: Any) -> Any:
        """The option --help, with a default: without one, typer imports pydantic, which takes 0.15 s."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option


app = typer.Typer(
    name="alr",
    cls=Group,
    help="Train classifiers on better labels: compare label regularisations on your data, and see what is confused.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def add_group(name: str, help: str) -> typer.Typer:
    """A command of several commands, such as `alr runs list` and `alr runs rm`."""
    group = typer.Typer(cls=Group, help=help, rich_markup_mode=None)
    app.add_typer(group, name=name)
    return group


def _version(show: bool) -> None:
    if show:
        from adaptive_labels import __version__

        typer.echo(f"adaptive-labels {__version__}")
        raise typer.Exit


@app.callback()
def _everywhere(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that stand before any command; `main` has dealt with --debug already."""


def main() -> None:
    """Run a command; what the user can cause ends with one sentence on standard error and status 2."""
    arguments = [word for word in sys.argv[1:] if word != "--debug"]  # anywhere, not only before the command
    if arguments != sys.argv[1:]:
        os.environ["ALR_DEBUG"] = "1"  # the processes of a comparison read it too
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started the command: nobody reads it
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # where the user's encoding lacks an arrow, say
    prepare_process()
    rank = 0
    try:
        rank, world = launched()
        with _stopped_by_signals(), _outliving_its_reader() if rank == 0 else _unheard():
            status = _run_together(arguments) if world > 1 else _run(arguments or ["--help"])
        sys.exit(status)
    except (UsageError, UserError, OSError) as error:  # whatever else is raised keeps its traceback
        if os.environ.get("ALR_DEBUG"):
            raise
        if rank == 0:
            option = getattr(error, "option", None)  # that settles it
            example = f" For example: {shlex.join(['alr', *arguments, *option])}" if option else ""
            typer.echo(visible(f"alr: {_one_sentence(error)}{example}".replace("\n", " ")), err=True)
        else:
            _let_the_first_speak(rank, error)
        sys.exit(2)
    except typer.Abort:
        typer.echo("alr: not confirmed, so nothing was done", err=True)
        sys.exit(1)
    except KeyboardInterrupt as stop:
        if rank == 0:
            typer.echo(f"alr: {str(stop) or 'stopped; the same command goes on from where it was'}", err=True)
        sys.exit(128 + (stop.number if isinstance(stop, Stopped) else signal.SIGINT))


def _run_together(arguments: list[str]) -> int:
    """Call a command in the first of several processes; the others take part in the runs that it trains, if it does."""
    from adaptive_labels.lab.experiments.run import follow
    from adaptive_labels.lab.training import processes

    if arguments[:1] not in TRAINING:
        return 0 if launched()[0] else _run(arguments or ["--help"])
    processes.start()
    try:
        if processes.rank() > 0:
            follow()
            return 0
        try:
            return _run(arguments)
        finally:
            with contextlib.suppress(processes.LostProcessError):  # those that have ended already
                processes.from_first(lambda: None)  # there are no more runs
    finally:
        processes.stop()


def _let_the_first_speak(rank: int, error: Exception) -> None:
    """Say what only this process has met; else wait, as launchers end all when one fails, the first one unheard."""
    from adaptive_labels.lab.training.processes import LostProcessError

    if not isinstance(error, LostProcessError):
        typer.echo(f"alr: process {rank}: {_one_sentence(error)}", err=True)
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the wait without a traceback
    time.sleep(FIRST_SPEAKS)


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """A context in which the signals of a scheduler and of a closed terminal stop the command as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped(number=number)

    before = {}
    for name in ("SIGTERM", "SIGHUP", "SIGUSR1"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # not one that nohup ignores
            before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    """A context in which nothing is printed: of several processes, only the first one prints."""
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


@contextlib.contextmanager
def _outliving_its_reader() -> Iterator[None]:
    """A context in which a command goes on when nobody reads what it prints, as in `alr train data | head -1`."""
    with contextlib.redirect_stdout(cast("TextIO", _Output(sys.stdout))):
        yield
        sys.stdout.flush()


class _Output:
    """Standard output; what is printed after its reader has gone is lost, and nothing else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, action: Callable[..., object], *given: str) -> None:
        try:
            action(*given)
        except BrokenPipeError:  # what is printed from here on, and Python's own last flush, goes nowhere
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _run(arguments: list[str]) -> int:
    """Call a command and return its exit status.

    typer's own way puts usage errors into four lines, and drops what an interrupted run has to say.
    """
    command = typer.main.get_command(app)
    try:
        with command.make_context("alr", arguments) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    return 0


def _one_sentence(error: Exception) -> str:
    if isinstance(error, UsageError):
        return _usage_sentence(error)
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return str(error) or type(error).__name__


def _usage_sentence(error: Any) -> str:
    """A usage error in one sentence, with the nearest name and where the help is."""
    near = getattr(error, "possibilities", None)
    if near:
        message = f"{error.message}, did you mean {' or '.join(sorted(near))}?"
    else:
        message = error.format_message().replace(". Did you mean", ", did you mean").rstrip(".")
    message = message[0].lower() + message[1:]
    if error.ctx is None:
        return message
    return f"{message}{'' if message.endswith('?') else ';'} see `{error.ctx.command_path} --help`"


def prepare_process() -> None:
    """Set what makes this process and its children fast at training, before torch is imported.

    Settings that the user has made stay as they are.
    """
    # Threads of torch that wait must not spin for long: on two cores with other work on them, an epoch of the towns
    # took 8.4 s with OpenMP's default, and 1.8 s with this.
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = "1000"
    # Large tensors should take the memory of those before them. A step frees its gradients and activations, and the
    # next one asks for as much again; glibc gives much of it back to the system in between. For the 16 MB gradient of
    # fastText's embeddings, the page faults were most of what ALR-S seemed to cost (docs/speed.md).
    wishes = {"MALLOC_MMAP_THRESHOLD_": str(MMAP_THRESHOLD), "MALLOC_TRIM_THRESHOLD_": str(TRIM_THRESHOLD)}
    if not sys.platform.startswith("linux") or wishes.keys() & os.environ.keys():
        return
    os.environ |= wishes  # which the processes of a comparison read when they start
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # another C library may lack it
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD)
        mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD)

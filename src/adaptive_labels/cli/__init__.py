"""The command `alr`. Nothing heavy is imported here: torch and numpy are, inside the commands that need them."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from adaptive_labels.cli import (
    bench,
    compare,
    data,
    inspecting,
    list as list_,
    predict,
    reproduce,
    study,
    suspects,
    train,
)
from adaptive_labels.cli.process import prepare_process
from adaptive_labels.cli.usage import Group, UsageError, usage_sentence
from adaptive_labels.errors import UserError

app = typer.Typer(
    name="alr",
    cls=Group,
    help="Train classifiers on better labels: compare label regularisations on your data, and see what is confused.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


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


list_.register(app)
train.register(app)
compare.register(app)
inspecting.register(app)
suspects.register(app)
predict.register(app)
data.register(app)
study.register(app)
reproduce.register(app)
bench.register(app)


def main() -> None:
    """Run a command; what the user can cause ends with one sentence on standard error and status 2."""
    arguments = sys.argv[1:]
    if "--debug" in arguments:  # anywhere on the line, not only before the command
        arguments.remove("--debug")
        os.environ["ALR_DEBUG"] = "1"  # the processes of a comparison read it too
    prepare_process()
    try:
        sys.exit(_run(arguments or ["--help"]))
    except (UsageError, UserError, OSError) as error:  # whatever else is raised keeps its traceback
        if isinstance(error, BrokenPipeError):
            _end_without_a_reader()
        if os.environ.get("ALR_DEBUG"):
            raise
        typer.echo(f"alr: {_one_sentence(error)}", err=True)
        sys.exit(2)
    except typer.Abort:
        typer.echo("alr: not confirmed, so nothing was done", err=True)
        sys.exit(1)
    except KeyboardInterrupt as stop:
        typer.echo(f"alr: {str(stop) or 'stopped; the same command goes on from where it was'}", err=True)
        sys.exit(130)


def _run(arguments: list[str]) -> int:
    """Call a command and return its exit status.

    This stands in for typer's own way to start, which puts usage errors into four lines and drops what an
    interrupted run has to say.
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
        return usage_sentence(error)
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return str(error) or type(error).__name__


def _end_without_a_reader() -> None:
    """End quietly when the other end of a pipe has gone, as in `alr table runs | head -1`."""
    sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - for Python's own last flush
    sys.exit(1)

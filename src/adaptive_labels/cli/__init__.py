"""The command `alr`. Nothing heavy is imported here: torch and numpy are, inside the commands that need them."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from adaptive_labels.cli import comparing, data, inspecting, listing, predicting, training

app = typer.Typer(
    name="alr",
    help="Train classifiers on better labels: compare label regularisations on your data, and see what is confused.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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
    if debug:
        os.environ["ALR_DEBUG"] = "1"


listing.register(app)
training.register(app)
comparing.register(app)
inspecting.register(app)
predicting.register(app)
data.register(app)


def main() -> None:
    """Run a command; what the user can cause ends with one sentence on standard error and status 2."""
    if "--debug" in sys.argv[1:]:  # anywhere on the line, not only before the command
        sys.argv.remove("--debug")
        os.environ["ALR_DEBUG"] = "1"
    try:
        app()
    except (ValueError, OSError) as error:
        # Bad data, settings, runs and full disks: ours to put into words. All of our own errors are ValueErrors.
        if os.environ.get("ALR_DEBUG"):
            raise
        typer.echo(f"alr: {_one_sentence(error)}", err=True)
        sys.exit(2)
    except KeyboardInterrupt as stop:
        typer.echo(f"alr: {str(stop) or 'stopped; the same command goes on from where it was'}", err=True)
        sys.exit(130)


def _one_sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return str(error) or type(error).__name__

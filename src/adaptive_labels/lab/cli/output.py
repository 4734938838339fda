"""Output shared by several commands, and the folder that they write to."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from adaptive_labels.errors import UserError
from adaptive_labels.lab.tables import visible
from adaptive_labels.lab.words import plural

if TYPE_CHECKING:
    from adaptive_labels.lab.config import RunConfig
    from adaptive_labels.lab.data import Dataset

LONGEST_LINE = 110


def prose(text: str, indent: int = 0) -> None:
    """Print a sentence: on a terminal broken between words, elsewhere on one line for grep."""
    text, margin = visible(text), " " * indent
    if sys.stdout.isatty():
        width = min(shutil.get_terminal_size().columns, LONGEST_LINE)
        typer.echo(textwrap.fill(text, width, initial_indent=margin, subsequent_indent=margin + "  "))
    else:
        typer.echo(margin + text)


def block(text: str) -> None:
    """Print lines that are laid out already, a table for example, with no blank line after them."""
    typer.echo(visible(text).rstrip("\n"))


def show_json(data: Any) -> None:
    from adaptive_labels.lab.files import json_bytes

    typer.echo(json_bytes(data, indent=2).decode())


def clock(seconds: float) -> str:
    """A time in words: 0.5 s, 45 s, 3 min, 2 h 5 min."""
    if seconds < 9.95:
        return f"{max(seconds, 0.1):.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def show_data(dataset: Dataset, config: RunConfig, reasons: Iterable[str]) -> None:
    """The data, what was chosen for it, and the recipe."""
    from adaptive_labels.lab.experiments.build import describe_recipe

    sizes = f"{len(dataset.train):,} train, {len(dataset.validation):,} validation, {len(dataset.test):,} test"
    prose(f"Data: {dataset.name}, {dataset.num_classes} classes of {dataset.kind}s; {sizes}.")
    for note in dataset.notes:
        prose(note, indent=2)
    prose(f"Recipe: {describe_recipe(config)}.")
    for reason in reasons:
        prose(reason, indent=2)


def end_with_failures(failed: int) -> None:
    """Say that runs failed, if any did, and end with status 1."""
    if failed:
        typer.echo(f"alr: {plural(failed, 'run')} failed; the same command does what is missing", err=True)
        raise typer.Exit(1)


def check_output(out: Path) -> None:
    """Refuse a place where no folder can be made; nothing is written, so that a mistyped DATA leaves none behind."""
    existing = next(path for path in (out, *out.absolute().parents) if path.exists() or path.is_symlink())
    if not existing.is_dir():
        raise UserError(f"out is {str(out)!r}, but {existing} is a file, not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"out is {str(out)!r}, but the folder {existing} may not be written to")


def open_output(out: Path) -> None:
    """Make the folder, and write to it once: only then is it known that the disk is not full."""
    from adaptive_labels.lab.files import RunError, write_error

    check_output(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out) as probe:  # without a name: nothing is left, whenever this process ends
            probe.write(b"Is there room on the disk?")
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        raise RunError(str(write_error(out, error)).replace("write", "write to", 1)) from error

"""`alr mistakes`: every example that a run predicted wrong."""

from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_labels.errors import UserError
from adaptive_labels.lab.cli.app import app
from adaptive_labels.lab.cli.options import Run, option
from adaptive_labels.lab.cli.output import block
from adaptive_labels.lab.tables import aligned, as_csv, one_line
from adaptive_labels.lab.words import shorten

if TYPE_CHECKING:
    from adaptive_labels.lab.experiments.mistakes import Mistake

LONGEST_TEXT, LONGEST_NAME = 60, 28


@app.command()
def mistakes(
    run: Run,
    split: Annotated[str, option("test|validation", "Of which split.")] = "test",
    format: Annotated[str, option("text|json|csv", "How to print it.")] = "text",
    output: Annotated[Path | None, option("FILE", "Where to write it.", "-o", "--output")] = None,
) -> None:
    """Every example that a run predicted wrong. With its file and line, the surest first."""
    formats = {"text": _text, "json": _json, "csv": _csv}
    if format not in formats:
        raise UserError(f"format is {format!r}; it must be one of {', '.join(formats)}.")
    from adaptive_labels.lab.experiments.mistakes import find_mistakes
    from adaptive_labels.lab.files import check_replaceable, write_bytes
    from adaptive_labels.lab.runs import RunFolder

    folder = RunFolder(run)
    if output is not None:
        if folder.path.resolve() in output.resolve().parents:
            raise UserError(f"output is {str(output)!r}, in the run's own folder; finished runs never change")
        check_replaceable(output)
    text = formats[format](find_mistakes(folder, split))
    if output is None:
        block(text)
    else:
        write_bytes(output, text.encode("utf-8", errors="replace"))
        typer.echo(f"Mistakes: {output}")


def _json(mistakes: "list[Mistake]") -> str:
    from adaptive_labels.lab.files import json_bytes

    return json_bytes([asdict(mistake) for mistake in mistakes], indent=2).decode() + "\n"


def _csv(mistakes: "list[Mistake]") -> str:
    from adaptive_labels.lab.experiments.mistakes import Mistake

    names = [field.name for field in fields(Mistake)]
    return as_csv(names, [[getattr(mistake, name) for name in names] for mistake in mistakes])


def _text(mistakes: "list[Mistake]") -> str:
    if not mistakes:
        return "No example was predicted wrong.\n"
    rows = [
        [
            f"{mistake.probability:.0%}",
            shorten(one_line(mistake.label), LONGEST_NAME),
            shorten(one_line(mistake.predicted), LONGEST_NAME),
            mistake.source or f"{mistake.split} example {mistake.index}",
            shorten(one_line(mistake.text or ""), LONGEST_TEXT),
        ]
        for mistake in mistakes
    ]
    return "\n".join(aligned(["p", "label", "predicted", "where", "text"], rows, (1, 2, 3, 4))) + "\n"

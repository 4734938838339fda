"""`alr suspects`: training examples whose label looks wrong."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_labels.errors import UserError
from adaptive_labels.lab.cli.app import app
from adaptive_labels.lab.cli.options import Run, count, option
from adaptive_labels.lab.cli.output import block
from adaptive_labels.lab.cli.progress import show_encoding, show_progress
from adaptive_labels.lab.tables import aligned, as_csv, one_line
from adaptive_labels.lab.words import shorten

if TYPE_CHECKING:
    from adaptive_labels.lab.analysis import Suspects

HEARTBEAT_SECONDS = 10.0
LONGEST_TEXT, LONGEST_NAME = 60, 32


@app.command()
def suspects(
    run: Run,
    top: Annotated[int, count("How many.")] = 20,
    score: Annotated[str, option("residual|margin|loss", "What to rank by.")] = "residual",
    format: Annotated[str | None, option("text|json|csv", "How to print it; by default as FILE ends.")] = None,
    output: Annotated[Path | None, option("FILE", "Where to write it, for `alr report`.", "-o", "--output")] = None,
    data: Annotated[str | None, option("DATA", "Where the data is now, if it has moved.")] = None,
) -> None:
    """Training examples whose label looks wrong. The data is read again, and nothing is changed."""
    formats = {"text": _text, "json": _json, "csv": _csv}
    by_name = {".csv": "csv", ".txt": "text"}.get(output.suffix.lower(), "json") if output else "text"
    if format is not None and format not in formats:
        raise UserError(f"format is {format!r}; it must be one of {', '.join(formats)}.")
    if output is not None and run.resolve() in output.resolve().parents:
        raise UserError(f"output is {str(output)!r}, in the run's own folder; finished runs never change")
    from adaptive_labels.lab.experiments.suspects import find_suspects
    from adaptive_labels.lab.files import check_replaceable, write_bytes

    if output is not None:
        check_replaceable(output)  # before the work
    with (
        show_encoding(),
        show_progress(lambda done, total: f"{done:,} of {total:,} training examples", HEARTBEAT_SECONDS) as progress,
    ):
        found = find_suspects(run, top=top, score=score, data=data, progress=progress)
    text = formats[format or by_name](found)
    if output is None:
        block(text)
    else:
        write_bytes(output, text.encode("utf-8", errors="replace"))
        typer.echo(f"Suspects: {output}")


def _json(found: Suspects) -> str:
    from adaptive_labels.lab.analysis import suspects_to_dict
    from adaptive_labels.lab.files import json_bytes

    return json_bytes(suspects_to_dict(found), indent=2).decode() + "\n"


def _csv(found: Suspects) -> str:
    rows = [asdict(suspect) for suspect in found.suspects]
    columns = [name for name in rows[0] if name != "png"]  # a picture is no use in a table
    return as_csv(columns, [[row[name] for name in columns] for row in rows])


def _text(found: Suspects) -> str:
    """A table, the example last because it is longest; then what the figures mean."""
    rows = [
        {
            "score": f"{suspect.score:.2f}",
            "label": shorten(one_line(suspect.label), LONGEST_NAME),
            "suggested": shorten(one_line(suspect.suggested), LONGEST_NAME),
            "p": f"{suspect.suggested_probability:.3f}",
            "where": suspect.source or f"training example {suspect.index}",
            "made wrong": "yes" if suspect.true_label not in (None, suspect.label) else "",
            "text": shorten(one_line(suspect.text or ""), LONGEST_TEXT),
        }
        for suspect in found.suspects
    ]
    wanted = {"made wrong": found.wrong_labels is not None, "text": any(row["text"] for row in rows)}
    columns = [name for name in rows[0] if wanted.get(name, True)]
    left = [i for i, name in enumerate(columns) if name not in ("score", "p")]
    lines = aligned(columns, [[row[name] for name in columns] for row in rows], left)
    return "\n".join([*lines, *_sentences(found)]) + "\n"


def _sentences(found: Suspects) -> list[str]:
    from adaptive_labels.lab.analysis import SCORES

    shown = len(found.suspects)
    lines = [
        f"The {shown:,} most suspicious of {found.examples:,} training examples, by the score {found.ranked_by} "
        f"({SCORES[found.ranked_by]}); p is the probability of the suggested class."
    ]
    if found.average_precision is not None:
        areas = ", ".join(f"{name} {100 * area:.1f}%" for name, area in found.average_precision.items())
        hits = sum(suspect.true_label != suspect.label for suspect in found.suspects)
        lines.append(
            f"{found.wrong_labels:,} labels were made wrong on purpose; {hits} of these {shown} are among them. "
            f"Average precision: {areas}."
        )
    return lines

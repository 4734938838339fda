"""`alr suspects`: training examples whose label looks wrong."""

from __future__ import annotations

import csv
import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_labels.cli.options import at_least_one
from adaptive_labels.cli.show import block
from adaptive_labels.errors import UserError

if TYPE_CHECKING:
    from adaptive_labels.analysis import Suspects

FORMATS = ("text", "json", "csv")
HEARTBEAT_SECONDS = 10.0
_LONGEST_TEXT, _LONGEST_NAME = 60, 32


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "suspects", help="Training examples whose label looks wrong. The data is read again, and nothing is changed."
    )(_suspects)


def _suspects(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    top: Annotated[int, typer.Option(metavar="N", help="How many.", parser=at_least_one)] = 20,
    score: Annotated[str, typer.Option(metavar="residual|margin|loss", help="What to rank by.")] = "residual",
    format: Annotated[
        str | None,
        typer.Option("--format", metavar="text|json|csv", help="How to print it; by the end of FILE's name if given."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where to write it, for a report for example.")
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="DATA", help="Where the data is now, if it has moved.")] = None,
) -> None:
    chosen = format or ("text" if output is None else _format_of(output))
    if chosen not in FORMATS:
        raise UserError(f"format is {chosen!r}; it must be one of {', '.join(FORMATS)}.")
    if output is not None and run.resolve() in output.resolve().parents:
        raise UserError(f"output is {str(output)!r}, in the run's own folder; finished runs never change")

    from adaptive_labels.experiments.suspects import find_suspects

    with _progress() as progress:
        found = find_suspects(run, top=top, score=score, data=data, progress=progress)
    text = {"text": _text, "json": _json, "csv": _csv}[chosen](found)
    if output is None:
        block(text)
        return
    from adaptive_labels.runs import write_bytes

    write_bytes(output, text.encode("utf-8", errors="replace"))
    typer.echo(f"Suspects: {output}")


def _format_of(output: Path) -> str:
    return {".csv": "csv", ".txt": "text"}.get(output.suffix.lower(), "json")


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Progress on standard error: a bar on a terminal, a line every ten seconds elsewhere."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("training examples", total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
        return
    last = time.monotonic()

    def line(done: int, total: int) -> None:
        nonlocal last
        if done < total and time.monotonic() - last > HEARTBEAT_SECONDS:
            last = time.monotonic()
            typer.echo(f"{done:,} of {total:,} training examples", err=True)

    yield line


def _json(found: Suspects) -> str:
    from adaptive_labels.analysis import suspects_to_dict

    return json.dumps(suspects_to_dict(found), indent=2, ensure_ascii=False) + "\n"


def _csv(found: Suspects) -> str:
    file = io.StringIO()
    columns = [name for name in _columns() if name != "png"]  # a picture is no use in a table
    writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(suspect) for suspect in found.suspects)
    return file.getvalue()


def _columns() -> list[str]:
    from dataclasses import fields

    from adaptive_labels.analysis import Suspect

    return [field.name for field in fields(Suspect)]


def _text(found: Suspects) -> str:
    """A table, the example last because it is longest; then what the figures mean."""
    headings = ["score", "label", "suggested", "p", "where", "text"]
    noisy = found.wrong_labels is not None
    rows = [
        [
            f"{suspect.score:.2f}",
            _short(suspect.label, _LONGEST_NAME),
            _short(suspect.suggested, _LONGEST_NAME),
            f"{suspect.suggested_probability:.3f}",
            suspect.source or f"training example {suspect.index}",
            *(["yes" if suspect.true_label != suspect.label else ""] if noisy else []),
            _short(suspect.text or "", _LONGEST_TEXT),
        ]
        for suspect in found.suspects
    ]
    if noisy:
        headings.insert(5, "made wrong")
    if not any(row[-1] for row in rows):
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    figures = {"score", "p"}
    lines = [
        "  ".join(
            cell.rjust(width) if name in figures else cell.ljust(width)
            for name, cell, width in zip(headings, row, widths, strict=True)
        ).rstrip()
        for row in [headings, *rows]
    ]
    return "\n".join([*lines, *_sentences(found)]) + "\n"


def _sentences(found: Suspects) -> list[str]:
    from adaptive_labels.analysis import SCORES

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


def _short(text: str, longest: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"

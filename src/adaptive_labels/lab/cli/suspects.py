"""`alr suspects`: examples whose label looks wrong."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_labels.errors import UserError
from adaptive_labels.lab.cli.app import app
from adaptive_labels.lab.cli.options import READING, TRAINING, argument, option, whole, with_config
from adaptive_labels.lab.cli.output import block, prose
from adaptive_labels.lab.cli.progress import show_progress
from adaptive_labels.lab.tables import aligned, one_line
from adaptive_labels.lab.words import shorten

if TYPE_CHECKING:
    from adaptive_labels.lab.analysis.suspects import Suspects
    from adaptive_labels.lab.config import RunConfig

TOP = 20
LONGEST_TEXT, LONGEST_NAME = 60, 28
_NOISE = tuple(setting for setting in TRAINING if setting[0] == "data.label_noise")


@app.command()
@lambda command: with_config(command, READING + _NOISE)
def suspects(
    config: "RunConfig",
    data: Annotated[str, argument("DATA|RUN", "A data set's name, a path to your own data, or a run's folder.")],
    folds: Annotated[int, option("N", "How many models share the work of judging.", parser=whole)] = 5,
    top: Annotated[str | None, option("N|all", "How many; in a file, by default all that seem wrong.")] = None,
    format: Annotated[str | None, option("text|json|csv", "How to print it; by default as FILE ends.")] = None,
    output: Annotated[Path | None, option("FILE", "Where to write it.", "-o", "--output")] = None,
    report: Annotated[Path | None, option("FILE", "Write a page to look at.")] = None,
) -> None:
    """Examples whose label looks wrong, and how many. Judged by models that did not see them."""
    formats = {"text": _text, "json": _json, "csv": _csv}
    by_name = {".csv": "csv", ".txt": "text"}.get(output.suffix.lower(), "json") if output else "text"
    if format is not None and format not in formats:
        raise UserError(f"format is {format!r}; it must be one of {', '.join(formats)}.")
    listed = _how_many(top, to_file=output is not None or report is not None)
    from adaptive_labels.lab.experiments.build import data_of_run, load_data
    from adaptive_labels.lab.experiments.suspects import find_suspects
    from adaptive_labels.lab.files import check_replaceable, write_bytes
    from adaptive_labels.lab.runs import RunFolder

    run = RunFolder(data) if (Path(data) / "config.json").is_file() else None
    for path in filter(None, (output, report)):
        if run is not None and run.path.resolve() in path.resolve().parents:
            raise UserError(f"output is {str(path)!r}, in the run's own folder; finished runs never change")
        check_replaceable(path)  # before the work
    what = ""

    def tell(step: str, done: int, total: int) -> None:
        nonlocal what
        what = step
        progress(done, total)

    with show_progress(lambda done, total: f"{done} of {total} {what}") as progress:
        if run is not None:
            config, dataset = run.config, data_of_run(run)
        else:
            dataset = load_data(config.data)
            for note in dataset.notes:
                typer.echo(note, err=True)
        suspects = find_suspects(config, dataset, folds=folds, top=listed, progress=tell)
    if report is not None:
        from adaptive_labels.lab.report.sections.suspects import suspects_page

        write_bytes(report, suspects_page(suspects).encode("utf-8", errors="replace"))
    text = formats[format or by_name](suspects)
    if output is not None:
        write_bytes(output, text.encode("utf-8", errors="replace"))
    if output is None and report is None:
        block(text)
        return
    for sentence in sentences(suspects):
        prose(sentence)
    for path in filter(None, (output, report)):
        typer.echo(f"Suspects: {path}")


def _how_many(top: str | None, to_file: bool) -> int | None:
    """How many to list; None for all that are estimated to be wrong."""
    if top == "all" or (top is None and to_file):
        return None
    number = TOP if top is None else whole(top)
    if number < 1:
        raise UserError(f"top is {number}; it must be at least 1, or all")
    return number


def _json(suspects: "Suspects") -> str:
    from adaptive_labels.lab.analysis.suspects import suspects_to_dict
    from adaptive_labels.lab.files import json_bytes

    return json_bytes(suspects_to_dict(suspects), indent=2).decode() + "\n"


def _csv(suspects: "Suspects") -> str:
    from adaptive_labels.lab.analysis.suspects import suspects_to_csv

    return suspects_to_csv(suspects)


def _text(suspects: "Suspects") -> str:
    """What was found in sentences, then a table, the example last because it is longest."""
    rows = [
        {
            "wrong": f"{suspect.probability_wrong:.0%}",
            "label": shorten(one_line(suspect.label), LONGEST_NAME),
            "suggested": shorten(one_line(suspect.suggested), LONGEST_NAME),
            "where": suspect.source or f"{suspect.split} example {suspect.index}",
            "made wrong": "yes" if suspect.true_label not in (None, suspect.label) else "",
            "twice": "yes" if suspect.conflict else "",
            "text": shorten(one_line(suspect.text or ""), LONGEST_TEXT),
        }
        for suspect in suspects.suspects
    ]
    columns = [name for name in (rows[0] if rows else {}) if any(row[name] for row in rows)]
    left = [i for i, name in enumerate(columns) if name != "wrong"]
    lines = aligned(columns, [[row[name] for name in columns] for row in rows], left)
    return "\n".join([*sentences(suspects), "", *lines]) + "\n"


def sentences(suspects: "Suspects") -> list[str]:
    """How many labels are wrong, and what else a reader must know."""
    sure = f"the first {suspects.sure:,} of the whole list are" if suspects.sure else "none is"
    lines = [
        f"About {suspects.estimated_wrong:,} of these {suspects.examples:,} labels are wrong; {sure} wrong with a "
        "probability of 60% or more."
    ]
    if suspects.conflicts:
        lines.append(
            f"{suspects.conflicts:,} of them come first: equal inputs are there with another label (column “twice”)."
        )
    if suspects.rare_classes:
        names = ", ".join(shorten(one_line(name), LONGEST_NAME) for name in suspects.rare_classes[:10])
        more = f" and {len(suspects.rare_classes) - 10:,} more" if len(suspects.rare_classes) > 10 else ""
        lines.append(f"Too rare to be judged, with fewer than 5 examples: {names}{more}.")
    if suspects.average_precision is not None:
        lines.append(
            f"{suspects.wrong_labels:,} labels were made wrong on purpose; average precision in finding them: "
            f"{suspects.average_precision:.1%}."
        )
    return lines

"""`alr predict`: classify texts, tables or images with a finished run or an export."""

import csv
import dataclasses
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from adaptive_labels.errors import UserError
from adaptive_labels.lab.cli.app import app
from adaptive_labels.lab.cli.options import Json, Plugin, argument, count, option
from adaptive_labels.lab.cli.output import show_json
from adaptive_labels.lab.tables import harmless, visible
from adaptive_labels.lab.words import plural

if TYPE_CHECKING:
    from adaptive_labels.lab.experiments.prediction import InputBatch

Rankings = list[list[tuple[str, float]]]
_RUN = "The folder of a finished run, or of an export."
_INPUTS = "Texts, tables, text files, images, folders of images; - is standard input."
_OUTPUT = "Write a CSV: a table's own columns, prediction and probability."


@app.command()
def predict(
    run: Annotated[Path, argument("RUN", _RUN)],
    inputs: Annotated[list[str], argument("INPUT", _INPUTS)],
    top: Annotated[int | None, count("How many classes: 3 to read, 1 in a file.")] = None,
    text_column: Annotated[str, option("NAME", "The text column of a table; by default the run's, or a guess.")] = "",
    output: Annotated[Path | None, option("FILE", _OUTPUT, "-o", "--output")] = None,
    plugin: Plugin = None,
    as_json: Json = False,
) -> None:
    """The trained classifier on texts, tables or images. A text file has one text per line."""
    from adaptive_labels.lab.experiments.export.classifier import load
    from adaptive_labels.lab.experiments.prediction import read_batches
    from adaptive_labels.lab.files import check_replaceable, json_bytes, write_with

    if output is not None:
        check_replaceable(output)  # before the work
    classifier = load(run)
    if text_column:
        classifier = dataclasses.replace(classifier, text_column=text_column)

    def ranked() -> Iterator[tuple["InputBatch", Rankings]]:
        for batch in read_batches(classifier, inputs, sys.stdin.buffer):
            yield batch, classifier.predict(batch.inputs, top or (3 if output is None else 1))

    if output is not None:
        counts: list[int] = []
        write_with(output, lambda file: counts.append(_write(file, ranked())))
        if as_json:
            show_json({"predictions": counts[0], "output": str(output)})
        else:
            typer.echo(f"{plural(counts[0], 'prediction')} {'is' if counts[0] == 1 else 'are'} in {output}.")
        return
    for batch, rankings in ranked():
        for name, ranking in zip(batch.names, rankings, strict=True):
            if as_json:
                classes = [{"class": label, "probability": probability} for label, probability in ranking]
                typer.echo(json_bytes({"input": name, "classes": classes}).decode())  # one line per input
            else:
                words = ", ".join(f"{label} {probability:.1%}" for label, probability in ranking)
                typer.echo(visible(f"{name}: {words}"))


def _write(file: IO[bytes], ranked: "Iterator[tuple[InputBatch, Rankings]]") -> int:
    """Write a line for each input: the columns that its table has, then the predictions. How many there are."""
    names: list[str] = []
    count = 0
    text = io.TextIOWrapper(file, "utf-8", "replace", newline="")
    writer = csv.writer(text, lineterminator="\n")
    for batch, rankings in ranked:
        own: dict[str, Any] = batch.columns or {"input": [harmless(name) for name in batch.names]}
        if not names:
            names = list(own)
            writer.writerow([*names, *_added(len(rankings[0]) if rankings else 1, names)])
        if names != list(own):
            raise UserError("the inputs have different columns, which do not fit into one file: give one at a time")
        for *cells, ranking in zip(*own.values(), rankings, strict=True):
            predicted = [part for label, probability in ranking for part in (harmless(label), probability)]
            writer.writerow([*cells, *predicted])
        count += len(rankings)
    text.flush()
    text.detach()
    return count


def _added(top: int, taken: list[str]) -> list[str]:
    """The names of the columns that are added; a table may have one of such a name itself."""
    ends = ["", *(f"_{place}" for place in range(2, top + 1))]
    wanted = [f"{word}{end}" for end in ends for word in ("prediction", "probability")]
    return [f"{name} (new)" if name in taken else name for name in wanted]

"""`alr predict`: classify texts, tables or images with a finished run."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import typer

from adaptive_labels.lab.cli.app import app
from adaptive_labels.lab.cli.options import Json, Plugin, Run, argument, count, option
from adaptive_labels.lab.cli.output import show_json
from adaptive_labels.lab.cli.progress import show_encoding
from adaptive_labels.lab.words import plural


@app.command()
def predict(
    run: Run,
    inputs: Annotated[list[str], argument("INPUT", "Texts, tables, text files, image files; - is standard input.")],
    top: Annotated[int, count("How many classes to show.")] = 3,
    text_column: Annotated[str, option("NAME", "The text column of a table; by default the run's, or a guess.")] = "",
    output: Annotated[Path | None, option("FILE", "Write a CSV with all probabilities.", "-o", "--output")] = None,
    plugin: Plugin = None,
    as_json: Json = False,
) -> None:
    """The trained classifier on texts, tables or image files. A text file has one text per line."""
    from adaptive_labels.lab.experiments.prediction import Predictor
    from adaptive_labels.lab.files import check_replaceable, json_bytes, write_bytes
    from adaptive_labels.lab.tables import as_csv, visible

    if output is not None:
        check_replaceable(output)  # before the work
    predictor = Predictor.load(run)
    if text_column:
        predictor = dataclasses.replace(predictor, text_column=text_column)
    shown, given = predictor.read(inputs, sys.stdin)
    with show_encoding() as progress:
        probabilities = predictor.probabilities(given, progress)
    rankings = predictor.largest(probabilities, top)
    if output is not None:
        rows = [
            [name, *ranking[0], *row]
            for name, ranking, row in zip(shown, rankings, probabilities.tolist(), strict=True)
        ]
        write_bytes(
            output, as_csv(["input", "class", "probability", *predictor.classes], rows).encode(errors="replace")
        )
        if as_json:
            show_json({"predictions": len(rows), "output": str(output)})
        else:
            typer.echo(f"{plural(len(rows), 'prediction')} {'is' if len(rows) == 1 else 'are'} in {output}.")
        return
    for name, ranking in zip(shown, rankings, strict=True):
        if as_json:
            classes = [{"class": label, "probability": probability} for label, probability in ranking]
            typer.echo(json_bytes({"input": name, "classes": classes}).decode())  # one line per input
        else:
            words = ", ".join(f"{label} {probability:.1%}" for label, probability in ranking)
            typer.echo(visible(f"{name}: {words}"))

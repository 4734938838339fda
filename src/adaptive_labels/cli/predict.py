"""`alr predict`: a trained classifier at work."""

import json
import sys
from typing import Annotated

import typer

from adaptive_labels.cli.app import app
from adaptive_labels.cli.options import Json, Run, argument, count


@app.command()
def predict(
    run: Run,
    inputs: Annotated[list[str], argument("INPUT", "Texts, text files, image files; - is standard input.")],
    top: Annotated[int, count("How many classes to show.")] = 3,
    as_json: Json = False,
) -> None:
    """The trained classifier on texts or image files. A text file has one text per line."""
    from adaptive_labels.experiments.prediction import Predictor

    predictor = Predictor.load(run)
    shown, given = predictor.read(inputs, sys.stdin)
    for name, ranking in zip(shown, predictor.predict(given, top), strict=True):
        if as_json:
            classes = [{"class": label, "probability": probability} for label, probability in ranking]
            typer.echo(json.dumps({"input": name, "classes": classes}, ensure_ascii=False))  # one line per input
        else:
            words = ", ".join(f"{label} {probability:.1%}" for label, probability in ranking)
            typer.echo(f"{name}: {words}")

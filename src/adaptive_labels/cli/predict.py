"""`alr predict`: a trained classifier at work."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from adaptive_labels.cli.options import Json, at_least_one


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("predict", help="The trained classifier on texts or image files. A text file has a text a line.")(
        _predict
    )


def _predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT", help="Texts, text files, image files; - is standard input.")
    ],
    top: Annotated[int, typer.Option(metavar="N", help="How many classes to show.", parser=at_least_one)] = 3,
    as_json: Json = False,
) -> None:
    from adaptive_labels.experiments.prediction import Predictor

    predictor = Predictor.load(run)
    shown, given = predictor.read(inputs, sys.stdin)
    for name, ranking in zip(shown, predictor.predict(given, top), strict=True):
        if as_json:
            classes = [{"class": label, "probability": probability} for label, probability in ranking]
            typer.echo(json.dumps({"input": name, "classes": classes}, ensure_ascii=False))
        else:
            words = ", ".join(f"{label} {probability:.1%}" for label, probability in ranking)
            typer.echo(f"{name}: {words}")

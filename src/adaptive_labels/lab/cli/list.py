"""`alr list`: the names of methods, models, data sets and recipes."""

from typing import Annotated

import typer

from adaptive_labels.errors import UserError, did_you_mean
from adaptive_labels.lab.cli.app import app
from adaptive_labels.lab.cli.options import Json
from adaptive_labels.lab.cli.output import show_json
from adaptive_labels.lab.tables import aligned

KINDS = ("methods", "models", "datasets", "recipes")


@app.command("list")
def list_names(kind: Annotated[str, typer.Argument(metavar="|".join(KINDS))], as_json: Json = False) -> None:
    """What there is: methods, models, datasets, recipes."""
    if kind not in KINDS:
        near = did_you_mean(kind, KINDS)
        raise UserError(f"there is no list of {kind!r}; there are {', '.join(KINDS)}{near}")
    entries = _entries(kind)
    if as_json:
        show_json([{"name": name, "description": words} for name, words in entries])
    else:
        typer.echo("\n".join(aligned((), entries, left=(0, 1))))


def _entries(kind: str) -> list[tuple[str, str]]:
    if kind == "methods":
        from adaptive_labels.losses import METHODS

        return [(name, method.description) for name, method in METHODS.items()]
    if kind == "models":
        from adaptive_labels.lab.models import LIBRARIES, MODELS

        models = [(name, f"{entry.kind}: {entry.description}") for name, entry in MODELS.items()]
        return [*models, *((f"{prefix}:NAME", words) for prefix, (words, _) in LIBRARIES.items())]
    if kind == "recipes":
        from adaptive_labels.lab.paper.recipes import list_recipes

        return list_recipes()
    from adaptive_labels.lab.data import DATASETS

    return [(name, entry.description) for name, entry in DATASETS.items()]

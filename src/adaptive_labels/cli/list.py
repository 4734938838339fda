"""`alr list`: what there is."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from adaptive_labels.cli.options import Json
from adaptive_labels.errors import UserError

KINDS = ("methods", "models", "datasets", "recipes")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("list", help="What there is: methods, models, datasets, recipes.")(_list)


def _list(
    kind: Annotated[str, typer.Argument(metavar="methods|models|datasets|recipes")],
    as_json: Json = False,
) -> None:
    if kind not in KINDS:
        raise UserError(f"there is no list of {kind!r}; there are {', '.join(KINDS)}")
    entries = _entries(kind)
    if as_json:
        typer.echo(
            json.dumps([{"name": name, "description": words} for name, words in entries], indent=2, ensure_ascii=False)
        )
        return
    width = max(len(name) for name, _ in entries)
    for name, words in entries:
        typer.echo(f"{name:<{width}}  {words}")


def _entries(kind: str) -> list[tuple[str, str]]:
    if kind == "methods":
        from adaptive_labels.losses import METHODS

        return [(name, method.description) for name, method in METHODS.items()]
    if kind == "models":
        from adaptive_labels.models import MODELS
        from adaptive_labels.models.external import LIBRARIES

        own = [(name, f"{entry.kind}: {entry.description}") for name, entry in MODELS.items()]
        return [*own, *((f"{prefix}:NAME", f"image: {words}") for prefix, words in LIBRARIES.items())]
    if kind == "recipes":
        from adaptive_labels.paper.recipes import list_recipes

        return list_recipes()
    from adaptive_labels.data import DATASETS

    return [(name, entry.description) for name, entry in DATASETS.items()]

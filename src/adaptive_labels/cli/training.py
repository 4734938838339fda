"""`alr train`: one run."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_labels.cli.options import Data, DryRun, Json, Out, with_config

if TYPE_CHECKING:
    from adaptive_labels.config import RunConfig


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("train", help="One run, into a folder of its own; the same command goes on where it stopped.")(_train)


@with_config
def _train(
    data: Data,
    config: RunConfig,
    method: Annotated[str, typer.Option(help="The label regularisation.", metavar="NAME")] = "alr",
    seed: Annotated[int, typer.Option(help="Of the weights, the shuffling and dropout.", metavar="N")] = 0,
    out: Out = Path("runs"),
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    import json

    from adaptive_labels import build
    from adaptive_labels.cli.show import show_data, show_metrics
    from adaptive_labels.config import to_dict
    from adaptive_labels.execution import execute
    from adaptive_labels.runs import run_id
    from adaptive_labels.training.progress import SilentReporter, make_reporter

    config = dataclasses.replace(config, seed=seed, method=dataclasses.replace(config.method, name=method))
    dataset = build.load_data(config.data)
    config, choice = build.resolve_for(config, dataset)
    if not as_json:
        show_data(dataset, choice, config)
    folder = out / run_id(to_dict(config))
    if dry_run:
        if as_json:
            typer.echo(json.dumps({"folder": str(folder), "config": to_dict(config)}, indent=2))
        else:
            typer.echo(f"Would train {method} (seed {seed}) into {folder}.")
        return
    reporter = SilentReporter() if as_json else make_reporter(sys.stdout)
    run = execute(config, build.prepare(config, dataset), out, reporter, sys.argv)
    result = run.result or {}
    if as_json:
        typer.echo(json.dumps({"folder": str(run.path), **result}, indent=2))
    else:
        show_metrics(run.path, result)
    if result.get("status") == "diverged":
        raise typer.Exit(1)

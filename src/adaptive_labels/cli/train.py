"""`alr train`: one run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_labels.cli.options import Data, DryRun, Json, Out, whole, with_config
from adaptive_labels.cli.output import check_output, open_output
from adaptive_labels.cli.show import prose, show_data, show_metrics

if TYPE_CHECKING:
    from adaptive_labels.config import RunConfig
    from adaptive_labels.experiments.build import Prepared


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("train", help="One run, into a folder of its own. The same command goes on where it stopped.")(_train)


@with_config
def _train(
    data: Data,
    config: RunConfig,
    method: Annotated[str, typer.Option(help="The label regularisation.", metavar="NAME")] = "alr",
    seed: Annotated[
        int, typer.Option(help="Of the weights, the shuffling and dropout.", metavar="N", parser=whole)
    ] = 0,
    out: Out = Path("runs"),
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    check_output(out)
    from adaptive_labels.config import to_dict
    from adaptive_labels.experiments import build
    from adaptive_labels.experiments.teachers import describe
    from adaptive_labels.runs import find_run
    from adaptive_labels.training.precision import check_precision, choose_device

    check_precision(config.training.precision, choose_device(config.training.device))
    dataset = build.load_data(config.data)
    config, choice = build.resolve_for(config, dataset)
    if not as_json:
        show_data(dataset, choice, config)
        if (more := describe(config)) is not None:
            prose(more, indent=2)
    folder = find_run(out, to_dict(config))
    if dry_run:
        _show_dry(folder, config, as_json)
        return
    # The loop brings torch's compiler, which takes as long to import as torch itself.
    from adaptive_labels.experiments.run import execute
    from adaptive_labels.training.progress import SilentReporter, make_reporter

    open_output(out)
    finished = (folder / "result.json").exists()
    prepared = build.prepare(config, dataset)
    if not finished:
        _train_first(config, prepared, out, quiet=as_json)
    if finished and not as_json:
        typer.echo("This run is finished already; nothing was trained.")
    reporter = SilentReporter() if as_json or finished else make_reporter(sys.stdout)
    run = execute(config, prepared, out, reporter, sys.argv)
    result = run.result or {}
    if as_json:
        typer.echo(json.dumps({"folder": str(run.path), **result}, indent=2))
    else:
        show_metrics(run.path, result)
    if result.get("status") == "diverged":
        raise typer.Exit(1)


def _train_first(config: RunConfig, prepared: Prepared, out: Path, quiet: bool) -> None:
    """Do the runs that this one learns from, each with a line that says so."""
    from adaptive_labels.config import to_dict
    from adaptive_labels.experiments.run import execute
    from adaptive_labels.experiments.teachers import needed_runs
    from adaptive_labels.runs import find_run
    from adaptive_labels.training.progress import SilentReporter, make_reporter

    for needed in needed_runs(config):
        folder = find_run(out, to_dict(needed))
        if (folder / "result.json").exists():
            if not quiet:
                prose(f"Learns from {folder}, which is finished already.")
            continue
        if not quiet:
            prose(f"First the run to learn from: {needed.method.name}, {needed.model.name}, into {folder}.")
        execute(needed, prepared, out, SilentReporter() if quiet else make_reporter(sys.stdout), sys.argv)


def _show_dry(folder: Path, config: RunConfig, as_json: bool) -> None:
    from adaptive_labels.config import to_dict
    from adaptive_labels.experiments.teachers import needed_runs
    from adaptive_labels.runs import find_run

    if as_json:
        typer.echo(json.dumps({"folder": str(folder), "config": to_dict(config)}, indent=2))
    else:
        for needed in needed_runs(config):
            typer.echo(f"Would need {find_run(folder.parent, to_dict(needed))} first.")
        typer.echo(f"Would train {config.method.name} (seed {config.seed}) into {folder}.")

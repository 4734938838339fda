"""`alr train`: one run."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_labels.cli.app import app
from adaptive_labels.cli.options import Data, DryRun, Json, Out, option, whole, with_config
from adaptive_labels.cli.output import check_output, clock, counted, open_output, prose, show_data, show_json

if TYPE_CHECKING:
    from adaptive_labels.config import RunConfig
    from adaptive_labels.experiments.build import Prepared


@app.command()
@with_config
def train(
    data: Data,
    config: "RunConfig",
    method: Annotated[str, option("NAME", "The label regularisation.")] = "alr",
    seed: Annotated[int, option("N", "Of the weights, the shuffling and dropout.", parser=whole)] = 0,
    out: Out = Path("runs"),
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """One run, into a folder of its own. The same command goes on where it stopped."""
    check_output(out)
    from adaptive_labels.experiments import build
    from adaptive_labels.experiments.teachers import describe
    from adaptive_labels.training.precision import check_precision, choose_device

    check_precision(config.training.precision, choose_device(config.training.device))
    dataset = build.load_data(config.data)
    config, reasons = build.resolve_for(config, dataset)
    if not as_json:
        show_data(dataset, config, (*reasons, *filter(None, [describe(config)])))
    if dry_run:
        _show_dry(config, out, as_json)
        return
    # The loop brings torch's compiler, which takes as long to import as torch itself.
    from adaptive_labels.experiments.run import execute
    from adaptive_labels.training.progress import SilentReporter, make_reporter

    open_output(out)
    finished = (_folder(config, out) / "result.json").exists()
    prepared = build.prepare(config, dataset)
    if not finished:
        _train_first(config, prepared, out, quiet=as_json)
    elif not as_json:
        typer.echo("This run is finished already; nothing was trained.")
    reporter = SilentReporter() if as_json or finished else make_reporter(sys.stdout)
    run = execute(config, prepared, out, reporter, sys.argv)
    result = run.result or {}
    if as_json:
        show_json({"folder": str(run.path), **result})
    else:
        _show_result(run.path, result)
    if result.get("status") == "diverged":
        raise typer.Exit(1)


def _folder(config: "RunConfig", out: Path) -> Path:
    from adaptive_labels.config import to_dict
    from adaptive_labels.runs import find_run

    return find_run(out, to_dict(config))


def _show_dry(config: "RunConfig", out: Path, as_json: bool) -> None:
    from adaptive_labels.config import to_dict
    from adaptive_labels.experiments.teachers import needed_runs

    folder = _folder(config, out)
    if as_json:
        show_json({"folder": str(folder), "config": to_dict(config)})
        return
    for needed in needed_runs(config):
        typer.echo(f"Would need {_folder(needed, out)} first.")
    typer.echo(f"Would train {config.method.name} (seed {config.seed}) into {folder}.")


def _train_first(config: "RunConfig", prepared: "Prepared", out: Path, quiet: bool) -> None:
    """Do the runs that this one learns from, and say so for each."""
    from adaptive_labels.experiments.run import execute
    from adaptive_labels.experiments.teachers import needed_runs
    from adaptive_labels.training.progress import SilentReporter, make_reporter

    for needed in needed_runs(config):
        folder = _folder(needed, out)
        finished = (folder / "result.json").exists()
        if not quiet and finished:
            prose(f"Learns from {folder}, which is finished already.")
        elif not quiet:
            prose(f"First the run to learn from: {needed.method.name}, {needed.model.name}, into {folder}.")
        if not finished:
            execute(needed, prepared, out, SilentReporter() if quiet else make_reporter(sys.stdout), sys.argv)


def _show_result(folder: Path, result: Mapping[str, Any]) -> None:
    """A run's result in a few lines."""
    if result.get("status") == "diverged":
        typer.echo(f"alr: the run diverged: {result['reason']}; it is recorded in {folder}", err=True)
        return
    train = result["metrics"]["train"]
    for split in ("train", "validation", "test"):
        metrics = result["metrics"][split]
        top5 = f", top-5 {metrics['top5']:.2%}" if "top5" in metrics else ""
        line = f"{split}: accuracy {metrics['top1']:.2%}{top5}, NLL {metrics['nll']:.3f}"
        if split != "train":
            line += f", ECE {metrics['ece']:.3f} (15 bins; {metrics['ece_scaled']:.3f} after temperature scaling)"
        typer.echo(line)
    if "wrong_labels" in train:
        typer.echo(
            f"noise: of {train['wrong_labels']:,.0f} labels made wrong, {train['memorised']:.1%} were memorised, "
            f"{train['recovered']:.1%} predicted as they were before"
        )
    _show_networks(result)
    typer.echo(f"{counted(result['epochs'], 'epoch')} in {clock(result['seconds'])}. Run: {folder}")


def _show_networks(result: Mapping[str, Any]) -> None:
    """What a run needed beside the network that predicts: its peers with their figures, or its teacher."""
    for number, peer in enumerate(result.get("peers", {}).get("networks", ()), 1):
        metrics = peer["metrics"]
        figures = f"validation {metrics['validation']['top1']:.2%}, test {metrics['test']['top1']:.2%}"
        typer.echo(
            f"network {number}: {peer['model']}, {figures}" + (" (the one that predicts)" if number == 1 else "")
        )
    if "teacher" in result:
        teacher, top1 = result["teacher"], result["teacher"]["top1"]
        figures = f"validation {top1['validation']:.2%}, test {top1['test']:.2%}"
        typer.echo(f"teacher: {teacher['model']}, {figures} ({teacher['run']})")
    if "teacher" in result or "peers" in result:
        own, needed = result["parameters"]["network"], result["parameters"]["training"]
        typer.echo(
            f"parameters: {own:,} in the network that predicts, {needed:,} needed in training "
            f"({needed / own:.3g} times as many)"
        )

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
    from adaptive_labels.config import to_dict
    from adaptive_labels.experiments import build
    from adaptive_labels.experiments.teachers import describe, needed_runs
    from adaptive_labels.runs import find_run
    from adaptive_labels.training.precision import check_precision, choose_device

    check_precision(config.training.precision, choose_device(config.training.device))
    dataset = build.load_data(config.data)
    config, reasons = build.resolve_for(config, dataset)
    folder = find_run(out, to_dict(config))
    learned_from = [(needed, find_run(out, to_dict(needed))) for needed in needed_runs(config)]
    if not as_json:
        show_data(dataset, config, (*reasons, *filter(None, [describe(config)])))
    if dry_run and as_json:
        show_json({"folder": str(folder), "config": to_dict(config)})
    elif dry_run:
        for _, first in learned_from:
            typer.echo(f"Would need {first} first.")
        typer.echo(f"Would train {config.method.name} (seed {config.seed}) into {folder}.")
    else:
        open_output(out)
        result = _train(config, folder, learned_from, build.prepare(config, dataset), quiet=as_json)
        if as_json:
            show_json({"folder": str(folder), **result})
        else:
            _show_result(folder, result)
        if result.get("status") == "diverged":
            raise typer.Exit(1)


def _train(
    config: "RunConfig",
    folder: Path,
    learned_from: list[tuple["RunConfig", Path]],
    prepared: "Prepared",
    quiet: bool,
) -> dict[str, Any]:
    """Do the runs that this one learns from, then this one, and say so for each; its result."""
    # The loop brings torch's compiler, which takes as long to import as torch itself.
    from adaptive_labels.experiments.run import execute
    from adaptive_labels.training.progress import SilentReporter, make_reporter

    finished, say = _is_finished(folder), (lambda _: None) if quiet else prose
    for needed, first in () if finished else learned_from:
        if _is_finished(first):
            say(f"Learns from {first}, which is finished already.")
        else:
            say(f"First the run to learn from: {needed.method.name}, {needed.model.name}, into {first}.")
            execute(needed, prepared, first.parent, SilentReporter() if quiet else make_reporter(sys.stdout), sys.argv)
    if finished:
        say("This run is finished already; nothing was trained.")
    reporter = SilentReporter() if quiet or finished else make_reporter(sys.stdout)
    return execute(config, prepared, folder.parent, reporter, sys.argv).result or {}


def _is_finished(folder: Path) -> bool:
    return (folder / "result.json").exists()


def _show_result(folder: Path, result: Mapping[str, Any]) -> None:
    """A run's result in a few lines; also what it needed beside the network that predicts: peers, or a teacher."""
    if result.get("status") == "diverged":
        typer.echo(f"alr: the run diverged: {result['reason']}; it is recorded in {folder}", err=True)
        return
    for split, metrics in result["metrics"].items():
        line = f"{split}: accuracy {metrics['top1']:.2%}"
        line += f", top-5 {metrics['top5']:.2%}" if "top5" in metrics else ""
        line += f", NLL {metrics['nll']:.3f}"
        if split != "train":
            line += f", ECE {metrics['ece']:.3f} (15 bins; {metrics['ece_scaled']:.3f} after temperature scaling)"
        typer.echo(line)
    train = result["metrics"]["train"]
    if "wrong_labels" in train:
        typer.echo(
            f"noise: of {train['wrong_labels']:,.0f} labels made wrong, {train['memorised']:.1%} were memorised, "
            f"{train['recovered']:.1%} predicted as they were before"
        )
    for number, peer in enumerate(result.get("peers", {}).get("networks", ()), 1):
        top1 = {split: metrics["top1"] for split, metrics in peer["metrics"].items()}
        which = " (the one that predicts)" if number == 1 else ""
        typer.echo(f"network {number}: {peer['model']}, {_accuracies(top1)}{which}")
    if teacher := result.get("teacher"):
        typer.echo(f"teacher: {teacher['model']}, {_accuracies(teacher['top1'])} ({teacher['run']})")
    if "teacher" in result or "peers" in result:
        own, needed = result["parameters"]["network"], result["parameters"]["training"]
        typer.echo(
            f"parameters: {own:,} in the network that predicts, {needed:,} needed in training "
            f"({needed / own:.3g} times as many)"
        )
    typer.echo(f"{counted(result['epochs'], 'epoch')} in {clock(result['seconds'])}. Run: {folder}")


def _accuracies(top1: Mapping[str, float]) -> str:
    return f"validation {top1['validation']:.2%}, test {top1['test']:.2%}"

"""`alr train`: one run."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_labels.errors import UserError
from adaptive_labels.lab.cli.app import app
from adaptive_labels.lab.cli.devices import run_on
from adaptive_labels.lab.cli.options import Data, DryRun, Json, Out, Plugin, count, option, whole, with_config
from adaptive_labels.lab.cli.output import check_output, clock, open_output, prose, show_data, show_json
from adaptive_labels.lab.cli.progress import show_encoding
from adaptive_labels.lab.machine import launched
from adaptive_labels.lab.words import plural

if TYPE_CHECKING:
    from adaptive_labels.lab.config import RunConfig
    from adaptive_labels.lab.experiments.build import Prepared
    from adaptive_labels.lab.experiments.plan import Plan


@app.command()
@with_config
def train(
    data: Data,
    config: "RunConfig",
    method: Annotated[str, option("NAME", "The label regularisation.")] = "alr",
    seed: Annotated[int, option("N", "Of the weights, the shuffling and dropout.", parser=whole)] = 0,
    devices: Annotated[int, count("Processes that share each batch, here, with a GPU each if there are.")] = 1,
    out: Out = Path("runs"),
    plugin: Plugin = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """One run, into a folder of its own. The same command goes on where it stopped."""
    _, world = launched()
    if devices > 1 and world not in (1, devices):
        raise UserError(f"--devices is {devices}, but torchrun has started {world} processes: leave it out")
    if devices > 1 and world == 1 and not dry_run:
        raise typer.Exit(run_on(devices))
    check_output(out)
    from adaptive_labels.lab.experiments import build
    from adaptive_labels.lab.experiments.plan import plan_one
    from adaptive_labels.lab.experiments.teachers import describe_networks
    from adaptive_labels.lab.training.precision import check_precision, choose_device

    check_precision(config.training.precision, choose_device(config.training.device))
    plan = plan_one(config, out)
    (own,) = plan.own
    if not as_json:
        show_data(plan.dataset, own.config, (*plan.notes, *filter(None, [describe_networks(own.config)])))
    if dry_run:
        _show_dry(plan, as_json)
        return
    open_output(out)
    with show_encoding() as progress:
        prepared = build.prepare_data(own.config, plan.dataset, progress)
    result = _train(plan, prepared, quiet=as_json)
    if as_json:
        show_json({"folder": str(own.folder), **result})
    else:
        _show_result(own.folder, result)
    if result["status"] == "diverged":
        raise typer.Exit(1)


def _show_dry(plan: "Plan", as_json: bool) -> None:
    from adaptive_labels.lab.config import to_dict

    (own,) = plan.own
    if as_json:
        show_json({"folder": str(own.folder), "config": to_dict(own.config)})
        return
    for entry in plan.first:
        typer.echo(f"Would need {entry.folder} first.")
    typer.echo(f"Would train {own.config.method.name} (seed {own.config.seed}) into {own.folder}.")


def _train(plan: "Plan", prepared: "Prepared", quiet: bool) -> dict[str, Any]:
    """Do the run of a plan, and before it those that it learns from, and say so for each; its result."""
    # The loop brings torch's compiler, which takes as long to import as torch itself.
    from adaptive_labels.lab.experiments.run import execute
    from adaptive_labels.lab.training import processes
    from adaptive_labels.lab.training.progress import Reporter, make_reporter

    say = (lambda _: None) if quiet else prose
    (own,) = plan.own
    entries = plan.todo or plan.own
    if processes.world() > 1:
        say(_sharing(own.config, prepared, processes.world()))
    if own.is_finished:
        say("This run is finished already; nothing was trained.")
    for entry in plan.first if plan.todo else ():
        if entry.is_finished:
            say(f"Learns from {entry.folder}, which is finished already.")
    for entry in entries:
        if entry is not own:
            method, model = entry.config.method.name, entry.config.model.name
            say(f"First the run to learn from: {method}, {model}, into {entry.folder}.")
        reporter = Reporter() if quiet or own.is_finished else make_reporter(sys.stdout)
        result = execute(plan.job(entry, sys.argv), prepared, reporter).result
    assert result is not None  # it is finished
    return result


def _sharing(config: "RunConfig", prepared: "Prepared", world: int) -> str:
    """How several processes share a batch, in a sentence or two."""
    from adaptive_labels.lab.experiments.build import has_batch_norm

    words = f"{world} processes share each batch of {config.training.batch_size} examples."
    if has_batch_norm(config, prepared) and not config.training.sync_batchnorm:
        words += " Batch normalisation is by each one's slice; --set sync_batchnorm=true makes it by the whole batch."
    return words


def _show_result(folder: Path, result: Mapping[str, Any]) -> None:
    """A run's result in a few lines; also what it needed besides the network that predicts: peers, or a teacher."""
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
    typer.echo(f"{plural(result['epochs'], 'epoch')} in {clock(result['seconds'])}. Run: {folder}")


def _accuracies(top1: Mapping[str, float]) -> str:
    return f"validation {top1['validation']:.2%}, test {top1['test']:.2%}"

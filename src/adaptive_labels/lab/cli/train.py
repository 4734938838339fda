"""`alr train`: one run."""

import sys
from collections.abc import Mapping, Sequence
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
from adaptive_labels.lab.words import counted

if TYPE_CHECKING:
    from adaptive_labels.lab.config import RunConfig
    from adaptive_labels.lab.experiments.build import Prepared


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
    from adaptive_labels.lab.training import processes

    processes.start()
    try:
        if processes.rank() == 0:
            _lead(config, out, dry_run, as_json)
        elif not dry_run:
            try:
                _follow()
            except (UserError, OSError) as error:
                if not getattr(error, "told", False):  # by the first process
                    typer.echo(f"alr: process {processes.rank()}: {error}", err=True)
                raise
    finally:
        processes.stop()


def _follow() -> None:
    """Take part in what the first process has planned; it alone reads and writes runs, and speaks."""
    from adaptive_labels.lab.experiments.run import execute, open_prepared
    from adaptive_labels.lab.training import processes
    from adaptive_labels.lab.training.progress import SilentReporter

    planned: tuple[list[RunConfig], Path] = processes.from_first(lambda: ([], Path()))
    configs, out = planned
    prepared = open_prepared(configs[-1])
    for config in configs:
        execute(config, prepared, out, SilentReporter(), sys.argv)


def _lead(config: "RunConfig", out: Path, dry_run: bool, as_json: bool) -> None:
    """Plan, train and show a run, alone or as the first of several processes."""
    check_output(out)
    from adaptive_labels.lab.config import to_dict
    from adaptive_labels.lab.experiments import build
    from adaptive_labels.lab.experiments.teachers import describe, needed_runs
    from adaptive_labels.lab.runs import RunError, run_path
    from adaptive_labels.lab.training.precision import check_precision, choose_device

    check_precision(config.training.precision, choose_device(config.training.device))
    dataset = build.load_data(config.data, config.model)
    config, reasons = build.resolve_for(config, dataset)
    runs = (*needed_runs(config), config)
    *needed, folder = (run_path(out, run) for run in runs)
    if not as_json:
        show_data(dataset, config, (*reasons, *filter(None, [describe(config)])))
    if dry_run and as_json:
        show_json({"folder": str(folder), "config": to_dict(config)})
    elif dry_run:
        for first in needed:
            typer.echo(f"Would need {first} first.")
        typer.echo(f"Would train {config.method.name} (seed {config.seed}) into {folder}.")
    else:
        open_output(out)
        with show_encoding():
            prepared = build.prepare(config, dataset)
        result = _train(runs, out, prepared, quiet=as_json)
        if as_json:
            show_json({"folder": str(folder), **result})
        else:
            try:
                _show_result(folder, result)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise RunError(f"{folder / 'result.json'} lacks what every run has ({error}).") from error
        if result.get("status") == "diverged":
            raise typer.Exit(1)


def _train(runs: Sequence["RunConfig"], out: Path, prepared: "Prepared", quiet: bool) -> dict[str, Any]:
    """Do the last of these runs, and before it those that it learns from, and say so for each; its result."""
    # The loop brings torch's compiler, which takes as long to import as torch itself.
    from adaptive_labels.lab.experiments.plan import is_finished
    from adaptive_labels.lab.experiments.run import execute
    from adaptive_labels.lab.runs import run_path
    from adaptive_labels.lab.training import processes
    from adaptive_labels.lab.training.progress import SilentReporter, make_reporter

    say = (lambda _: None) if quiet else prose
    config, finished = runs[-1], is_finished(out, runs[-1])
    missing = [run for run in runs if run == config or not (finished or is_finished(out, run))]
    processes.from_first(lambda: (missing, out))
    if processes.world() > 1:
        say(_sharing(config, prepared, processes.world()))
    for run in () if finished else runs[:-1]:
        folder = run_path(out, run)
        if run in missing:
            say(f"First the run to learn from: {run.method.name}, {run.model.name}, into {folder}.")
            execute(run, prepared, out, SilentReporter() if quiet else make_reporter(sys.stdout), sys.argv)
        else:
            say(f"Learns from {folder}, which is finished already.")
    if finished:
        say("This run is finished already; nothing was trained.")
    reporter = SilentReporter() if quiet or finished else make_reporter(sys.stdout)
    return execute(config, prepared, out, reporter, sys.argv).result or {}


def _sharing(config: "RunConfig", prepared: "Prepared", world: int) -> str:
    """How several processes share a batch, in a sentence or two."""
    from adaptive_labels.lab.experiments.build import has_batch_norm

    words = f"{world} processes share each batch of {config.training.batch_size} examples."
    if has_batch_norm(config, prepared) and not config.training.sync_batchnorm:
        words += " Batch normalisation is by each one's share; --set sync_batchnorm=true makes it by the whole batch."
    return words


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

"""`alr tune`: choose a method's main option on validation; only the chosen value gets a test figure."""

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_labels.lab.cli.app import app
from adaptive_labels.lab.cli.compare import carry_out, check_shared, trainer
from adaptive_labels.lab.cli.options import (
    Budget,
    Data,
    DryRun,
    Json,
    Out,
    Plugin,
    Workers,
    count,
    option,
    with_config,
    with_executor,
)
from adaptive_labels.lab.cli.output import check_output, prose, show_json
from adaptive_labels.lab.words import plural

if TYPE_CHECKING:
    from adaptive_labels.lab.analysis.statistics import Summary
    from adaptive_labels.lab.config import RunConfig
    from adaptive_labels.lab.jobs import JobExecutor
    from adaptive_labels.lab.runs import RunFolder


@app.command()
@with_config
@with_executor
def tune(
    data: Data,
    config: "RunConfig",
    executor: "JobExecutor | None",
    method: Annotated[str, option("NAME", "The method to tune.")],
    trials: Annotated[int, count("How many values of the method's main option to try.")] = 5,
    seeds: Annotated[int, count("How many seeds for each value.")] = 1,
    workers: Workers = None,
    time_budget: Budget = None,
    out: Out = Path("runs"),
    plugin: Plugin = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """A method's main option, tuned on validation. Every method gets the same trials."""
    check_shared(config, method, "--method NAME")
    check_output(out)
    from adaptive_labels.lab.experiments.comparison import make_plan
    from adaptive_labels.losses import find_method

    option, values = find_method(method).trials(trials)
    trial = [(method, {option: value}) for value in values]
    with trainer(out, dry_run, as_json, executor) as train:
        plan = make_plan(config, trial, range(seeds), out, workers, time_budget, executor=executor, train=train)
    shown = ", ".join(f"{value:g}" for value in values)
    what = f"{method} with {option} = {shown}, {plural(seeds, 'seed')} each"
    carry_out(plan, what, dry_run, as_json, lambda runs: _show(runs, option, method, as_json), executor)


def _show(runs: list["RunFolder"], option: str, method: str, as_json: bool) -> None:
    """The trials, best on validation first, and how to train with the best."""
    by_value: dict[float, list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        if run.result is not None and run.result["status"] == "finished":
            by_value[run.config.method.options[option]].append(run.result["metrics"])
    if not by_value:  # `carry_out` says why, and ends with status 1
        typer.echo("alr: no trial finished", err=True)
        if as_json:
            show_json({"method": method, "trials": [], "best": None, "test_top1": None})
        return
    scores = {value: _summary(runs, "validation") for value, runs in by_value.items()}
    best = max(scores, key=lambda value: scores[value].mean)
    test = _summary(by_value[best], "test")
    if as_json:
        trials = [{option: value, "n": s.n, "validation_top1": s.mean, "std": s.std} for value, s in scores.items()]
        show_json({"method": method, "trials": trials, "best": best, "test_top1": test.mean})
        return
    typer.echo("")
    for value, summary in sorted(scores.items(), key=lambda item: -item[1].mean):
        spread = "" if summary.std is None else f" ± {100 * summary.std:.2f}"
        typer.echo(f"{option} {value:<8g} validation {100 * summary.mean:.2f}{spread}% (n = {summary.n})")
    ties = sum(summary.mean == scores[best].mean for summary in scores.values()) - 1
    tied = f" (first of {ties + 1} that are equal)" if ties else ""
    prose(f"Best on validation: {option} = {best:g}{tied}; its test accuracy is {100 * test.mean:.2f}% (n = {test.n}).")
    typer.echo(f"To use it: --set method.options.{option}={best:g}")


def _summary(metrics_of_runs: list[dict[str, Any]], split: str) -> "Summary":
    from adaptive_labels.lab.analysis.statistics import summarise

    summary = summarise([metrics[split]["top1"] for metrics in metrics_of_runs])
    assert summary is not None  # there is at least one
    return summary

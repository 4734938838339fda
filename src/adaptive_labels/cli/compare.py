"""`alr compare` and `alr tune`: many runs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_labels.cli.options import Data, DryRun, Json, Out, at_least_one, with_config
from adaptive_labels.cli.output import check_output, open_output
from adaptive_labels.cli.show import block, clock, counted, prose, show_data
from adaptive_labels.errors import UserError

if TYPE_CHECKING:
    from adaptive_labels.config import RunConfig
    from adaptive_labels.experiments.comparison import Plan
    from adaptive_labels.runs import RunFolder

Workers = Annotated[
    int | None, typer.Option(help="Runs at a time; one a core unless given.", metavar="N", parser=at_least_one)
]
Budget = Annotated[
    str | None, typer.Option(help="90s, 30m or 2h: fewer epochs if it would take longer.", metavar="TIME")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "compare", help="Every method × seed on DATA: table, confusions, report. Finished runs are not run again."
    )(_compare)
    app.command("tune", help="A method's main option, tuned on validation. Every method gets the same trials.")(_tune)


@with_config
def _compare(
    config: RunConfig,
    data: Data = "towns",
    methods: Annotated[
        str, typer.Option(help="Names with commas between.", metavar="A,B,…")
    ] = "baseline,slr,alr,alr-s",
    seeds: Annotated[int, typer.Option(help="How many seeds for each method.", metavar="N", parser=at_least_one)] = 3,
    workers: Workers = None,
    executor: Annotated[str, typer.Option(help="Where runs go: local.", metavar="local")] = "local",
    time_budget: Budget = None,
    out: Out = Path("runs"),
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    _refuse_single(config, "baseline", "--methods A,B,…")
    budget = None if time_budget is None else parse_time(time_budget)
    check_output(out)
    from adaptive_labels.experiments.comparison import make_plan, parse_methods
    from adaptive_labels.experiments.executors import find_executor

    find_executor(executor)
    chosen = parse_methods(methods)
    plan = make_plan(config, chosen, range(seeds), out, workers, budget)
    if not as_json:
        _show_plan(plan, f"{counted(len(chosen), 'method')} × {counted(seeds, 'seed')}")
    if dry_run:
        _show_dry(plan, as_json)
        return
    runs, failed = _run(plan, quiet=as_json)
    _show_comparison(runs, out / "report.html", as_json)
    _end_with_failures(runs, failed, len(plan.configs) + len(plan.first))


@with_config
def _tune(
    data: Data,
    config: RunConfig,
    method: Annotated[str, typer.Option(help="The method to tune.", metavar="NAME")],
    trials: Annotated[
        int, typer.Option(help="Values of the method's main option to try.", metavar="N", parser=at_least_one)
    ] = 5,
    seeds: Annotated[int, typer.Option(help="How many seeds for each value.", metavar="N", parser=at_least_one)] = 1,
    workers: Workers = None,
    time_budget: Budget = None,
    out: Out = Path("runs"),
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    _refuse_single(config, method, "--method NAME")
    budget = None if time_budget is None else parse_time(time_budget)
    check_output(out)
    from adaptive_labels.cli.trials import show_trials
    from adaptive_labels.experiments.comparison import make_plan
    from adaptive_labels.losses import find_method

    option, values = find_method(method).trials(trials)
    plan = make_plan(config, [(method, {option: value}) for value in values], range(seeds), out, workers, budget)
    if not as_json:
        shown = ", ".join(f"{value:g}" for value in values)
        _show_plan(plan, f"{method} with {option} = {shown}, {counted(seeds, 'seed')} each")
    if dry_run:
        _show_dry(plan, as_json)
        return
    runs, failed = _run(plan, quiet=as_json)
    show_trials(runs, option, method, as_json)
    _end_with_failures(runs, failed, len(plan.configs) + len(plan.first))


def _refuse_single(config: RunConfig, method: str, option: str) -> None:
    """Refuse what --set can say of one run only, instead of overruling it in silence."""
    if config.method.name != method:
        raise UserError(f"method.name is {config.method.name!r}: here it is given by {option}, not by --set")
    if config.seed != 0:
        raise UserError(f"seed is {config.seed}: here --seeds N makes runs with the seeds 0 to N - 1")


def parse_time(text: str) -> float:
    """Seconds of a time such as 90s, 30m, 1.5h; a bare number is seconds.

    >>> parse_time("30m"), parse_time("1.5h"), parse_time("20")
    (1800.0, 5400.0, 20.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|min|h)?\s*", text)
    if match is None or float(match[1]) == 0:
        raise UserError(f"time-budget is {text!r}; write it as 90s, 30m or 2h")
    return float(match[1]) * {"s": 1, "m": 60, "min": 60, "h": 3600}[match[2] or "s"]


def _show_plan(plan: Plan, what: str) -> None:
    show_data(plan.dataset, plan.choice, plan.configs[0])
    from adaptive_labels.experiments.teachers import describe

    for note in (*plan.notes, *dict.fromkeys(filter(None, map(describe, plan.configs)))):
        prose(note, indent=2)
    done = len(plan.configs) - len(plan.todo)
    finished = "" if not done else f", {done} of them finished already" if plan.todo else ", all finished already"
    how = ""
    if plan.todo:
        at_once = f"{plan.workers} at a time" if plan.workers > 1 else "one after the other"
        how = f", {at_once}" if plan.seconds is None else f", {at_once}; about {clock(plan.seconds)}"
    before = f", and before them {counted(len(plan.first), 'run')} to learn from" if plan.first else ""
    prose(f"Runs: {what}, {len(plan.configs)} in all{before}{finished}{how}.")


def _show_dry(plan: Plan, as_json: bool) -> None:
    import json

    from adaptive_labels.config import to_dict
    from adaptive_labels.runs import find_run

    configs, first = ([to_dict(config) for config in some] for some in (plan.configs, plan.first))
    if as_json:
        runs, needed = (
            [{"folder": str(find_run(plan.out, config)), "config": config} for config in some]
            for some in (configs, first)
        )
        typer.echo(json.dumps({"runs": runs, "first": needed, "seconds": plan.seconds}, indent=2))
        return
    typer.echo("Nothing was run. The folders would be:")
    for config in first + configs:
        typer.echo(f"  {find_run(plan.out, config)}")


def _run(plan: Plan, quiet: bool) -> tuple[list[RunFolder], list[Any]]:
    from adaptive_labels.cli.live import make_listener
    from adaptive_labels.experiments.comparison import run_plan

    open_output(plan.out)
    with make_listener(plan, quiet) as listener:
        return run_plan(plan, listener, sys.argv)


def _show_comparison(runs: list[RunFolder], report: Path, as_json: bool) -> None:
    if not runs:
        if as_json:
            typer.echo("[]")
        return
    from adaptive_labels.analysis import (
        group_records,
        read_confusions,
        read_records,
        summarise_confusions,
        table,
        verdict,
    )
    from adaptive_labels.report import write_report

    records = read_records(runs)
    if as_json:
        block(table(records, "json"))
        write_report(runs, report)
        return
    typer.echo("")
    block(table(records, "text"))
    typer.echo("")
    for group in group_records(records):
        prose(verdict(group))
    whole = [run for run in runs if (run.result or {}).get("status") == "finished"]
    learned = [run for run in whole if run.load_residual_labels() is not None]
    if whole:
        typer.echo("")
        block(summarise_confusions(read_confusions(learned or whole), top=10))
    typer.echo("")
    typer.echo(f"Report: {write_report(runs, report)}")


def _end_with_failures(runs: list[RunFolder], failed: list[Any], count: int) -> None:
    diverged = sum((run.result or {}).get("status") == "diverged" for run in runs)
    if failed:
        first = f"{failed[0].job.name}: {failed[0].error}".rstrip(".")
        typer.echo(
            f"alr: {len(failed)} of {counted(count, 'run')} failed ({first}); the same command does what is missing",
            err=True,
        )
    if diverged:
        typer.echo(f"alr: {diverged} of {counted(count, 'run')} diverged; the table says which and why", err=True)
    if failed or diverged:
        raise typer.Exit(1)

"""`alr compare`: every method with every seed, then the table and the report."""

import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_labels.cli.app import app
from adaptive_labels.cli.options import Data, DryRun, Json, Out, Workers, count, option, with_config
from adaptive_labels.cli.output import block, check_output, clock, counted, open_output, prose, show_data, show_json
from adaptive_labels.errors import UserError

if TYPE_CHECKING:
    from adaptive_labels.config import RunConfig
    from adaptive_labels.experiments.comparison import Plan
    from adaptive_labels.runs import RunFolder

Budget = Annotated[str | None, option("TIME", "90s, 30m or 2h: fewer epochs if it would take longer.")]


@app.command()
@with_config
def compare(
    config: "RunConfig",
    data: Data = "towns",
    methods: Annotated[str, option("A,B,…", "Names, or with options: alr:attraction=-2.")] = "baseline,slr,alr,alr-s",
    seeds: Annotated[int, count("How many seeds for each method.")] = 3,
    workers: Workers = None,
    executor: Annotated[str, option("NAME", "Where runs are done; local is this machine.")] = "local",
    time_budget: Budget = None,
    out: Out = Path("runs"),
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Every method × seed on DATA: table, confusions, report. Finished runs are not run again."""
    check_shared(config, "baseline", "--methods A,B,…")
    budget = parse_time(time_budget)
    check_output(out)
    from adaptive_labels.experiments.comparison import make_plan, parse_methods
    from adaptive_labels.experiments.executors import find_executor

    find_executor(executor)  # a mistyped name is said before anything is measured
    chosen = parse_methods(methods)
    plan = make_plan(config, chosen, range(seeds), out, workers, budget)
    what = f"{counted(len(chosen), 'method')} × {counted(seeds, 'seed')}"
    carry_out(plan, what, dry_run, as_json, lambda runs: _show(runs, out / "report.html", as_json), executor)


def check_shared(config: "RunConfig", method: str, option: str) -> None:
    """Refuse what --set can say of one run only, instead of overruling it in silence."""
    if config.method.name != method:
        raise UserError(f"method.name is {config.method.name!r}: here it is given by {option}, not by --set")
    if config.seed != 0:
        raise UserError(f"seed is {config.seed}: here --seeds N makes runs with the seeds 0 to N - 1")


def parse_time(text: str | None) -> float | None:
    """Seconds of a time such as 90s, 30m, 1.5h; a bare number is seconds.

    >>> parse_time("30m"), parse_time("1.5h"), parse_time("20")
    (1800.0, 5400.0, 20.0)
    """
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|min|h)?\s*", text)
    if match is None or float(match[1]) == 0:
        raise UserError(f"time-budget is {text!r}; write it as 90s, 30m or 2h")
    return float(match[1]) * {"s": 1, "m": 60, "min": 60, "h": 3600}[match[2] or "s"]


def carry_out(
    plan: "Plan",
    what: str,
    dry_run: bool,
    as_json: bool,
    show: Callable[[list["RunFolder"]], None],
    executor: str = "local",
) -> None:
    """Say ``what`` a plan will do, do it and show its runs; the status is 1 if a run failed or diverged."""
    if not as_json:
        _show_plan(plan, what)
    if dry_run:
        _show_dry(plan, as_json)
        return
    from adaptive_labels.cli.progress import make_listener
    from adaptive_labels.experiments.comparison import run_plan
    from adaptive_labels.experiments.executors import find_executor

    open_output(plan.out)
    elsewhere = nullcontext() if executor == "local" else find_executor(executor)(plan.workers)
    with elsewhere as chosen, make_listener(plan, quiet=as_json) as listener:
        runs, failed = run_plan(plan, listener, sys.argv, chosen)
    show(runs)
    in_all = counted(len(plan.configs) + len(plan.first), "run")
    diverged = sum((run.result or {}).get("status") == "diverged" for run in runs)
    if failed:
        first = f"{failed[0].job.name}: {failed[0].error}".rstrip(".")
        words = f"{len(failed)} of {in_all} failed ({first}); the same command does what is missing"
        typer.echo(f"alr: {words}", err=True)
    if diverged:
        typer.echo(f"alr: {diverged} of {in_all} diverged; the table says which and why", err=True)
    if failed or diverged:
        raise typer.Exit(1)


def _show_plan(plan: "Plan", what: str) -> None:
    from adaptive_labels.experiments.teachers import describe

    learning = dict.fromkeys(filter(None, map(describe, plan.configs)))
    show_data(plan.dataset, plan.configs[0], (*plan.notes, *learning))
    words = f"Runs: {what}, {len(plan.configs)} in all"
    if plan.first:
        words += f", and before them {counted(len(plan.first), 'run')} to learn from"
    done = len(plan.configs) - len(plan.todo)
    if done:
        words += f", {done} of them finished already" if plan.todo else ", all finished already"
    if plan.todo:
        words += f", {plan.workers} at a time" if plan.workers > 1 else ", one after the other"
        words += "" if plan.seconds is None else f"; about {clock(plan.seconds)}"
    prose(f"{words}.")


def _show_dry(plan: "Plan", as_json: bool) -> None:
    from adaptive_labels.config import to_dict
    from adaptive_labels.runs import find_run

    first, runs = (
        [{"folder": str(find_run(plan.out, config)), "config": config} for config in map(to_dict, some)]
        for some in (plan.first, plan.configs)
    )
    if as_json:
        show_json({"runs": runs, "first": first, "seconds": plan.seconds})
        return
    typer.echo("Nothing was run. The folders would be:")
    for run in first + runs:
        typer.echo(f"  {run['folder']}")


def _show(runs: list["RunFolder"], report: Path, as_json: bool) -> None:
    from adaptive_labels import analysis
    from adaptive_labels.report import write_report

    if not runs:
        if as_json:
            show_json([])
        return
    records = analysis.read_records(runs)
    if as_json:
        block(analysis.table(records, "json"))
        write_report(runs, report)
        return
    typer.echo("")
    block(analysis.table(records, "text"))
    typer.echo("")
    for group in analysis.group_records(records):
        prose(analysis.verdict(group))
    whole = [run for run in runs if (run.result or {}).get("status") == "finished"]
    learned = [run for run in whole if (run.path / "residual_labels.npz").exists()]
    if whole:
        typer.echo("")
        block(analysis.summarise_confusions(analysis.read_confusions(learned or whole), top=10))
    typer.echo("")
    typer.echo(f"Report: {write_report(runs, report)}")

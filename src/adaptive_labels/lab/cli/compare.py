"""`alr compare`: every method with every seed, then the table and the report."""

import dataclasses
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_labels.errors import UserError
from adaptive_labels.lab.cli.app import app
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
from adaptive_labels.lab.cli.output import block, check_output, clock, open_output, prose, show_data, show_json
from adaptive_labels.lab.cli.progress import show_encoding
from adaptive_labels.lab.machine import launched
from adaptive_labels.lab.words import plural

if TYPE_CHECKING:
    from adaptive_labels.lab.config import RunConfig
    from adaptive_labels.lab.experiments.comparison import Plan
    from adaptive_labels.lab.jobs import JobExecutor
    from adaptive_labels.lab.runs import RunFolder

_SHORT = 60  # characters of a text that fits into a command to paste
_SUSPECTS = "Also compare {}; FILE is written by `alr suspects`."


@app.command("compare")
@with_config
@with_executor
def compare_methods(
    config: "RunConfig",
    executor: "JobExecutor | None",
    data: Data = "towns",
    methods: Annotated[str, option("A,B,…", "Names, or with options: alr:attraction=-2.")] = "baseline,slr,alr,alr-s",
    seeds: Annotated[int, count("How many seeds for each method.")] = 5,
    workers: Workers = None,
    time_budget: Budget = None,
    drop_suspects: Annotated[Path | None, option("FILE", _SUSPECTS.format("without the suspects in FILE"))] = None,
    relabel: Annotated[Path | None, option("FILE", _SUSPECTS.format("with the labels in FILE corrected"))] = None,
    out: Out = Path("runs"),
    plugin: Plugin = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Every method × seed on DATA: table, confusions, report. Finished runs are not run again."""
    check_shared(config, "baseline", "--methods A,B,…")
    check_output(out)
    from adaptive_labels.lab.config import changed
    from adaptive_labels.lab.experiments.comparison import make_plan, parse_methods

    chosen = parse_methods(methods)
    variants = _with_cleaned(config, drop_suspects, relabel)
    finished: list[list[RunFolder]] = []

    def show(runs: list["RunFolder"]) -> None:
        finished.append(runs)
        if len(finished) == len(variants):
            _show([run for some in finished for run in some], out / "report.html", as_json)

    network = config.model.name
    for one in variants.values():
        one = changed(one, "model", name=network)
        with trainer(out, dry_run, as_json, executor) as train:
            plan = make_plan(one, chosen, range(seeds), out, workers, time_budget, executor=executor, train=train)
        network = plan.own[0].config.model.name  # corrected labels are compared on the same network
        trained = {entry.config.seed for entry in plan.own}  # a time budget may have left some out
        what = f"{plural(len(chosen), 'method')} × {plural(len(trained), 'seed')}"
        carry_out(plan, what, dry_run, as_json, show, executor)
    if not dry_run and not as_json:
        for words, runs in list(zip(variants, finished, strict=True))[1:]:
            _answer(words, finished[0], runs)
        if len(variants) == 1:
            _show_next(plan, finished[0], data)


def _show_next(plan: "Plan", runs: list["RunFolder"], data: str) -> None:
    """The commands to try next, ready to paste."""
    from adaptive_labels.lab.analysis import group_records, read_run_records
    from adaptive_labels.lab.data import DATASETS
    from adaptive_labels.lab.experiments.export.choice import best_record

    given = plan.own[0].config.data
    columns = {"--text-column": given.text_column, "--label-column": given.label_column}
    suspects = ["alr", "suspects", data, *(word for pair in columns.items() if pair[1] for word in pair)]
    commands = {shlex.join(map(str, suspects)): "labels that look wrong"}
    for group in group_records(read_run_records(runs)):
        best = best_record(group)
        if best is not None:
            run = str(best.run.path)
            commands[shlex.join(["alr", "predict", run, _some_input(plan, data)])] = f"{best.label} at work"
            commands[shlex.join(["alr", "export", run])] = f"{best.label} for other programs"
    if data in DATASETS:
        commands = {"alr compare my_data.csv": "your own table, or folder of images"} | commands
    typer.echo("\nNext:")
    width = max(map(len, commands))
    for command, what in commands.items():
        typer.echo(f"  {command:{width}}  # {what}")


def _some_input(plan: "Plan", data: str) -> str:
    """A test example as `alr predict` takes it, or what stands for one."""
    test = plan.dataset.test
    texts: Any = test.inputs
    if plan.dataset.kind == "text":
        first = str(texts[0]) if len(test) else ""
        return first if 0 < len(first) <= _SHORT and "\n" not in first else "a text of your own"
    if plan.dataset.kind == "image":
        source = test.sources[0] if test.sources else "picture.png"
        return str(Path(data) / source)
    return data if Path(data).is_file() else "my_rows.csv"


def _with_cleaned(config: "RunConfig", drop: Path | None, relabel: Path | None) -> "dict[str, RunConfig]":
    """The configuration as it is, then without suspects and with corrected labels, each by what is done."""
    from adaptive_labels.lab.analysis.suspects import read_corrections

    variants = {"": config}
    for words, key, path in (
        ("Leaving out the suspects", "drop_suspects", drop),
        ("Relabelling the suspects", "relabel", relabel),
    ):
        if path is not None:
            read_corrections(path)  # a file that cannot be read is said before the work
            data = dataclasses.replace(config.data, **{key: str(path.resolve())})  # type: ignore[arg-type]
            variants[words] = dataclasses.replace(config, data=data)
    return variants


def _answer(words: str, before: list["RunFolder"], after: list["RunFolder"]) -> None:
    from adaptive_labels.lab.analysis import read_run_records
    from adaptive_labels.lab.analysis.cleaning import does_cleaning_pay

    typer.echo("")
    prose(does_cleaning_pay(words, *map(read_run_records, (before, after))))


@contextmanager
def trainer(
    out: Path, dry_run: bool, as_json: bool, executor: "JobExecutor | None"
) -> Iterator[Callable[["Plan"], object] | None]:
    """For `make_plan`: what trains the candidates for the network, and shows that it does; nothing in a dry run."""
    from adaptive_labels.lab.cli.progress import make_listener
    from adaptive_labels.lab.experiments.comparison import run_plan

    with show_encoding() as progress:

        def train(plan: "Plan") -> None:
            open_output(out)
            if not as_json:
                prose("Which network? The baseline of each candidate is trained first.")
            with make_listener(quiet=as_json) as listener:
                run_plan(plan, listener, sys.argv, executor, progress)

        yield None if dry_run else train


def check_shared(config: "RunConfig", method: str, option: str) -> None:
    """Refuse settings of one run only, which this command would overrule in silence."""
    if config.method.name != method:
        raise UserError(f"method.name is {config.method.name!r}: here it is given by {option}, not by --set")
    if config.seed != 0:
        raise UserError(f"seed is {config.seed}: here --seeds N makes runs with the seeds 0 to N - 1")


def carry_out(
    plan: "Plan",
    what: str,
    dry_run: bool,
    as_json: bool,
    show: Callable[[list["RunFolder"]], None],
    executor: "JobExecutor | None" = None,
) -> None:
    """Say ``what`` a plan will do, do it and show its runs; the status is 1 if a run failed or diverged."""
    if not as_json:
        _show_plan(plan, what)
    if dry_run:
        _show_dry(plan, as_json)
        return
    from adaptive_labels.lab.cli.progress import make_listener
    from adaptive_labels.lab.experiments.comparison import run_plan

    open_output(plan.out)
    with show_encoding() as progress, make_listener(quiet=as_json) as listener:
        runs, failed = run_plan(plan, listener, sys.argv, executor, progress)
    show(runs)
    in_all = plural(len(plan.own) + len(plan.first), "run")
    diverged = sum((run.result or {}).get("status") == "diverged" for run in runs)
    if failed:
        first = f"{failed[0].job.name}: {failed[0].error}".rstrip(".")
        words = f"{len(failed)} of {in_all} failed ({first}); the same command does what is missing"
        typer.echo(f"alr: {words}", err=True)
    late = len(plan.own) - len(runs) - len(failed)
    if plan.budget is not None and late > 0:
        typer.echo(f"alr: {late} of {in_all} did not fit into the time budget; the same command goes on", err=True)
    if diverged:
        typer.echo(f"alr: {diverged} of {in_all} diverged; the table says which and why", err=True)
    if failed or diverged or not runs:
        raise typer.Exit(1)


def _show_plan(plan: "Plan", what: str) -> None:
    from adaptive_labels.lab.experiments.teachers import describe_networks

    learning = dict.fromkeys(filter(None, map(describe_networks, (entry.config for entry in plan.own))))
    show_data(plan.dataset, plan.own[0].config, (*plan.notes, *learning))
    words = f"Runs: {what}, {len(plan.own)} in all"
    if plan.first:
        words += f", and before them {plural(len(plan.first), 'run')} to learn from"
    done = sum(entry.is_finished for entry in plan.own)
    if done:
        words += f", {done} of them finished already" if plan.todo else ", all finished already"
    if plan.todo:
        words += f", {plan.workers} at a time" if plan.workers > 1 else ", one after the other"
        words += f", each by {world} processes" if (world := launched()[1]) > 1 else ""
        words += "" if plan.seconds is None else f"; about {clock(plan.seconds)}"
        words += f", {clock(plan.encoding)} of it to encode the data, once" if plan.encoding >= 1 else ""
    prose(f"{words}.")


def _show_dry(plan: "Plan", as_json: bool) -> None:
    from adaptive_labels.lab.config import to_dict

    first, runs = (
        [{"folder": str(entry.folder), "config": to_dict(entry.config)} for entry in entries]
        for entries in (plan.first, plan.own)
    )
    if as_json:
        show_json({"runs": runs, "first": first, "seconds": plan.seconds})
        return
    typer.echo("Nothing was run. The folders would be:")
    for run in first + runs:
        typer.echo(f"  {run['folder']}")


def _show(runs: list["RunFolder"], report: Path, as_json: bool) -> None:
    from adaptive_labels.lab import analysis
    from adaptive_labels.lab.report import write_report

    if not runs:
        if as_json:
            show_json([])
        return
    records = analysis.read_run_records(runs)
    if as_json:
        block(analysis.format_table(records, "json"))
        write_report(runs, report)
        return
    typer.echo("")
    for group in analysis.group_records(records):
        for line in str(analysis.verdict(group)).splitlines():
            prose(line)
    typer.echo("")
    block(analysis.format_table(records, "text"))
    whole = [run for run in runs if (run.result or {}).get("status") == "finished"]
    learned = [run for run in whole if (run.path / "residual_labels.npz").exists()]
    if whole:
        typer.echo("")
        block(analysis.summarise_confusions(analysis.read_confusions(learned or whole), top=10))
    typer.echo("")
    typer.echo(f"Report: {write_report(runs, report)}")

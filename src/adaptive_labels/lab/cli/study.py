"""`alr study`: the runs of a study, and a record of each. evidence/README.md describes studies."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_labels.errors import UserError
from adaptive_labels.lab.cli.app import app
from adaptive_labels.lab.cli.options import (
    DataDir,
    DryRun,
    Log,
    Out,
    Plugin,
    Results,
    Workers,
    argument,
    option,
    split_names,
    with_executor,
)
from adaptive_labels.lab.cli.output import end_with_failures, open_output, prose
from adaptive_labels.lab.cli.progress import make_listener
from adaptive_labels.lab.words import plural

if TYPE_CHECKING:
    from adaptive_labels.lab.jobs import JobExecutor
    from adaptive_labels.lab.paper.runner import StudyOptions
    from adaptive_labels.lab.paper.study import Study


@app.command()
@with_executor
def study(
    file: Annotated[Path, argument("FILE", "The study, a TOML file.")],
    executor: "JobExecutor | None",
    on: Annotated[str | None, option("A,B,…", "Some of the study's tasks.")] = None,
    methods: Annotated[str | None, option("A,B,…", "Only the variants of these methods.")] = None,
    data_dir: DataDir = None,
    workers: Workers = None,
    log: Log = None,
    out: Out = Path("runs"),
    results: Results = Path("evidence"),
    plugin: Plugin = None,
    dry_run: DryRun = False,
) -> None:
    """Experiments of many variants: what has no record yet."""
    from adaptive_labels.lab.paper.runner import StudyOptions
    from adaptive_labels.lab.paper.study import load_study

    whole = load_study(file)
    tasks = _chosen("on", on, "tasks", whole.tasks)
    wanted = _chosen("methods", methods, "methods", [variant.method for variant in whole.variant])
    part = whole.limited([variant for variant in whole.variant if variant.method in wanted])
    options = StudyOptions(out, results, data_dir, workers, executor=executor, log=split_names(log))
    end_with_failures(sum(run_missing(f"{part.title}, on {task}", part, task, options, dry_run) for task in tasks))


def _chosen(option: str, given: str | None, kind: str, known: Sequence[str]) -> Sequence[str]:
    """The names that are given, all of them known; every known one unless any is."""
    for name in split_names(given):
        if name not in known:
            raise UserError(f"{option}: {name!r} is none of the study's {kind} ({', '.join(dict.fromkeys(known))})")
    return split_names(given) or known


def run_missing(
    heading: str, study: "Study", task: str, options: "StudyOptions", dry_run: bool = False, quiet: bool = False
) -> int:
    """Say how many runs a study wants on a task, and do those that have no record; how many failed."""
    from adaptive_labels.lab.paper.runner import count_runs, run_study

    wanted, done = count_runs(study, task, options)
    if not quiet:
        prose(f"{heading}: {plural(wanted, 'run')}, {done} recorded already.")
    if dry_run or done >= wanted:
        return 0
    open_output(options.out)
    with make_listener(quiet) as listener:
        failures = run_study(study, task, options, listener)
    for outcome in failures:
        typer.echo(f"alr: {task}, {outcome.job.name}: {outcome.error}", err=True)
    return len(failures)

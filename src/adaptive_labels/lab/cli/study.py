"""`alr study`: the runs of a study, and a record of each."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_labels.lab.cli.app import add_group
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

group = add_group("study", "Experiments of many variants.")


@group.command()
@with_executor
def run(
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
    """Do what is missing of a study, and keep a record of each run."""
    from adaptive_labels.lab.paper.runner import StudyOptions
    from adaptive_labels.lab.paper.study import StudyError, load_study

    study = load_study(file)
    tasks = split_names(on) or study.tasks
    for task in tasks:
        if task not in study.tasks:
            raise StudyError(f"on: {task!r} is none of the study's tasks ({', '.join(study.tasks)})")
    known = list(dict.fromkeys(variant.method for variant in study.variant))
    for method in split_names(methods):
        if method not in known:
            raise StudyError(f"methods: {method!r} is none of the study's methods ({', '.join(known)})")
    wanted = split_names(methods) or known
    study = study.limited([variant for variant in study.variant if variant.method in wanted])
    options = StudyOptions(out, results, data_dir, workers, executor=executor, log=split_names(log))
    end_with_failures(sum(run_missing(f"{study.title}, on {task}", study, task, options, dry_run) for task in tasks))


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

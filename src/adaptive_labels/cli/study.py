"""`alr study`: the studies behind the defaults, and the tables made of their records."""

import os
from pathlib import Path
from typing import Annotated

import typer

from adaptive_labels.cli.app import add_group
from adaptive_labels.cli.options import DataDir, DryRun, Out, Page, Results, Workers, split_names
from adaptive_labels.cli.output import counted, end_with_failures, prose, show_pages
from adaptive_labels.cli.progress import make_listener

group = add_group("study", "Experiments of many variants: run, tables.")


@group.command()
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The study, a TOML file.")],
    on: Annotated[
        str | None, typer.Option(help="Tasks, with commas between; by default all of the study's.", metavar="A,B,…")
    ] = None,
    data_dir: DataDir = None,
    workers: Workers = None,
    out: Out = Path("runs"),
    results: Results = Path("results"),
    dry_run: DryRun = False,
) -> None:
    """Do what is missing of a study, and keep a record of each run."""
    from adaptive_labels.experiments.studies.runner import Work, count_runs, run_study
    from adaptive_labels.experiments.studies.study import StudyError, load_study

    study = load_study(file)
    tasks = study.tasks if on is None else split_names(on)
    for task in tasks:
        if task not in study.tasks:
            raise StudyError(f"on: {task!r} is none of the study's tasks ({', '.join(study.tasks)})")
    work = Work(out, results, data_dir, workers or os.cpu_count() or 1)
    failures = []
    for task in tasks:
        wanted, done = count_runs(study, task, work)
        prose(f"{study.title}, on {task}: {counted(wanted, 'run')}, {done} recorded already.")
        if not dry_run:
            failures += run_study(study, task, work, make_listener)
    for outcome in failures:
        typer.echo(f"alr: {outcome.job.name}: {outcome.error}", err=True)
    end_with_failures(len(failures))


@group.command()
def tables(
    studies: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the studies.")] = Path("studies"),
    results: Results = Path("results"),
    template: Annotated[
        Path | None, typer.Option(help="A page with {{study}} where its tables go.", metavar="FILE")
    ] = None,
    page: Page = None,
) -> None:
    """Make the tables of all studies from their records."""
    from adaptive_labels.experiments.studies.tables import fill_template, write_tables

    show_pages(
        lambda: write_tables(studies, results), template, page, lambda page: fill_template(page, studies, results)
    )

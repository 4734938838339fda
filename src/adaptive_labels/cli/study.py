"""`alr study`: the studies behind the defaults, and the tables made of their records."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_labels.cli.compare import Workers
from adaptive_labels.cli.options import DryRun, Out
from adaptive_labels.cli.show import counted, prose
from adaptive_labels.cli.usage import Group
from adaptive_labels.errors import UserError

if TYPE_CHECKING:
    from adaptive_labels.experiments.comparison import Plan

Results = Annotated[Path, typer.Option(help="Where records and tables are.", metavar="DIR")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    study = typer.Typer(cls=Group, help="Experiments of many variants: run, tables.", rich_markup_mode=None)
    study.command("run", help="Do what is missing of a study, and keep a record of each run.")(_run)
    study.command("tables", help="Make the tables of all studies from their records.")(_tables)
    app.add_typer(study, name="study")


def _run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The study, a TOML file.")],
    on: Annotated[
        str | None, typer.Option(help="Tasks, with commas between; all of the study's unless given.", metavar="A,B,…")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where data is looked for.", metavar="DIR")] = None,
    workers: Workers = None,
    out: Out = Path("runs"),
    results: Results = Path("results"),
    dry_run: DryRun = False,
) -> None:
    from adaptive_labels.experiments.studies.runner import Work, count_runs, run_study
    from adaptive_labels.experiments.studies.study import StudyError, load_study

    study = load_study(file)
    tasks = study.tasks if on is None else tuple(name.strip() for name in on.split(",") if name.strip())
    for task in tasks:
        if task not in study.tasks:
            raise StudyError(f"on: {task!r} is none of the study's tasks ({', '.join(study.tasks)})")
    work = Work(out, results, None if data_dir is None else str(data_dir), workers or os.cpu_count() or 1)
    failed = 0
    for task in tasks:
        wanted, done = count_runs(study, task, work)
        prose(f"{study.title}, on {task}: {counted(wanted, 'run')}, {done} recorded already.")
        if not dry_run:
            failures = run_study(study, task, work, _listening)
            failed += len(failures)
            for outcome in failures:
                typer.echo(f"alr: {outcome.job.name}: {outcome.error}", err=True)
    if failed:
        typer.echo(f"alr: {counted(failed, 'run')} failed; the same command does what is missing", err=True)
        raise typer.Exit(1)


def _listening(plan: Plan) -> Any:
    from adaptive_labels.cli.live import make_listener

    return make_listener(plan, quiet=False)


def _tables(
    studies: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the studies.")] = Path("studies"),
    results: Results = Path("results"),
    template: Annotated[
        Path | None, typer.Option(help="A page with {{study}} where its tables go.", metavar="FILE")
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Where the filled template goes.", metavar="FILE")] = None,
) -> None:
    from adaptive_labels.experiments.studies.tables import fill_template, write_tables

    if (template is None) != (page is None):
        raise UserError("--template and --page belong together: what to fill, and where it goes")
    for path in write_tables(studies, results):
        typer.echo(str(path))
    if template is not None and page is not None:
        page.write_text(fill_template(template, studies, results), encoding="utf-8")
        typer.echo(str(page))

"""`alr table`, `report`, `confusions` and `runs`: what finished runs say. None of them needs torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_labels.cli.options import Json, at_least_one
from adaptive_labels.cli.show import block, counted, prose
from adaptive_labels.cli.usage import Group
from adaptive_labels.errors import UserError

if TYPE_CHECKING:
    from adaptive_labels.runs import RunFolder

Runs = Annotated[list[Path], typer.Argument(metavar="RUNS", help="Run folders, or folders that hold them.")]
TABLE_FORMATS = "text|markdown|csv|latex|json"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("table", help="Mean ± std over seeds, and the difference from the baseline. With a paired test.")(
        _table
    )
    app.command(
        "report",
        help="All that runs say, on one offline page. Tables, curves, residual labels, confusions, calibration.",
    )(_report)
    app.command("confusions", help="Which classes are taken for which. By the residual labels and by the test split.")(
        _confusions
    )
    runs = typer.Typer(cls=Group, help="Run folders: list, check, rm.", rich_markup_mode=None)
    runs.command("list", help="What is there, a line each.")(_list)
    runs.command("check", help="Whether it is whole.")(_check)
    runs.command("rm", help="Remove run folders.")(_remove)
    app.add_typer(runs, name="runs")


def _found(paths: list[Path]) -> list[RunFolder]:
    from adaptive_labels.runs import list_runs

    runs = list_runs(paths)
    if not runs:
        raise UserError(f"there is no run in {', '.join(map(str, paths))}")
    return runs


def _table(
    runs: Runs,
    format: Annotated[str, typer.Option("--format", metavar=TABLE_FORMATS, help="How to print it.")] = "text",
) -> None:
    from adaptive_labels.analysis import group_records, read_records, table, verdict

    records = read_records(_found(runs))
    block(table(records, format))
    if format == "text":
        for group in group_records(records):
            typer.echo("")
            prose(verdict(group))


def _report(
    runs: Runs,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write it.")] = Path(
        "report.html"
    ),
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write each figure as SVG and PNG as well, each table as LaTeX.")
    ] = None,
    suspects: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Show what `alr suspects RUN -o FILE` found. Repeatable."),
    ] = None,
    no_examples: Annotated[
        bool,
        typer.Option("--no-examples", help="Leave out the inputs that were mistaken, as data not to be passed on."),
    ] = False,
) -> None:
    from adaptive_labels.analysis import read_suspects
    from adaptive_labels.report import write_figures, write_report

    found, ranked = _found(runs), [read_suspects(path) for path in suspects or []]
    typer.echo(f"Report: {write_report(found, output, examples=not no_examples, suspects=ranked)}")
    if figures is not None:
        files, problem = write_figures(found, figures, suspects=ranked)
        typer.echo(f"Figures: {counted(len(files), 'file')} in {figures}")
        if problem is not None:
            typer.echo(problem, err=True)


def _confusions(
    runs: Runs,
    top: Annotated[int, typer.Option(metavar="N", help="How many of each list.", parser=at_least_one)] = 10,
    format: Annotated[str, typer.Option("--format", metavar="text|json|csv", help="How to print it.")] = "text",
    by: Annotated[str | None, typer.Option(metavar="residual|test", help="Which of the two to rank by.")] = None,
    only: Annotated[
        str | None, typer.Option(metavar="pairs|one-way|groups", help="One list only; CSV holds one, pairs first.")
    ] = None,
) -> None:
    from adaptive_labels.analysis import format_confusions, read_confusions

    block(format_confusions(read_confusions(_found(runs)), top=top, format=format, by=by, only=only))


def _list(folder: Annotated[Path, typer.Argument(metavar="DIR")] = Path("runs"), as_json: Json = False) -> None:
    rows: list[dict[str, Any]] = []
    for run in _found([folder]):
        result = run.result
        top1 = result["metrics"].get("test", {}).get("top1") if result else None
        status = result["status"] if result else f"unfinished ({counted(len(run.history()), 'epoch')})"
        rows.append({"run": str(run.path), "status": status, "test_top1": top1})
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    width = max(len(row["run"]) for row in rows)
    for row in rows:
        accuracy = "" if row["test_top1"] is None else f"  test {row['test_top1']:.2%}"
        typer.echo(f"{row['run']:<{width}}  {row['status']}{accuracy}")


def _check(folder: Annotated[Path, typer.Argument(metavar="DIR")] = Path("runs"), as_json: Json = False) -> None:
    from adaptive_labels.runs import check

    problems = {str(run.path): check(run) for run in _found([folder])}
    if as_json:
        typer.echo(json.dumps(problems, indent=2))
    else:
        for path, found in problems.items():
            typer.echo(f"{path}: {'; '.join(found) if found else 'whole'}")
    if any(problems.values()):
        raise typer.Exit(1)


def _remove(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR", help="Run folders, or folders that hold them.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    from adaptive_labels.runs import remove

    runs = _found(folders)
    for run in runs:
        typer.echo(str(run.path))
    if not yes:
        typer.confirm(f"Remove {'this run' if len(runs) == 1 else f'these {len(runs)} runs'}?", abort=True)
    for run in runs:
        remove(run)
    typer.echo(f"Removed {counted(len(runs), 'run')}.")

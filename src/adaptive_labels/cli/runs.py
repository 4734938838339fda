"""`alr runs`: list, check and remove run folders. It needs no torch."""

from pathlib import Path
from typing import Annotated, Any

import typer

from adaptive_labels.cli.app import add_group
from adaptive_labels.cli.options import Json, argument, find_runs, option
from adaptive_labels.cli.output import counted, show_json
from adaptive_labels.tables import aligned

Folder = Annotated[Path, argument("DIR", "A run folder, or a folder that holds them.")]
group = add_group("runs", "Run folders: list, check, rm.")


@group.command("list")
def list_(folder: Folder = Path("runs"), as_json: Json = False) -> None:
    """What is there, one line per run."""
    rows: list[dict[str, Any]] = []
    for run in find_runs([folder]):
        result = run.result
        top1 = result["metrics"].get("test", {}).get("top1") if result else None
        status = result["status"] if result else f"unfinished ({counted(len(run.history()), 'epoch')})"
        rows.append({"run": str(run.path), "status": status, "test_top1": top1})
    if as_json:
        show_json(rows)
        return
    cells = [
        (row["run"], row["status"], "" if row["test_top1"] is None else f"test {row['test_top1']:.2%}") for row in rows
    ]
    typer.echo("\n".join(aligned((), cells, left=(0, 1, 2))))


@group.command()
def check(folder: Folder = Path("runs"), as_json: Json = False) -> None:
    """Whether every run is whole."""
    from adaptive_labels.runs import check

    problems = {str(run.path): check(run) for run in find_runs([folder])}
    if as_json:
        show_json(problems)
    else:
        for path, found in problems.items():
            typer.echo(f"{path}: {'; '.join(found) if found else 'whole'}")
    if any(problems.values()):
        raise typer.Exit(1)


@group.command()
def rm(
    folders: Annotated[list[Path], argument("DIR", "Run folders, or folders that hold them.")],
    yes: Annotated[bool, option(None, "Do not ask.", "--yes", "-y")] = False,
) -> None:
    """Remove run folders."""
    from adaptive_labels.runs import remove

    runs = find_runs(folders)
    for run in runs:
        typer.echo(str(run.path))
    if not yes:
        typer.confirm(f"Remove {'this run' if len(runs) == 1 else f'these {len(runs)} runs'}?", abort=True)
    for run in runs:
        remove(run)
    typer.echo(f"Removed {counted(len(runs), 'run')}.")

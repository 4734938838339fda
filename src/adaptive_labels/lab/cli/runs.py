"""`alr runs`: list, check and remove run folders. It needs no torch."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_labels.lab.cli.app import add_group
from adaptive_labels.lab.cli.options import Json, argument, find_runs, option
from adaptive_labels.lab.cli.output import show_json
from adaptive_labels.lab.tables import aligned
from adaptive_labels.lab.words import plural

if TYPE_CHECKING:
    from adaptive_labels.lab.runs import RunFolder

Folder = Annotated[Path, argument("DIR", "A run folder, or a folder that holds them.")]
group = add_group("runs", "Run folders: list, check, rm.")


@group.command("list")
def list_folders(folder: Folder = Path("runs"), as_json: Json = False) -> None:
    """What is there, one line per run."""
    rows = [(str(run.path), *_status(run)) for run in find_runs([folder])]
    if as_json:
        show_json([{"run": path, "status": status, "test_top1": top1} for path, status, top1 in rows])
        return
    cells = [(path, status, "" if top1 is None else f"test {top1:.2%}") for path, status, top1 in rows]
    typer.echo("\n".join(aligned((), cells, left=(0, 1, 2))))


def _status(run: "RunFolder") -> tuple[str, float | None]:
    from adaptive_labels.lab.runs import RunError

    try:
        result = run.result
        if result is None:
            return f"unfinished ({plural(len(run.history()), 'epoch')})", None
    except RunError:
        return "damaged (see alr runs check)", None
    top1 = result["metrics"].get("test", {}).get("top1")
    return result["status"], top1 if isinstance(top1, int | float) else None


@group.command("check")
def check_runs(
    folder: Folder = Path("runs"),
    fix: Annotated[bool, option(None, "Remove what processes that were ended left behind.", "--fix")] = False,
    as_json: Json = False,
) -> None:
    """Whether every byte of every run is what was written."""
    from adaptive_labels.lab.runs import find_problems, tidy

    runs = {str(run.path): run for run in find_runs([folder])}
    removed = [left for run in runs.values() for left in tidy(run)] if fix else []
    problems = {path: find_problems(run) for path, run in runs.items()}
    for left in removed:
        typer.echo(f"{left}: removed", err=as_json)
    if as_json:
        show_json(problems)
    else:
        for path, sentences in problems.items():
            typer.echo(f"{path}: {'; '.join(sentences) or 'whole'}")
    if any(problems.values()):
        raise typer.Exit(1)


@group.command()
def rm(
    folders: Annotated[list[Path], argument("DIR", "Run folders, or folders that hold them.")],
    yes: Annotated[bool, option(None, "Do not ask.", "--yes", "-y")] = False,
) -> None:
    """Remove run folders."""
    from adaptive_labels.lab.runs import remove

    runs = find_runs(folders)
    for run in runs:
        typer.echo(str(run.path))
    if not yes:
        typer.confirm(f"Remove {'this run' if len(runs) == 1 else f'these {len(runs)} runs'}?", abort=True)
    for run in runs:
        remove(run)
    typer.echo(f"Removed {plural(len(runs), 'run')}.")

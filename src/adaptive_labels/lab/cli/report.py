"""`alr report`: one page about finished runs. It needs no torch."""

from pathlib import Path
from typing import Annotated

import typer

from adaptive_labels.lab.cli.app import app
from adaptive_labels.lab.cli.options import Runs, find_runs, option
from adaptive_labels.lab.words import plural


@app.command()
def report(
    runs: Runs,
    output: Annotated[Path, option("FILE", "Where to write it.", "-o", "--output")] = Path("report.html"),
    figures: Annotated[Path | None, option("DIR", "Write figures as SVG and PNG as well, tables as LaTeX.")] = None,
    suspects: Annotated[list[Path] | None, option("FILE", "Show what `alr suspects DATA -o FILE` found.")] = None,
    no_examples: Annotated[bool, option(None, "Leave out the inputs of the data.", "--no-examples")] = False,
) -> None:
    """All that runs say, on one offline page. Tables, curves, residual labels, confusions, calibration."""
    from adaptive_labels.lab.analysis import read_suspects
    from adaptive_labels.lab.files import check_replaceable
    from adaptive_labels.lab.report import write_figures, write_report

    check_replaceable(output)  # before the work
    folders, ranked = find_runs(runs), [read_suspects(path) for path in suspects or []]
    typer.echo(f"Report: {write_report(folders, output, examples=not no_examples, suspects=ranked)}")
    if figures is not None:
        files, problem = write_figures(folders, figures, suspects=ranked)
        typer.echo(f"Figures: {plural(len(files), 'file')} in {figures}")
        if problem is not None:
            typer.echo(problem, err=True)

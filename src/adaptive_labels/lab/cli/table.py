"""`alr table`: the figures of finished runs. It needs no torch."""

from typing import Annotated

import typer

from adaptive_labels.lab.cli.app import app
from adaptive_labels.lab.cli.options import Runs, find_runs, option
from adaptive_labels.lab.cli.output import block, prose


@app.command()
def table(
    runs: Runs,
    format: Annotated[str, option("text|markdown|csv|latex|json", "How to print it.")] = "text",
) -> None:
    """Mean ± std over seeds, and the difference from the baseline. With a paired test."""
    from adaptive_labels.lab.analysis import format_table, group_records, read_run_records, verdict

    records = read_run_records(find_runs(runs))
    block(format_table(records, format))
    if format == "text":
        for group in group_records(records):
            typer.echo("")
            for line in str(verdict(group)).splitlines():
                prose(line)

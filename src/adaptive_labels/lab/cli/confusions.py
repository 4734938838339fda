"""`alr confusions`: which classes finished runs take for which. It needs no torch."""

from typing import Annotated

from adaptive_labels.lab.cli.app import app
from adaptive_labels.lab.cli.options import Runs, count, find_runs, option
from adaptive_labels.lab.cli.output import block


@app.command()
def confusions(
    runs: Runs,
    top: Annotated[int, count("How many of each list.")] = 10,
    format: Annotated[str, option("text|json|csv", "How to print it; CSV holds the pairs.")] = "text",
) -> None:
    """Which classes are taken for which, and what to do. By the residual labels and by the test split."""
    from adaptive_labels.lab.analysis import format_confusions, read_confusions

    block(format_confusions(read_confusions(find_runs(runs)), top, format))

"""Rows of runs, and the tables made of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from adaptive_labels.lab import tables
from adaptive_labels.lab.paper.study import Record


@dataclass(frozen=True)
class Row:
    """A variant on a task: its runs by seed. The row of a tuned ``variant`` has the name of the chosen trial."""

    name: str
    runs: Mapping[int, Record]
    variant: str = ""

    def values(self, split: str, metric: str) -> dict[int, float]:
        """Seed → figure: a metric of a split, or one of how it came about."""
        figures = {seed: _figure_of(run, split, metric) for seed, run in self.runs.items()}
        return {seed: float(figure) for seed, figure in figures.items() if figure is not None}


def _figure_of(record: Record, split: str, metric: str) -> Any:
    if metric == "train_top1":
        return record["metrics"].get("train", {}).get("top1")
    if metric == "loss_rise":
        losses = record.get("course", {}).get("validation_loss")
        return losses[-1] - min(losses) if losses else None
    if metric == "label_entropy":
        return record.get("residual_labels", {}).get("entropy")
    if metric in record.get("mechanism", {}):
        return record["mechanism"][metric]
    return record["metrics"].get(split, {}).get(metric)


class Column(NamedTuple):
    """A column of a table: its heading, and the cell of a row."""

    heading: str
    cell: Callable[[Row], str]
    always: bool = True  # else it is left out where every cell is empty


def lay_out(rows: Sequence[Row], columns: Sequence[Column], markdown: bool = True) -> str:
    """A table in Markdown, or for a terminal."""
    cells = [[column.cell(row) for row in rows] for column in columns]
    shown = [place for place, column in enumerate(columns) if column.always or any(cells[place])]
    head = [columns[place].heading for place in shown]
    body = [[cells[place][number] for place in shown] for number in range(len(rows))]
    return "\n".join(tables.markdown(head, body, left=None) if markdown else tables.aligned(head, body))

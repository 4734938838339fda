"""What every measurement says beside its rows, and the rows as a table for machines."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Mapping
from typing import Any

import torch

from adaptive_labels.runs.environment import describe_environment


def described(rows: list[dict[str, Any]], facts: Mapping[str, Any]) -> dict[str, Any]:
    """The rows with what one needs to know about where they come from."""
    return {
        **facts,
        "threads": torch.get_num_threads(),
        "environment": describe_environment(sys.argv),
        "rows": rows,
    }


def as_csv(result: Mapping[str, Any]) -> str:
    """The rows as comma-separated values, each with the date, the hardware and the versions."""
    environment = result["environment"]
    where = {
        "date": environment["date"],
        "cpu": environment["cpu"]["model"],
        "threads": result["threads"],
        "torch": environment["versions"]["torch"],
        "adaptive-labels": environment["versions"]["adaptive-labels"],
        "commit": environment["commit"],
    }
    where |= {name: result[name] for name in ("kernel", "clock") if name in result}
    out = io.StringIO()
    names = dict.fromkeys([*result["rows"][0], *where])  # rows of the growth have threads of their own
    writer = csv.DictWriter(out, list(names), lineterminator="\n")
    writer.writeheader()
    for row in result["rows"]:
        shown = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in row.items()}
        writer.writerow({**where, **shown})
    return out.getvalue()


def as_lines(result: Mapping[str, Any], group: str, name: str, rate: str) -> list[str]:
    """Rows for people, those of one ``group`` together: the ratio with its spread, and whether an aim is met.

    Args:
        result: what a measurement returned; a row has ``beside``, ``ratio``, ``p20``, ``p80``, ``seconds``, ``limit``
            and ``within`` (see :func:`verdict`), perhaps ``peak_bytes``, the most that was allocated at once.
        group: the key of the rows by which they stand together.
        name: the key of what was measured.
        rate: the key of how many a second.
    """
    lines: list[str] = []
    width = max(len(row[name]) for row in result["rows"])
    last = None
    for row in result["rows"]:
        if row[group] != last:
            last = row[group]
            lines += ["", str(last)]
        shown = f"  {row[name]:<{width}} {1e3 * row['seconds']:>10,.1f} ms"
        if row.get(rate) is not None:
            shown += f" {row[rate]:>10,.0f}/s"
        if row.get("peak_bytes") is not None:
            shown += f" {row['peak_bytes'] / 1e6:>8,.1f} MB"
        if row["beside"] is not None:
            shown += f"  {row['ratio']:6.3f} [{row['p20']:.3f}, {row['p80']:.3f}] × {row['beside']}"
        if row["within"] is not None:
            shown += f"; aim {row['limit']:.2f}: {'met' if row['within'] else 'MISSED'}"
        lines.append(shown)
    return lines


def verdict(found: float, limit: float | None) -> dict[str, Any]:
    """The entries of a row that say what the project aims at, if anything, and whether it is met.

    >>> verdict(1.01, 1.02), verdict(2.0, None)
    ({'limit': 1.02, 'within': True}, {'limit': None, 'within': None})
    """
    return {"limit": limit, "within": None if limit is None else found <= limit}

"""Measure the losses on this machine, and keep the figures with their date in benchmarks/results/.

    python benchmarks/loss.py [--seconds 60]

`alr bench loss` measures the same and keeps nothing.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

from adaptive_labels.lab import tables
from adaptive_labels.lab.benchmarks.loss import REFERENCE, as_text, bench_growth, bench_loss, draw_growth
from adaptive_labels.lab.benchmarks.measure import as_csv

COLUMNS = {
    "F.cross_entropy": "`F.cross_entropy`",
    "ALR-S, update=self": 'ALR-S, `update="self"`',
    "ALR-S, update=self, without the kernel": "the same without the kernel",
    "ALR-S, S in the optimizer": "ALR-S, S in the optimizer",
    "ALR-S, fused=False": "ALR-S, `fused=False`",
    "ols, as it is here": "OLS",
    "ls++, as it is here": "Label Smoothing++",
}
RESULTS = Path(__file__).parent / "results"
PICTURE = Path(__file__).parent.parent / "docs" / "images" / "loss-growth.svg"


def markdown(rows: list[dict[str, Any]], figure: str) -> str:
    """A table for docs/speed.md: one row per shape, one column per loss; ``figure`` is "ratio" or "memory"."""
    lines = []
    for n, k in dict.fromkeys((row["n"], row["k"]) for row in rows):
        here = {row["loss"]: row for row in rows if (row["n"], row["k"]) == (n, k)}
        cells = [f"{n} × {k:,}", f"{here[REFERENCE]['microseconds']:,.0f}"]
        for name in COLUMNS:
            row, note = here.get(name), ""
            if row is None and f"{name}, sparse" in here:
                row, note = here[f"{name}, sparse"], " (sparse)"
            cells.append("–" if row is None else f"{row[figure]:.2f}{note}")
        lines.append(cells)
    return "\n".join(tables.markdown(["N × K", "reference, µs", *COLUMNS.values()], lines, left=None))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for the table, and as much again for the growth")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    result = bench_loss(seconds=options.seconds)
    day = result["environment"]["date"][:10]
    (RESULTS / f"loss-{day}.csv").write_text(as_csv(result), encoding="utf-8")
    print(as_text(result), markdown(result["rows"], "ratio"), markdown(result["rows"], "memory"), sep="\n\n")
    grown = bench_growth(options.seconds)
    (RESULTS / f"growth-{day}.csv").write_text(as_csv(grown), encoding="utf-8")
    PICTURE.write_text(draw_growth(grown), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Measure the losses on this machine, and keep the figures with their date in benchmarks/results/.

    python benchmarks/loss.py [--seconds 60]

`alr bench loss` measures the same and keeps nothing.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

from adaptive_labels.bench.growth import bench_growth, draw
from adaptive_labels.bench.loss import as_text, bench_loss
from adaptive_labels.bench.results import as_csv

RESULTS = Path(__file__).parent / "results"
PICTURE = Path(__file__).parent.parent / "docs" / "images" / "loss-growth.svg"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for the table, and as much again for the growth")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    result = bench_loss(seconds=options.seconds)
    day = result["environment"]["date"][:10]
    (RESULTS / f"loss-{day}.csv").write_text(as_csv(result), encoding="utf-8")
    print(as_text(result))
    grown = bench_growth(options.seconds)
    (RESULTS / f"growth-{day}.csv").write_text(as_csv(grown), encoding="utf-8")
    PICTURE.write_text(draw(grown), encoding="utf-8")


if __name__ == "__main__":
    main()

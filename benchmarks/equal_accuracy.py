"""The fast network beside a narrow ResNet-18 on all of CIFAR-100: images per second, and the time to equal accuracy.

`preact-resnet18-w16` is trained by its recipe at the scale short (8 epochs), `airbench` by its recipe at the scale cpu
cut to fewer epochs, without flips at test time. They take turns, seed by seed, one thread each, in this process.
`cpu_seconds` is the processor time of the whole run: reading, training, evaluation after each epoch, final metrics.

    python benchmarks/equal_accuracy.py DATA_DIR [--seeds 2] [--width 32] [--epochs 2] [--csv FILE]
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from adaptive_labels.lab.config import RunConfig, changed
from adaptive_labels.lab.paper.recipes import load_reproduction
from adaptive_labels.lab.paper.runner import run_variant
from adaptive_labels.lab.paper.study import Variant
from measure import as_csv, described

BASELINE = Variant("baseline", "baseline")
TRAINED = 45_000  # images of an epoch


def recipes(data_dir: str, width: int, epochs: int) -> list[RunConfig]:
    """The reference first, then the fast network; its warm-up stays a quarter of the epochs."""
    slow = load_reproduction("cifar", "short").study.config("cifar100-preact-resnet18-short")
    fast = load_reproduction("cifar", "cpu").study.config("cifar100-airbench-cpu")
    options = {**fast.model.options, "flip_test": False}
    fast = changed(fast, "model", name=f"airbench-w{width}", options=options)
    fast = changed(fast, "training", epochs=epochs, warmup=epochs / 4)
    return [changed(changed(one, "data", data_dir=data_dir), "training", threads=1) for one in (slow, fast)]


def measure(config: RunConfig, seed: int) -> dict[str, Any]:
    """One run in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as out:
        began = time.process_time()
        run = run_variant(dataclasses.replace(config, seed=seed), BASELINE, Path(out), lambda event: None)
        seconds = time.process_time() - began
        result = run.result
    assert result is not None
    return {
        "network": config.model.name,
        "seed": seed,
        "epochs": result["epochs"],
        "validation": round(100 * result["metrics"]["validation"]["top1"], 2),
        "test": round(100 * result["metrics"]["test"]["top1"], 2),
        "cpu_seconds": round(seconds, 1),
        "images_per_second": round(TRAINED * result["epochs"] / seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data_dir", help="the folder that holds cifar-100-python")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--width", type=int, default=32, help="of the fast network")
    parser.add_argument("--epochs", type=int, default=2, help="of the fast network")
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    contestants = recipes(options.data_dir, options.width, options.epochs)
    rows = []
    for seed in range(options.seeds):
        for config in contestants:
            rows.append(measure(config, seed))
            print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    slow, fast = (statistics.mean(row["cpu_seconds"] for row in rows[first::2]) for first in (0, 1))
    print(f"{rows[1]['network']} takes {fast / slow:.2f} of the processor time of {rows[0]['network']}.")
    if options.csv is not None:
        found = described(rows, unit="processor seconds of a whole run", clock="process_time")
        options.csv.write_text(as_csv(found), encoding="utf-8")


if __name__ == "__main__":
    main()

"""AdaptiveLabelClassifier beside scikit-learn's MLPClassifier, both with their defaults, after a StandardScaler.

Each seed draws a split (a quarter is test) and the first weights. The classifiers take turns, one thread each, so that
whatever else the machine does hits both. `seconds` is the time of `fit`, `cpu_seconds` what of it the processor spent.

    python benchmarks/sklearn_classifier.py [--seeds 10] [--first-seed 0] [--data digits wine iris breast_cancer]
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from adaptive_labels.adapters.sklearn import AdaptiveLabelClassifier

DATA = {"digits": load_digits, "wine": load_wine, "iris": load_iris, "breast_cancer": load_breast_cancer}
CLASSIFIERS = {"MLPClassifier": MLPClassifier, "AdaptiveLabelClassifier": AdaptiveLabelClassifier}
COLUMNS = ["data", "seed", "classifier", "accuracy", "log_loss", "epochs", "seconds", "cpu_seconds"]
RESULTS = Path(__file__).parent / "results"


def measure(name: str, split: list[Any], seed: int) -> dict[str, Any]:
    """Fit one classifier on the training part of a split, and try it on the test part."""
    train, test, train_labels, test_labels = split
    pipeline = make_pipeline(StandardScaler(), CLASSIFIERS[name](random_state=seed))
    wall, cpu = time.perf_counter(), time.process_time()
    pipeline.fit(train, train_labels)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "seed": seed,
        "classifier": name,
        "accuracy": round(pipeline.score(test, test_labels), 6),
        "log_loss": round(log_loss(test_labels, pipeline.predict_proba(test)), 6),
        "epochs": pipeline[-1].n_iter_,
        "seconds": round(wall, 4),
        "cpu_seconds": round(cpu, 4),
    }


def show(data: str, rows: list[dict[str, Any]]) -> None:
    """The means of a data set, and ours as ratios to theirs."""
    of = {name: [row for row in rows if row["classifier"] == name] for name in CLASSIFIERS}
    for name, own in of.items():
        accuracy = [100 * row["accuracy"] for row in own]
        spread = f"{statistics.mean(accuracy):.2f} ± {statistics.stdev(accuracy) if len(own) > 1 else 0:.2f} %"
        loss = statistics.mean(row["log_loss"] for row in own)
        times = [statistics.median(row[column] for row in own) for column in ("seconds", "cpu_seconds")]
        print(f"{data:14}{name:26}{spread:18}log loss {loss:.4f}  fit {times[0]:.2f} s, {times[1]:.2f} s of processor")
    for column in ("seconds", "cpu_seconds"):
        pairs = zip(of["AdaptiveLabelClassifier"], of["MLPClassifier"], strict=True)
        ratios = [ours[column] / theirs[column] for ours, theirs in pairs]
        print(f"{data:14}{column}: {statistics.median(ratios):.2f} of MLPClassifier's (median of {len(ratios)} pairs)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    output = arguments.output or RESULTS / f"sklearn-classifier-{datetime.now(UTC):%Y-%m-%d}.csv"
    found: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for data in arguments.data:
            inputs, labels = DATA[data](return_X_y=True)
            warm = train_test_split(inputs, labels, test_size=0.25, random_state=0, stratify=labels)
            for name in CLASSIFIERS:
                measure(name, warm, 0)  # so that nothing is imported or compiled for the first time below
            rows = []
            for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
                split = train_test_split(inputs, labels, test_size=0.25, random_state=seed, stratify=labels)
                for name in sorted(CLASSIFIERS, reverse=bool(seed % 2)):
                    rows.append({"data": data, **measure(name, split, seed)})
            show(data, rows)
            found += rows
    with output.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    print(f"written to {output}")


if __name__ == "__main__":
    main()

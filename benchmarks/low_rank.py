"""How close a low-rank S comes to the dense one, at a number of classes where both fit.

The task: a town's name → its country, as in the data set `towns`, but with the 77 countries that have most names. Each
seed trains the same network from the same start with every form of S; the last epoch counts.

    python benchmarks/low_rank.py [--seeds 5] [--epochs 10]
"""

from __future__ import annotations

import argparse
import csv
import statistics
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from adaptive_labels.lab.analysis.residual_labels import agreement
from adaptive_labels.lab.data import load_dataset
from adaptive_labels.lab.data.encoders.ngrams import HashedNgrams
from adaptive_labels.lab.data.sources import towns
from adaptive_labels.lab.models import create_model
from adaptive_labels.losses import AdaptiveLabelLoss, LowRankAdaptiveLabelLoss

COUNTRIES, BATCH, RATE = 77, 256, 0.01
NONE, DENSE = "no residual labels", "dense"
FORMS: dict[str, Any] = {
    NONE: None,
    DENSE: AdaptiveLabelLoss,
    **{f"rank {rank}": partial(LowRankAdaptiveLabelLoss, rank=rank) for rank in (4, 16, 32)},
}
COLUMNS = ["update", "form", "seed", "accuracy", "agreement", "top_right", "distance", "same_top"]
RESULTS = Path(__file__).parent / "results"


def train(data: Any, make: Any, update: str, seed: int, epochs: int) -> tuple[float, np.ndarray, Any]:
    """Test accuracy, test confusions and residual labels of one run."""
    torch.manual_seed(seed)
    dataset, inputs, held_out = data
    shape = {"buckets": 2**13, "dim": 64, "hidden": 64, "dropout": 0.5}
    model = create_model("fasttext", num_classes=dataset.num_classes, **shape)
    shuffle = torch.Generator().manual_seed(seed)
    if make:
        criterion: Any = make(dataset.num_classes, label_smoothing=0.1, update=update)
        groups = criterion.parameter_groups()
    else:
        criterion, groups = torch.nn.CrossEntropyLoss(label_smoothing=0.1), []
    optimizer = torch.optim.AdamW([{"params": model.parameters()}, *groups], lr=RATE, weight_decay=0.0)
    count = len(dataset.train.labels)
    steps = epochs * -(-count // BATCH)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    for _ in range(epochs):
        for batch in torch.randperm(count, generator=shuffle).split(BATCH):
            optimizer.zero_grad()
            criterion(model(inputs.batch(batch)), dataset.train.labels[batch]).backward()
            optimizer.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        predicted = model(held_out.batch(torch.arange(len(dataset.test.labels)))).argmax(1)
    confusions = np.zeros((dataset.num_classes,) * 2)
    np.add.at(confusions, (dataset.test.labels.numpy(), predicted.numpy()), 1)
    labels = criterion.residual_labels().numpy() if make else None
    return float((predicted == dataset.test.labels).float().mean()), confusions, labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--out", type=Path, help="the CSV; if it is there, the seeds in it are not run again")
    options = parser.parse_args()
    towns.NUM_COUNTRIES = COUNTRIES
    dataset = load_dataset("towns")
    encoder = HashedNgrams(char_ngrams=(1, 4), word_ngrams=2, buckets=2**13)
    data = dataset, encoder.encode(dataset.train.inputs), encoder.encode(dataset.test.inputs)
    RESULTS.mkdir(exist_ok=True)
    path = options.out or RESULTS / f"low-rank-{datetime.now(UTC).date().isoformat()}.csv"
    rows = read(path)
    for seed in range(options.seeds):
        for update in ("self", "optimizer"):
            if not any((row["seed"], row["update"]) == (seed, update) for row in rows):
                rows += compare(data, update, seed, options.epochs)
                write(path, rows)
    print(table(rows))


def compare(data: Any, update: str, seed: int, epochs: int) -> list[dict[str, Any]]:
    """Every form of S with one seed."""
    rows, dense = [], None
    for form, chosen in FORMS.items():
        if update == "optimizer" and chosen is None:
            continue
        accuracy, confusions, labels = train(data, chosen, update, seed, epochs)
        row: dict[str, Any] = {"update": update, "form": form, "seed": seed, "accuracy": accuracy}
        if labels is not None:
            dense = labels if form == "dense" else dense
            found = agreement(labels, confusions)
            row |= {"agreement": found.median, "top_right": found.top1}
            row["distance"] = float(0.5 * np.abs(labels - dense).sum(1).mean())
            row["same_top"] = float((labels.argmax(1) == dense.argmax(1)).mean())
        rows.append(row)
    return rows


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of an earlier call, which are not made again."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {
                k: v if k in ("update", "form") else int(v) if k == "seed" else float(v) if v else None
                for k, v in row.items()
            }
            for row in csv.DictReader(file)
        ]


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Keep the rows."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.4f}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)


def table(rows: list[dict[str, Any]]) -> str:
    """Means over the seeds, with the standard deviation of the accuracy and of its difference from the dense S."""
    lines = [
        "| update | S | test accuracy | minus dense | agreement with errors | top error named | distance | same top |",
        "|---|---|---|---|---|---|---|---|",
    ]
    by_form: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        by_form.setdefault((row["update"], row["form"]), []).append(row)
    for (update, form), found in by_form.items():
        dense = by_form[update, "dense"]
        differences = [100 * (a["accuracy"] - b["accuracy"]) for a, b in zip(found, dense, strict=True)]
        cells = [update, form, _spread([100 * row["accuracy"] for row in found]) + "%", _spread(differences, sign=True)]
        for name in ("agreement", "top_right", "distance", "same_top"):
            values = [row[name] for row in found if row.get(name) is not None]
            cells.append(f"{statistics.mean(values):.2f}" if values else "–")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _spread(values: list[float], sign: bool = False) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):{'+' if sign else ''}.2f} ± {spread:.2f}"


if __name__ == "__main__":
    main()

"""Short trainings of every method, step by step, beside what they were when the golden files were written.

A refactoring changes none of these numbers. After a change of a method's maths, write the files again on purpose, name
the method in the changelog, and look at the difference:

    python tests/golden/test_golden.py write METHOD…
"""

from __future__ import annotations

import csv
import json
import os
import runpy
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import adaptive_labels
from adaptive_labels.lab.objectives import Distilled, Mutual, Objective, Refined, Supervised
from adaptive_labels.losses import METHODS, create_loss

FOLDER = Path(__file__).parent
CLASSES, SAMPLES, FEATURES, BATCH, EPOCHS = 7, 96, 10, 16, 4

# Registered in this file's tests alone, since others go through all methods.
AblatedLoss = runpy.run_path(str(FOLDER.parent.parent / "evidence" / "ablations.py"))["AblatedLoss"]
del METHODS["alr-ablation"]

# Options that take other ways through the code than a method's defaults do; the value has the method and its options.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {"update": "optimizer"} if name.startswith("alr") else {}) for name in METHODS},
    "alr, batch weight": ("alr-ablation", {"residual_weight": "batch"}),
    "alr, epoch weight": ("alr-ablation", {"residual_weight": "epoch"}),
    "alr, literal": ("alr-ablation", {"normalization": "literal"}),
    "alr, hybrid": ("alr-ablation", {"normalization": "hybrid"}),
    "alr-s, over the others": ("alr-ablation", {"label_smoothing": 0.1, "smooth_over": "others"}),
    "alr, constant weight": ("alr", {"update": "optimizer", "residual_weight": 0.5}),
    "alr, repelling": ("alr", {"update": "optimizer", "attraction": -2.0}),
    "alr, self": ("alr", {"update": "self", "residual_lr": 0.5}),
    "alr-s, class weights": (
        "alr-s",
        {"update": "optimizer", "weight": torch.linspace(0.5, 1.5, CLASSES, dtype=torch.float64)},
    ),
}


def data() -> tuple[Tensor, Tensor, Tensor]:
    """Clusters that overlap: inputs (N, D), labels (N,) of which one is ignored, and soft targets (N, K)."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(SAMPLES) % CLASSES
    centres = torch.randn(CLASSES, FEATURES, generator=generator, dtype=torch.float64)
    inputs = centres[labels] + torch.randn(SAMPLES, FEATURES, generator=generator, dtype=torch.float64)
    soft = nn.functional.one_hot(labels, CLASSES).double() * 0.7 + 0.3 / CLASSES
    return inputs, labels, soft


def network(seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, CLASSES)).double()


def objective_of(method: str, options: dict[str, Any]) -> Objective:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        ablated = method == "alr-ablation"
        criterion = (AblatedLoss if ablated else partial(create_loss, method))(CLASSES, **options).double()
    learns_from = None if ablated else METHODS[method].learns_from
    if learns_from == "peers":
        return Mutual([network(0), network(1)], criterion)
    if learns_from == "teacher":
        return Distilled(network(0), criterion, network(2))
    if learns_from == "generations":
        return Refined(network(0), criterion, network(2))
    return Supervised(network(0), criterion)


def steps(method: str, options: dict[str, Any], soft: bool) -> list[float]:
    """The loss of every step, and of the last batch in evaluation."""
    inputs, labels, mixed = data()
    labels[3] = -100
    target = mixed if soft else labels
    objective = objective_of(method, options)
    optimizer = torch.optim.SGD(objective.parameter_groups(lr=0.3, weight_decay=1e-3), momentum=0.9)
    losses = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)  # DisturbLabel draws
        for _ in range(EPOCHS):
            for begin in range(0, SAMPLES, BATCH):
                batch = slice(begin, begin + BATCH)
                loss, _ = objective(inputs[batch], target[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            objective.epoch_end()
        objective.eval()
        losses.append(objective(inputs[-BATCH:], labels[-BATCH:])[0].item())
    return losses


def all_steps(methods: list[str]) -> dict[str, list[float]]:
    return {
        f"{name}, {'probabilities' if soft else 'labels'}": steps(method, options, soft)
        for name, (method, options) in VARIANTS.items()
        for soft in (False, True)
        if method in methods and not (soft and method in METHODS and METHODS[method].learns_from == "generations")
    }


def texts(folder: Path) -> Path:
    """A table of made-up texts whose classes share words, the same everywhere."""
    path = folder / "texts.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for number in range(240):
            label = number % 6
            words = [f"word{(label * 3 + number * factor) % 23}" for factor in (1, 2, 5)]
            writer.writerow(
                [" ".join([f"topic{label // 2}", f"kind{(label + number % 5 // 4) % 6}", *words]), f"c{label}"]
            )
    return path


def all_epochs(methods: list[str]) -> dict[str, list[float]]:
    """Loss and accuracies by epoch, through the whole house: data, network, loop, run folder."""
    quick = {
        "training": {"epochs": 3, "threads": 1, "batch_size": 16, "lr": 0.05},
        "model": {"options": {"buckets": 512, "dim": 16}},
    }
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for run in adaptive_labels.compare(texts(folder), methods, 1, out=folder / "runs", settings=quick):
            history = [json.loads(line) for line in (run.path / "history.jsonl").read_text().splitlines()]
            result = json.loads((run.path / "result.json").read_text())
            figures = [
                epoch[key] for epoch in history for key in ("train_loss", "validation_loss", "validation_accuracy")
            ]
            found[result["method"]] = [*figures, result["metrics"]["test"]["nll"], result["metrics"]["test"]["top1"]]
    return found


def written(name: str) -> dict[str, list[float]]:
    return json.loads((FOLDER / name).read_text())


@pytest.mark.parametrize("name", sorted(written("steps.json")) if (FOLDER / "steps.json").exists() else ["?"])
def test_every_step_has_the_loss_it_had(name: str) -> None:
    variant, _, kind = name.rpartition(", ")
    method, options = VARIANTS[variant]
    assert steps(method, options, kind == "probabilities") == pytest.approx(written("steps.json")[name], rel=1e-11)


def test_every_method_has_golden_steps() -> None:
    assert {f"{name}, labels" for name in VARIANTS} <= set(written("steps.json"))


def test_every_method_trains_as_it_did() -> None:
    golden = written("epochs.json")
    now = all_epochs(list(METHODS))
    assert set(now) == set(golden) == set(METHODS)
    for method in now:
        assert now[method] == pytest.approx(golden[method], rel=1e-4), method


if __name__ == "__main__" and sys.argv[1:2] == ["write"]:
    os.environ["ALR_ENCODERS"] = "off"  # as in the tests
    for file, make, known in (("steps.json", all_steps, VARIANTS), ("epochs.json", all_epochs, METHODS)):
        chosen = [name for name in sys.argv[2:] if name in known]
        (FOLDER / file).write_text(json.dumps({**written(file), **make(chosen)}, indent=0) + "\n")

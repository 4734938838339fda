"""Trains every case as one of several processes, or alone; run by test_processes.py: RANK WORLD INIT OUT."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from training_parts import Bag, Memory, Ragged, Rows, config_with

from adaptive_labels.lab.data.augment import random_crop, random_cutout, random_flip
from adaptive_labels.lab.objectives import Distilled, Mutual, Objective, Refined, Supervised
from adaptive_labels.lab.training.evaluation import predict_logits
from adaptive_labels.lab.training.loop import fit
from adaptive_labels.lab.training.progress import Reporter
from adaptive_labels.losses import METHODS, create_loss

K, TRAIN, HELD_OUT = 4, 38, 11  # batches of 7, and one of 3, of which the second process has nothing

ALL = {"accumulate": 2, "clip_norm": 0.5, "ema": 0.8, "batch_size": 13}
WEIGHTS = torch.tensor([1.0, 2.0, 0.5, 3.0])
# The method, its options, the network, and what differs in the configuration.
CASES: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    **{name: (name, {}, "plain", {}) for name in METHODS},
    "accumulate, clip, average": ("alr-s", {}, "plain", ALL),
    "dml, accumulate, clip, average": ("dml", {}, "plain", ALL),
    "adamw": ("alr", {}, "plain", {"optimizer": "adamw", "lr": 0.01}),
    "class weights": ("alr-s", {"weight": WEIGHTS}, "plain", {"accumulate": 2, "batch_size": 13}),
    "optimizer": ("alr", {"update": "optimizer"}, "plain", {}),
    "S in the optimizer": ("alr", {"update": "optimizer"}, "plain", {}),
    "batch norm": ("alr", {}, "normed", {"sync_batchnorm": True}),
    "batch norm of images, augmented": ("alr-s", {}, "images", {"sync_batchnorm": True, "augment": True}),
    "channels last": ("alr", {}, "images", {"sync_batchnorm": True, "channels_last": True}),
    "sparse texts": ("alr-s", {}, "texts", {"optimizer": "adam", "lr": 0.01, "clip_norm": 0.5}),
    "bfloat16": ("alr-s", {}, "plain", {"precision": "bf16-mixed"}),
}


class Unused(nn.Sequential):
    """A network with a parameter that no forward uses: it must not decay."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.unused = nn.Parameter(torch.ones(3))


def network(kind: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    if kind == "texts":
        bag = Bag(sparse=True)
        bag.head = nn.Linear(8, K)
        return bag
    if kind == "images":
        first, norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4, momentum=None)
        return nn.Sequential(first, norm, nn.Tanh(), nn.Flatten(), nn.Linear(4 * 36, K))
    norms = [nn.BatchNorm1d(12)] if kind == "normed" else []
    return Unused(nn.Linear(6, 12), *norms, nn.Tanh(), nn.Linear(12, K))


def objective_of(case: str) -> Objective:
    method, options, kind, _ = CASES[case]
    torch.manual_seed(3)
    criterion, learns_from = create_loss(method, K, **options), METHODS[method].learns_from
    if learns_from == "peers":
        return Mutual([network(kind, 0), network(kind, 1)], criterion)
    if learns_from is not None:
        return (Distilled if learns_from == "teacher" else Refined)(network(kind, 0), criterion, network(kind, 2))
    return Supervised(network(kind, 0), criterion)


def examples_of(case: str, count: int, seed: int) -> tuple[Any, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(K, (count,), generator=generator)
    if CASES[case][2] == "texts":
        lengths = torch.randint(1, 6, (count,), generator=generator)
        return Ragged(torch.randint(50, (int(lengths.sum()),), generator=generator), lengths), labels
    shape = (3, 6, 6) if CASES[case][2] == "images" else (6,)
    return Rows(torch.randn(count, *shape, generator=generator) + labels.view(-1, *[1] * len(shape)) / 2), labels


def changed(inputs: Tensor, generator: torch.Generator, epoch: int, part: Any) -> Tensor:
    among = part.begin, len(part.whole)
    return random_cutout(random_crop(random_flip(inputs, generator, among), 1, generator, among), 2, generator, among)


def trained(case: str) -> dict[str, Any]:
    """All that must not depend on how many processes there are."""
    objective = objective_of(case)
    train, validation = examples_of(case, TRAIN, 4), examples_of(case, HELD_OUT, 5)
    config = config_with(**{"batch_size": 7, "early_stop": 3, **CASES[case][3]})
    recorder = Memory()
    augment = changed if config.augment else None
    common = {"recorder": recorder, "reporter": Reporter(), "augment": augment}
    result = fit(objective, *train, validation, config, 6, **common)
    found: dict[str, Any] = dict(objective.state_dict())
    for record in result.history:
        figures = {**record, **record["parts"]}
        numbers = {name: value for name, value in figures.items() if name not in ("seconds", "parts")}
        found |= {f"{name} after epoch {record['epoch']}": torch.tensor(value) for name, value in numbers.items()}
    found |= {f"residual labels after epoch {epoch}": torch.tensor(m) for epoch, m in recorder.matrices.items()}
    found["logits"] = predict_logits(objective.model, train[0], batch_size=5)
    return found


def main(rank: int, world: int, init: str, out: str) -> None:
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{init}", rank=rank, world_size=world)
    torch.save({case: trained(case) for case in CASES}, f"{out}.{world}.{rank}")
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])

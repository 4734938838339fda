"""Training images a second of the project's loop beside a bare PyTorch loop of the same network on the same tensors.

Both train an epoch of random images in shuffled batches (SGD with momentum, fused, cross entropy) and look at a few
held-out images after it, as the project's loop always does. The bare loop counts, checks and reports nothing. A third
variant is the project's loop with all that a CIFAR run does: images kept as uint8, normalised, flipped and cropped.
The variants take turns in one process.

    python benchmarks/train.py [--seconds 100] [--images 256] [--threads 1] [--cpu-time] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from timing import hardware, ratios, take_turns
from torch import Tensor
from torch.nn import functional as F

from adaptive_labels.config import TrainingConfig
from adaptive_labels.criteria import create_criterion
from adaptive_labels.data.augment import random_crop, random_flip
from adaptive_labels.data.encoding import ImageEncoder
from adaptive_labels.models import create_model
from adaptive_labels.objectives import Inputs, Supervised
from adaptive_labels.training.loop import fit
from adaptive_labels.training.progress import SilentReporter

MODELS = ("preact-resnet18-w16", "resnet32")
CLASSES, BATCH, HELD_OUT = 100, 128, 16
BARE, LOOP, WHOLE = "bare loop", "project's loop", "project's loop, from uint8, flips and crops"
CONFIG = TrainingConfig(
    epochs=1,
    batch_size=BATCH,
    optimizer="sgd",
    lr=0.01,
    weight_decay=5e-4,
    schedule="constant",
    augment=False,
    residual_lr=1.0,
    device="cpu",
)


@dataclass(frozen=True)
class Floats:
    """Images that are float tensors already."""

    images: Tensor

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, indices: Tensor) -> Tensor:
        return self.images[indices]


class NoRecorder:
    """Keeps nothing."""

    def epoch(self, record: Any) -> None: ...
    def residual_labels(self, epoch: int, matrix: Any) -> None: ...
    def rewind(self, epoch: int) -> None: ...


def augment(inputs: Inputs, generator: torch.Generator) -> Inputs:
    assert isinstance(inputs, Tensor)
    return random_crop(random_flip(inputs, generator), 4, generator)


def variants(name: str, images: int) -> dict[str, Callable[[], object]]:
    raw = torch.randint(256, (images + HELD_OUT, 3, 32, 32), dtype=torch.uint8)
    labels = torch.randint(CLASSES, (images + HELD_OUT,))
    train, held_out = raw[:images], raw[images:]
    encoder = ImageEncoder.fit(train)
    pixels = encoder.encode(raw).batch(torch.arange(len(raw)))
    floats = pixels[:images].clone(), pixels[images:].clone()
    targets = labels[:images], labels[images:]
    bare = create_model(name, CLASSES)
    optimizer = torch.optim.SGD(
        bare.parameters(), lr=CONFIG.lr or 0, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True
    )

    def bare_loop() -> None:
        bare.train()
        for batch in torch.randperm(images).split(BATCH):
            loss = F.cross_entropy(bare(floats[0][batch]), targets[0][batch])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        bare.eval()
        with torch.no_grad():
            F.cross_entropy(bare(floats[1]), targets[1])

    def projects_loop(whole: bool) -> Callable[[], object]:
        objective = Supervised(create_model(name, CLASSES), create_criterion("baseline", CLASSES))
        first, second = (encoder.encode(train), encoder.encode(held_out)) if whole else map(Floats, floats)

        def loop() -> None:
            quiet = {"recorder": NoRecorder(), "reporter": SilentReporter()}
            fit(
                objective,
                first,
                targets[0],
                (second, targets[1]),
                CONFIG,
                0,
                augment=augment if whole else None,
                **quiet,
            )

        return loop

    return {BARE: bare_loop, LOOP: projects_loop(False), WHOLE: projects_loop(True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=100.0, help="in all")
    parser.add_argument("--images", type=int, default=256, help="an epoch")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpu-time", action="store_true", help="count processor time, for a busy machine")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = time.process_time if options.cpu_time else time.perf_counter
    rows = []
    for name in MODELS:
        times = take_turns(variants(name, options.images), options.seconds / len(MODELS), clock=clock)
        for variant, each in times.items():
            speed = options.images / statistics.median(each)
            rows.append({"model": name, "loop": variant, "images_per_second": speed, **ratios(times[BARE], each)})
    if options.json:
        print(
            json.dumps(
                {"reference": BARE, "batch": BATCH, "clock": clock.__name__, **hardware(), "rows": rows}, indent=2
            )
        )
        return
    machine = f"torch {torch.__version__}, {options.threads} threads, {clock.__name__}"
    print(f"Batches of {BATCH}, 32×32 RGB; {machine}; speeds as multiples of the {BARE}'s.")
    for row in rows:
        spread = f"[{row['p20']:.3f}, {row['p80']:.3f}]"
        print(
            f"{row['model']:<20} {row['loop']:<44} {row['images_per_second']:7,.0f} images/s  {row['ratio']:.3f}  "
            f"{spread}  {row['rounds']} rounds"
        )


if __name__ == "__main__":
    main()

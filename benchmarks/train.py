"""The training loop compared with a bare PyTorch loop, and ALR-S compared with the baseline.

    python benchmarks/train.py [--networks preact-resnet18-w16,fasttext] [--aims-only] [--compiled] [--threads 1]

In a turn each variant makes a new optimizer, trains the same network on the same examples for an epoch (texts: three)
and evaluates it on held-out ones, a ninth as many, as the project's loop always does. The bare loop counts, checks and
reports nothing.
"""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adaptive_labels.errors import UserError
from adaptive_labels.lab.config import DataConfig, ModelConfig, RunConfig, TrainingConfig
from adaptive_labels.lab.data import Examples
from adaptive_labels.lab.data.augment import random_crop, random_flip
from adaptive_labels.lab.data.encoders.embeddings import Vectors
from adaptive_labels.lab.data.encoders.images import ImageEncoder
from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.experiments.resolve import resolve_for
from adaptive_labels.lab.machine import usable_cores
from adaptive_labels.lab.models import create_model, find_model
from adaptive_labels.lab.objectives import Inputs, Supervised
from adaptive_labels.lab.training.batches import Augment, BatchSource, ProcessSlice
from adaptive_labels.lab.training.evaluation import LARGE_BATCH, evaluate_objective
from adaptive_labels.lab.training.loop import fit
from adaptive_labels.lab.training.progress import Reporter
from adaptive_labels.lab.training.recorders import Recorder
from adaptive_labels.losses import create_loss
from measure import Row, Step, described, make_parser, measure, peak_memory, ratio_row, turns

NETWORKS = ("preact-resnet18-w16", "airbench-w32", "resnet32", "fasttext")
FULL = "preact-resnet18"
CLASSES, SIZE, PADDING, TRAINED_PER_HELD_OUT = 100, 32, 4, 9
BARE, LOOP, ADAPTIVE = "bare PyTorch loop", "the project's loop", "the same with ALR-S"
CHANGED = "the same from bytes, with flips and crops"
CHANNELS_LAST, THREADS, COMPILED = "the same, channels_last", "the same, 2 threads", "the same, compile"
TEXT_EPOCHS = 3
EVALUATION = "its evaluation alone"
LOOP_AIM = 1 / 0.97
ADAPTIVE_AIMS = {"image": 1.02, "text": 1.10}


@dataclass(frozen=True)
class Task:
    """A network of a kind ("image" or "text"), what it trains on, and how.

    images: the training and held-out examples as bytes, of an image network.
    """

    network: str
    kind: str
    make_network: Callable[[], nn.Module]
    classes: int
    train: BatchSource
    labels: Tensor
    validation: tuple[BatchSource, Tensor]
    config: TrainingConfig
    images: tuple[BatchSource, BatchSource] | None = None


def bench_train(
    networks: Sequence[str] = NETWORKS,
    seconds: float = 180.0,
    *,
    examples: int | None = None,
    batch: int | None = None,
    compiled: bool = False,
    cpu_time: bool = False,
    aims_only: bool = False,
) -> dict[str, Any]:
    """Measure every network: one row per variant, with its time as a multiple of another's, round by round.

    Args:
        networks: their names; text networks train on ``towns`` with the usual recipe, image networks on noise.
        seconds: how long, about, in all.
        examples: of an epoch; four batches of images (one for the full width), all towns.
        batch: examples of a step; 32 images, the recipe's number of texts. A turn is short, so that there are many: a
            machine's speed wanders by more than what is measured.
        compiled: measure ``torch.compile`` of the network as well; its compiling takes tens of seconds.
        cpu_time: count the time on a processor instead of the time that passes.
        aims_only: only what has an aim, and what it is measured beside: more rounds in the same time.
    """
    clock = time.process_time if cpu_time else time.perf_counter
    rows = []
    for name in networks:
        task = make_task(name, examples, batch)
        steps = variants(task, compiled)
        if aims_only:
            steps = {variant: steps[variant] for variant in (BARE, LOOP, ADAPTIVE)}
        times = turns(steps, seconds / len(networks), warm_up=1, clock=clock)
        rows += rows_of(task, times, {variant: peak_memory(step) for variant, step in steps.items()})
    unit = "training and evaluation; times as multiples, round by round"
    return described(rows, unit=unit, clock=clock.__name__, group="network", name="variant")


def make_task(name: str, examples: int | None = None, batch: int | None = None) -> Task:
    """A network with its data and recipe; a `UserError` for one that reads neither texts nor pixels."""
    entry = find_model(name)[0]
    if entry.kind == "text":
        return _texts(name, examples, batch)
    if entry.reads_with({}) != "pixels":
        raise UserError(f"networks: {name!r} cannot be measured, since it reads neither texts nor pixels")
    return _images(name, examples, batch)


def _images(name: str, examples: int | None, batch: int | None) -> Task:
    batch = batch or 32
    count = examples or (batch if name == FULL else 4 * batch)
    held_out = max(2, count // TRAINED_PER_HELD_OUT)
    generator = torch.Generator().manual_seed(0)
    raw = torch.randint(256, (count + held_out, 3, SIZE, SIZE), dtype=torch.uint8, generator=generator)
    labels = torch.randint(CLASSES, (count + held_out,), generator=generator)
    encoder = ImageEncoder.fit(raw[:count])
    in_bytes = encoder.encode(raw[:count]), encoder.encode(raw[count:])
    every = [torch.arange(len(images)) for images in in_bytes]
    # As floats already, so that only the loop is measured.
    train, validation = (Vectors(images.batch(rows), rows) for images, rows in zip(in_bytes, every, strict=True))
    config = TrainingConfig(
        epochs=1,
        batch_size=batch,
        optimizer="sgd",
        lr=0.01,
        weight_decay=5e-4,
        schedule="cosine",
        augment=False,
        residual_lr=float(CLASSES),
        device="cpu",
    )
    network, held_out_labels = functools.partial(create_model, name, CLASSES), labels[count:]
    return Task(name, "image", network, CLASSES, train, labels[:count], (validation, held_out_labels), config, in_bytes)


def _texts(name: str, examples: int | None, batch: int | None) -> Task:
    given = RunConfig(data=DataConfig("towns"), model=ModelConfig(name))
    dataset = build.load_data(given.data, given.model)
    config, _ = resolve_for(given, dataset)
    encoder = build.make_encoder(config, dataset)
    # Setting up takes as long as a step of so small a network, and is done once per run.
    training = replace(config.training, epochs=1 if examples else TEXT_EPOCHS, device="cpu")
    if batch is not None:
        training = replace(training, batch_size=batch)

    def first(of: Examples, count: int) -> tuple[BatchSource, Tensor]:
        few = of.subset(torch.arange(min(count, len(of)))) if examples else of
        return build.encode_split(encoder, few), few.labels

    train, labels = first(dataset.train, examples or 0)
    validation = first(dataset.validation, max(2, (examples or 0) // TRAINED_PER_HELD_OUT))
    network = functools.partial(build.make_model, config, dataset.num_classes, encoder.sizes)
    return Task(name, "text", network, dataset.num_classes, train, labels, validation, training)


def variants(task: Task, compiled: bool) -> dict[str, Step]:
    """What takes turns, by name.

    All train one network, since where its weights lie in memory makes a difference of some percent; only another layout
    or a compiled forward has a network of its own.
    """
    torch.manual_seed(0)
    network = task.make_network()
    objective = Supervised(network, create_loss("baseline", task.classes))

    def evaluation() -> None:
        for _ in range(task.config.epochs or 1):
            evaluate_objective(objective, *task.validation, device=torch.device("cpu"))

    found = {
        BARE: bare_loop(task, network),
        LOOP: projects_loop(task, network),
        ADAPTIVE: projects_loop(task, network, method="alr-s"),
        EVALUATION: evaluation,
    }
    if task.images is not None:
        train, validation = task.images
        changed = replace(task, train=train, validation=(validation, task.validation[1]))
        found[CHANGED] = projects_loop(changed, network, augment=_flip_and_crop)
        found[CHANNELS_LAST] = projects_loop(task, task.make_network(), channels_last=True)
    if usable_cores() > 1 and torch.get_num_threads() == 1:
        found[THREADS] = projects_loop(task, network, threads=2)
    if compiled:
        found[COMPILED] = projects_loop(task, task.make_network(), compile=True)
    return found


def projects_loop(
    task: Task, network: nn.Module, method: str = "baseline", augment: Augment | None = None, **settings: Any
) -> Step:
    """An epoch of the project's own loop, which trains the network on and on."""
    objective = Supervised(network, create_loss(method, task.classes))
    config = replace(task.config, **settings)
    data = (task.train, task.labels, task.validation)
    return functools.partial(
        fit, objective, *data, config, 0, recorder=Recorder(), reporter=Reporter(), augment=augment
    )


def _flip_and_crop(inputs: Inputs, generator: torch.Generator, epoch: int, part: ProcessSlice) -> Inputs:
    assert isinstance(inputs, Tensor)
    return random_crop(random_flip(inputs, generator), PADDING, generator)


def bare_loop(task: Task, model: nn.Module) -> Step:
    """The loop that one would write by hand, with the same optimizer."""
    config, (validation, held_out) = task.config, task.validation

    def loop() -> None:
        optimizer = _optimizer(model, config)
        for _ in range(config.epochs or 1):
            model.train()
            for batch in torch.randperm(len(task.labels)).split(config.batch_size):  # type: ignore[no-untyped-call]
                loss = F.cross_entropy(model(task.train.batch(batch)), task.labels[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                optimizer.zero_grad()
            model.eval()
            with torch.no_grad():
                for batch in torch.arange(len(held_out)).split(LARGE_BATCH):  # type: ignore[no-untyped-call]
                    F.cross_entropy(model(validation.batch(batch)), held_out[batch])

    return loop


def _optimizer(model: torch.nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    shared: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay, "fused": True}
    if config.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), momentum=config.momentum, nesterov=True, **shared)
    return torch.optim.AdamW(model.parameters(), betas=config.betas, **shared)


def rows_of(task: Task, times: dict[str, list[float]], memory: dict[str, int]) -> list[Row]:
    """A row for each variant of a network, from its times and the peak of its allocations."""
    aims = {LOOP: LOOP_AIM, ADAPTIVE: ADAPTIVE_AIMS[task.kind]}
    examples = len(task.labels) * (task.config.epochs or 1)
    rows = []
    for name in times:
        beside = None if name == BARE else BARE if name in (LOOP, CHANGED) else LOOP
        row = ratio_row(times, name, beside, aims.get(name))
        rate = None if name == EVALUATION else examples / row["seconds"]
        what = {"network": task.network, "batch": task.config.batch_size, "examples": examples, "variant": name}
        rows.append({**what, **row, "examples_per_second": rate, "peak_bytes": memory[name]})
    return rows


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--networks", type=lambda text: text.split(","), default=NETWORKS, help="NAME,...")
    parser.add_argument("--aims-only", action="store_true", help="only what has an aim, more often")
    parser.add_argument("--compiled", action="store_true", help="torch.compile, too; takes minutes")
    parser.add_argument("--examples", type=int, help="of an epoch")
    parser.add_argument("--batch", type=int, help="examples of a step")
    measure(bench_train, parser.parse_args())


if __name__ == "__main__":
    main()

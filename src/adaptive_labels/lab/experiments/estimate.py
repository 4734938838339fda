"""Estimate the cost of runs from a few steps and inputs, before all data is encoded."""

from __future__ import annotations

import dataclasses
import json
import time
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from adaptive_labels.lab.config import RunConfig
from adaptive_labels.lab.data import Dataset, Encoder, Pretrained
from adaptive_labels.lab.data.encoders.embeddings import Vectors
from adaptive_labels.lab.experiments import build, teachers
from adaptive_labels.lab.experiments.plan import cost_key
from adaptive_labels.lab.training.batches import batches, inputs_of, to_device
from adaptive_labels.lab.training.session import Session, contained

MEASURED_SECONDS = 2.0  # for the steps of one kind of run
FIRST_ENCODED, ENCODED_EXAMPLES = 16, 60  # that a pretrained encoder is timed with: too few to be kept
SLOW_STEP = 5  # times what may be measured: then the first step is enough, though it is slower than others
EPOCH_SECONDS = 0.02  # at the end of each epoch: its line of the history is written through to the disk

Known = dict[str, float]
"""What was measured before, by what it depends on: seconds of a step, and of an input that is encoded."""


def seconds_of_encoding(config: RunConfig, dataset: Dataset, measured: float, known: Known) -> float:
    """How long a pretrained encoder may take for what it has not encoded yet, from a few inputs; 0 for any other."""
    encoder = build.make_encoder(config, dataset)
    lacking = count_lacking(encoder, dataset)
    if not lacking or not isinstance(encoder, Pretrained):
        return 0.0
    key = json.dumps([encoder.cache_key(), _shape(dataset)])
    if key not in known:
        known[key] = _seconds_each(encoder, dataset, measured)
    return known[key] * lacking


def count_lacking(encoder: Encoder, dataset: Dataset) -> int:
    """How many inputs of a data set a pretrained encoder has not encoded yet; none for any other."""
    if not isinstance(encoder, Pretrained):
        return 0
    return sum(encoder.lacking(examples.inputs) for _, examples in dataset.splits())


def _seconds_each(encoder: Any, dataset: Dataset, measured: float) -> float:
    """Seconds per input, from a few inputs; from more than the first ones only if those were fast."""
    few = _few(dataset).train
    build.encode(encoder, few.subset(torch.arange(1)))  # reads the weights
    for count in (FIRST_ENCODED, ENCODED_EXAMPLES):
        some = few.subset(torch.linspace(0, len(few) - 1, min(count, len(few))).round().long())
        began, lacking = time.perf_counter(), encoder.lacking(some.inputs)
        build.encode(encoder, some)
        seconds = time.perf_counter() - began
        if seconds > measured / 4:
            break
    return seconds / max(int(lacking), 1)


def _few(dataset: Dataset) -> Dataset:
    """The data set with few training examples, which are encoded in no time."""
    count = len(dataset.train)
    chosen = torch.linspace(0, count - 1, min(count, ENCODED_EXAMPLES)).round().long()
    return dataclasses.replace(dataset, train=dataset.train.subset(chosen))


def _shape(dataset: Dataset) -> list[int]:
    inputs = dataset.train.inputs
    return list(inputs.shape[1:]) if isinstance(inputs, Tensor) else []


def seconds_of_run(config: RunConfig, dataset: Dataset, threads: int, measured: float, known: Known) -> float:
    """How long a run may take, from a few of its steps without the first, timed for ``measured`` seconds."""
    training = config.training
    assert training.batch_size is not None
    assert training.epochs is not None
    key = json.dumps([cost_key(config), build.reading(config), training.batch_size, threads, _shape(dataset)])
    if key not in known:
        known[key] = _seconds_of_step(config, dataset, threads, measured)
    steps = training.epochs * -(-len(dataset.train) // training.batch_size)
    looked_at = training.epochs * len(dataset.validation) + len(dataset.test)
    # A forward pass alone takes about a third of a step.
    return training.epochs * EPOCH_SECONDS + known[key] * (steps + looked_at / training.batch_size / 3)


def _seconds_of_step(config: RunConfig, dataset: Dataset, threads: int, measured: float) -> float:
    training = config.training
    assert training.batch_size is not None
    encoder, teacher = build.make_encoder(config, dataset), None
    shown = min(len(dataset.train), 20 * training.batch_size)
    if isinstance(encoder, Pretrained):
        dataset, sizes = _few(dataset), encoder.sizes

        def random(inputs: Any) -> Vectors:
            return Vectors(torch.randn(len(inputs), sizes["in_features"]).half(), torch.arange(len(inputs)))

        if not encoder.tune:  # random features will do, as many as its own
            encoder = cast(Encoder, SimpleNamespace(sizes=sizes, encode=random))
    few = dataset.train.subset(torch.arange(min(len(dataset.train), shown)))
    if (guide := teachers.teacher_model(config)) is not None:  # an untrained one costs as much
        teacher = build.make_model(dataclasses.replace(config, model=guide), dataset.num_classes, encoder.sizes)
    session = Session(build.make_objective(config, dataset, encoder, teacher), training)
    times: list[float] = []
    with contained(session.device, training.threads or threads):
        session.objective.train()
        groups = list(batches(torch.arange(shown) % len(few), training.batch_size))
        upcoming = inputs_of(build.encode(encoder, few), groups)
        began = time.perf_counter()
        for batch in groups:
            step = time.perf_counter()
            target = few.labels[batch].to(session.device)
            with session.autocast():
                loss, _ = session.objective(to_device(next(upcoming), session.device), target)
            session.backward(loss)
            session.step()
            loss.item()  # waits for a GPU, which would go on in the background
            times.append(time.perf_counter() - step)
            taken = time.perf_counter() - began
            if taken > measured and (len(times) >= 2 or taken > SLOW_STEP * measured):
                break
    settled = sorted(times[1:] or times)
    return settled[len(settled) // 2]

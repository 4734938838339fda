"""What a run costs, measured on a few of its steps, and recipes that are made shorter to cost less."""

from __future__ import annotations

import dataclasses
import json
import time

import torch

from adaptive_labels.config import RunConfig, TrainingConfig, to_dict
from adaptive_labels.data import Dataset
from adaptive_labels.experiments import build, teachers as teaching
from adaptive_labels.training.batches import batches, inputs_of, to_device
from adaptive_labels.training.session import Session, contained


def cost_key(config: RunConfig) -> str:
    """What a run's cost depends on within one comparison: the networks that are trained, and the one that teaches."""
    teacher = teaching.teacher_model(config)
    networks = [to_dict(model) for model in teaching.networks(config)]
    return json.dumps([networks, None if teacher is None else to_dict(teacher)], sort_keys=True)


def seconds_of_run(config: RunConfig, dataset: Dataset, threads: int, at_most: float = 2.0) -> float:
    """How long a run may take, from a few of its steps, leaving the first ones out."""
    training = config.training
    assert training.batch_size is not None
    assert training.epochs is not None
    few = dataset.train.subset(torch.arange(min(len(dataset.train), 20 * training.batch_size)))
    encoder = build.make_encoder(config, dataset)
    guide = teaching.teacher_model(config)
    like = None if guide is None else dataclasses.replace(config, model=guide)
    teacher = None if like is None else build.make_model(like, dataset.num_classes, encoder.sizes)
    session = Session(build.make_objective(config, dataset, encoder, teacher), training)
    times: list[float] = []
    with contained(session.device, training.threads or threads):
        session.objective.train()
        began = time.perf_counter()
        groups = list(batches(torch.arange(len(few)), training.batch_size))
        upcoming = inputs_of(build.encode(encoder, few), groups)
        for batch in groups:
            step = time.perf_counter()
            target = few.labels[batch].to(session.device)
            with session.autocast():
                loss, _ = session.objective(to_device(next(upcoming), session.device), target)
            session.backward(loss)
            session.step()
            times.append(time.perf_counter() - step)
            if time.perf_counter() - began > at_most and len(times) >= 2:
                break
    settled = sorted(times[1:] or times)
    each = settled[len(settled) // 2]
    steps = training.epochs * -(-len(dataset.train) // training.batch_size)
    looked_at = training.epochs * len(dataset.validation) + len(dataset.test)
    # A forward pass alone takes about a third of a step.
    return each * (steps + looked_at / training.batch_size / 3)


def shortened(training: TrainingConfig, epochs: int) -> TrainingConfig:
    """A recipe with another number of epochs: its milestones and its warm-up keep their share of the run.

    >>> config = TrainingConfig(epochs=200, schedule="step", milestones=(60, 120), warmup=10)
    >>> shorter = shortened(config, 10)
    >>> shorter.milestones, shorter.warmup
    ((3.0, 6.0), 0.5)
    """
    assert training.epochs is not None
    share = epochs / training.epochs
    milestones = tuple(share * epoch for epoch in training.milestones)
    return dataclasses.replace(training, epochs=epochs, milestones=milestones, warmup=share * training.warmup)

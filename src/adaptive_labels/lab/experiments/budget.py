"""How long a plan will take, from a few of its steps, and how it keeps to a time budget.

Seeds are outermost, and nothing is started that cannot end in time. If not even one seed of every method fits, every
run has fewer epochs.
"""

import dataclasses
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch

from adaptive_labels.lab.config import ConfigError, RunConfig, TrainingConfig
from adaptive_labels.lab.data import Dataset, Encoder, Pretrained
from adaptive_labels.lab.data.encoders.embeddings import Vectors
from adaptive_labels.lab.experiments import build, teachers
from adaptive_labels.lab.experiments.plan import Entry, Plan, plan_runs
from adaptive_labels.lab.files import parse_json, write_json
from adaptive_labels.lab.machine import usable_cores
from adaptive_labels.lab.training.batches import batches, inputs_of, to_device
from adaptive_labels.lab.training.session import Session, contained

BUDGETS = "time-budgets.json"
USED = 0.8  # of what is left is planned for: there is also a test at the end of each run, and a report
MEASURED_SECONDS = 2.0  # for the steps of one kind of run
FEW_EXAMPLES = 60  # that a pretrained encoder is timed with: too few to be kept
EPOCH_SECONDS = 0.02  # at the end of each epoch: its line of the history is written through to the disk


def measured(plan: Plan) -> Plan:
    """The plan with its costs: seconds of each kind of run, and of the encoding before all of them."""
    kinds = {build.reading(entry.config): entry.config for entry in plan.todo}
    different = {entry.kind: entry.config for entry in reversed(plan.todo)}
    threads = max(1, usable_cores() // plan.workers)
    return dataclasses.replace(
        plan,
        costs={key: seconds_of_run(run, plan.dataset, threads) for key, run in different.items()},
        encoding=sum(seconds_of_encoding(run, plan.dataset) for run in kinds.values()),
    )


def fit_into(plan: Plan) -> Plan:
    """A measured plan with as many epochs as let one seed of every method end within its budget.

    What an earlier call with this budget led to in this folder is taken again, so that it finds its own runs.
    """
    assert plan.budget is not None
    asked = json.dumps([[entry.folder.name for entry in plan.own], plan.budget.seconds])
    budget = dataclasses.replace(plan.budget, key=hashlib.sha256(asked.encode()).hexdigest()[:16])
    plan, epochs = dataclasses.replace(plan, budget=budget), plan.own[0].config.training.epochs or 1
    chosen = _chosen(plan.out).get(budget.key)
    if isinstance(chosen, int) and 0 < chosen <= epochs:
        return with_epochs(plan, chosen)
    first = sum(map(plan.stage_seconds, _of_first_seed(plan)))
    room = USED * budget.left - plan.starting
    if room * epochs < first:
        least = budget.seconds - budget.left + (plan.starting + first / epochs) / USED
        raise ConfigError(
            f"time-budget is {budget.seconds:.3g} s, but even one epoch and one seed of every method take longer: "
            f"about {least:,.0f} s; give more time, fewer methods, or a smaller --model"
        )
    return with_epochs(plan, epochs if first <= room else int(epochs * room / first))


def fits(plan: Plan, stage: Sequence[Entry], slowness: float) -> bool:
    """Whether a stage ends within the budget, at a speed that was so many times lower than estimated until now."""
    if plan.budget is None:
        return True
    seconds = 0.0 if plan.costs is None else plan.stage_seconds(stage) * slowness
    return seconds <= plan.budget.left > 0


def keep_choice(plan: Plan) -> None:
    """Keep what the plan's budget led to beside its runs."""
    if plan.budget is not None:
        plan.out.mkdir(parents=True, exist_ok=True)
        write_json(plan.out / BUDGETS, {**_chosen(plan.out), plan.budget.key: plan.own[0].config.training.epochs})


def _chosen(out: Path) -> Mapping[str, Any]:
    try:
        stored = parse_json((out / BUDGETS).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # none yet, or not ours: then it is measured again
        return {}
    return stored if isinstance(stored, dict) else {}


def _of_first_seed(plan: Plan) -> list[tuple[Entry, ...]]:
    first = min(entry.config.seed for entry in plan.own)
    return [stage for stage in plan.stages if stage[0].config.seed <= first]


def with_epochs(plan: Plan, epochs: int) -> Plan:
    """A plan with so many epochs in every run, and its costs and notes accordingly."""
    before = plan.own[0].config.training.epochs
    assert before is not None
    if epochs == before:
        return plan
    configs = [
        dataclasses.replace(c, training=shortened(c.training, epochs)) for c in (entry.config for entry in plan.own)
    ]
    costs = None if plan.costs is None else {key: cost * epochs / before for key, cost in plan.costs.items()}
    notes = (*plan.notes, f"To stay within the time budget, every run has {epochs} instead of {before} epochs.")
    again = plan_runs(plan.dataset, configs, plan.out)
    return dataclasses.replace(plan, own=again.own, first=again.first, costs=costs, notes=notes)


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


# ---------------------------------------------------------------------------------------------------------- measuring


def seconds_of_encoding(config: RunConfig, dataset: Dataset) -> float:
    """How long a pretrained encoder may take for what it has not encoded yet, from a few inputs; 0 for any other."""
    encoder = build.make_encoder(config, dataset)
    if not isinstance(encoder, Pretrained):
        return 0.0
    lacking = sum(encoder.lacking(examples.inputs) for _, examples in dataset.splits())
    if not lacking:
        return 0.0
    few = _few(dataset).train
    build.encode_split(encoder, few.subset(torch.arange(1)))  # reads the weights
    began, of_few = time.perf_counter(), encoder.lacking(few.inputs)
    build.encode_split(encoder, few)
    return (time.perf_counter() - began) / max(int(of_few), 1) * lacking


def _few(dataset: Dataset) -> Dataset:
    """The data set with few training examples, which are encoded in no time."""
    count = len(dataset.train)
    chosen = torch.linspace(0, count - 1, min(count, FEW_EXAMPLES)).round().long()
    return dataclasses.replace(dataset, train=dataset.train.subset(chosen))


def seconds_of_run(config: RunConfig, dataset: Dataset, threads: int) -> float:
    """How long a run may take, from a few of its steps without the first."""
    training = config.training
    assert training.batch_size is not None
    assert training.epochs is not None
    steps = training.epochs * -(-len(dataset.train) // training.batch_size)
    looked_at = training.epochs * len(dataset.validation) + len(dataset.test)
    # A forward pass alone takes about a third of a step.
    steps_in_all = steps + looked_at / training.batch_size / 3
    return training.epochs * EPOCH_SECONDS + seconds_of_step(config, dataset, threads) * steps_in_all


def seconds_of_step(config: RunConfig, dataset: Dataset, threads: int) -> float:
    """The median of a few steps; of a pretrained network that is not tuned with random vectors in place of its own."""
    training = config.training
    assert training.batch_size is not None
    encoder, teacher = build.make_encoder(config, dataset), None
    shown = min(len(dataset.train), 20 * training.batch_size)
    if isinstance(encoder, Pretrained):
        dataset, sizes = _few(dataset), encoder.sizes

        def random(inputs: Any) -> Vectors:
            return Vectors(torch.randn(len(inputs), sizes["in_features"]).half(), torch.arange(len(inputs)))

        if not encoder.tune:
            encoder = cast(Encoder, SimpleNamespace(sizes=sizes, encode=random))
    few = dataset.train.subset(torch.arange(min(len(dataset.train), shown)))
    if (taught_by := teachers.teacher_model(config)) is not None:  # an untrained one costs as much
        teacher = build.make_model(dataclasses.replace(config, model=taught_by), dataset.num_classes, encoder.sizes)
    session = Session(build.make_objective(config, dataset, encoder, teacher), training)
    times: list[float] = []
    with contained(session.device, training.threads or threads):
        session.objective.train()
        groups = list(batches(torch.arange(shown) % len(few), training.batch_size))
        upcoming = inputs_of(build.encode_split(encoder, few), groups)
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
            if time.perf_counter() - began > MEASURED_SECONDS and len(times) >= 2:
                break
    settled = sorted(times[1:] or times)  # the first is slower
    return settled[len(settled) // 2]

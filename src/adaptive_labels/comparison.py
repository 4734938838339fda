"""Every method × seed on one data set: what it will cost, the runs themselves, and which folders they left."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from adaptive_labels import build
from adaptive_labels.config import ConfigError, RunConfig, from_dict, to_dict
from adaptive_labels.data import Dataset
from adaptive_labels.defaults import Choice
from adaptive_labels.execution import execute, execute_plain
from adaptive_labels.runs import RunFolder, run_id
from adaptive_labels.sweeps import Job, Outcome, run_jobs
from adaptive_labels.sweeps.pool import Listener
from adaptive_labels.training.batching import batches
from adaptive_labels.training.evaluate import to_device
from adaptive_labels.training.session import Session, contained

DEFAULT_METHODS = ("baseline", "slr", "alr", "alr-s")
DEFAULT_SEEDS = 3


@dataclass(frozen=True)
class Plan:
    """What a comparison will do: the data, the resolved configurations, and how long it may take."""

    dataset: Dataset
    choice: Choice
    configs: tuple[RunConfig, ...]
    out: Path
    workers: int
    seconds_a_run: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def todo(self) -> tuple[RunConfig, ...]:
        """The configurations whose runs are not finished yet."""
        return tuple(config for config in self.configs if not _finished(self.out, config))

    @property
    def seconds(self) -> float | None:
        """The estimate for all that is left to do."""
        if self.seconds_a_run is None:
            return None
        rounds = -(-len(self.todo) // self.workers)
        return self.seconds_a_run * rounds


def make_plan(
    config: RunConfig,
    methods: Sequence[str | tuple[str, Mapping[str, Any]]],
    seeds: Iterable[int],
    out: Path,
    workers: int | None = None,
    time_budget: float | None = None,
    estimate: bool = True,
) -> Plan:
    """Read the data, choose what is left open, and measure a few steps to say what the whole will cost.

    Args:
        config: what all runs share; its method and seed are replaced.
        methods: names, or names with options.
        seeds: of the runs.
        out: where the run folders go.
        workers: processes at a time; None: one a core, and no more than there are runs.
        time_budget: seconds; if the estimate is over it, all runs get fewer epochs.
        estimate: measure the cost at all.
    """
    seeds = tuple(seeds)
    dataset = build.load_data(config.data)
    resolved, choice = build.resolve_for(_with_method(config, methods[0]), dataset)
    configs = []
    for method in methods:
        one, _ = build.resolve_for(dataclasses.replace(_with_method(config, method)), dataset)
        configs += [dataclasses.replace(one, seed=seed) for seed in seeds]
    count = min(workers or os.cpu_count() or 1, max(len(configs), 1))
    plan = Plan(dataset, choice, tuple(configs), out, count)
    if not estimate or not plan.todo:
        return plan
    measured = seconds_of_run(resolved, dataset, threads=max(1, (os.cpu_count() or 1) // count))
    plan = dataclasses.replace(plan, seconds_a_run=measured)
    return plan if time_budget is None else _within(plan, time_budget)


def _with_method(config: RunConfig, method: str | tuple[str, Mapping[str, Any]]) -> RunConfig:
    name, options = (method, {}) if isinstance(method, str) else method
    values = to_dict(config)
    values["method"] = {"name": name, "options": {**values["method"]["options"], **options}}
    return from_dict(values)


def _finished(out: Path, config: RunConfig) -> bool:
    return (out / run_id(to_dict(config)) / "result.json").exists()


def _within(plan: Plan, budget: float) -> Plan:
    """The plan with as many epochs as the budget allows."""
    seconds, epochs = plan.seconds, plan.configs[0].training.epochs
    assert seconds is not None
    assert epochs is not None
    assert plan.seconds_a_run is not None
    if seconds <= budget:
        return plan
    fewer = int(epochs * budget / seconds)
    if fewer < 1:
        raise ConfigError(
            f"time-budget is {budget:.0f} s, but one epoch of all {len(plan.todo)} runs takes about "
            f"{seconds / epochs:.0f} s; give more time, fewer methods or fewer seeds"
        )
    shorter = tuple(
        dataclasses.replace(config, training=dataclasses.replace(config.training, epochs=fewer))
        for config in plan.configs
    )
    note = f"To stay within the time budget, every run has {fewer} instead of {epochs} epochs."
    return dataclasses.replace(
        plan, configs=shorter, seconds_a_run=plan.seconds_a_run * fewer / epochs, notes=(*plan.notes, note)
    )


def seconds_of_run(config: RunConfig, dataset: Dataset, threads: int, at_most: float = 2.0) -> float:
    """How long a run may take, from a few of its steps, leaving the first ones out."""
    few = dataset.train.subset(torch.arange(min(len(dataset.train), 20 * (config.training.batch_size or 1))))
    small = dataclasses.replace(dataset, train=few, validation=few, test=few)
    prepared = build.prepare(config, small)
    session = Session(build.make_objective(config, dataset), config.training)
    assert config.training.batch_size is not None
    assert config.training.epochs is not None
    times: list[float] = []
    with contained(session.device, config.training.threads or threads):
        session.objective.train()
        began = time.perf_counter()
        for batch in batches(torch.arange(len(few)), config.training.batch_size):
            step = time.perf_counter()
            target = few.labels[batch].to(session.device)
            loss, _ = session.objective(to_device(prepared.train.batch(batch), session.device), target)
            session.fabric.backward(loss)
            session.step()
            times.append(time.perf_counter() - step)
            if time.perf_counter() - began > at_most and len(times) >= 2:
                break
    settled = sorted(times[1:] or times)
    each = settled[len(settled) // 2]
    steps = config.training.epochs * -(-len(dataset.train) // config.training.batch_size)
    looked_at = config.training.epochs * len(dataset.validation) + len(dataset.test)
    # A forward pass alone takes about a third of a step.
    return each * (steps + looked_at / config.training.batch_size / 3)


def run_plan(plan: Plan, listener: Listener, command: Sequence[str]) -> tuple[list[RunFolder], list[Outcome]]:
    """Do what is left of a plan. Returns all its finished runs, and the outcomes that are failures."""
    jobs = [
        Job(f"{config.method.name} seed {config.seed}", to_dict(config), str(plan.out), tuple(command))
        for config in plan.todo
    ]
    outcomes = run_jobs(jobs, _task(plan), listener, workers=plan.workers)
    folders = [plan.out / run_id(to_dict(config)) for config in plan.configs if _finished(plan.out, config)]
    return [RunFolder(folder) for folder in folders], [outcome for outcome in outcomes if outcome.error is not None]


def _task(plan: Plan) -> Any:
    if plan.workers > 1:
        return execute_plain
    prepared: dict[str, build.Prepared] = {}

    def here(config: Mapping[str, Any], out: str, reporter: Any, command: Sequence[str]) -> str:
        run = from_dict(config)
        key = str(config["model"])
        if key not in prepared:
            prepared[key] = build.prepare(run, plan.dataset)
        return str(execute(run, prepared[key], Path(out), reporter, command).path)

    return here


def compare(
    data: str,
    methods: Sequence[str | tuple[str, Mapping[str, Any]]] = DEFAULT_METHODS,
    seeds: int | Iterable[int] = DEFAULT_SEEDS,
    *,
    out: str | Path = "runs",
    workers: int = 1,
    settings: Mapping[str, Any] | None = None,
) -> list[RunFolder]:
    """Train every method with every seed on ``data``, and return the runs; finished ones are not run again.

    Args:
        data: a data set's name or a path, as for ``alr compare``.
        methods: names, or (name, options) pairs.
        seeds: how many (0, 1, …), or which.
        out: where the run folders go.
        workers: processes at a time. With more than one, call it under ``if __name__ == "__main__":``.
        settings: the rest of the configuration, as nested tables: ``{"training": {"epochs": 5}}``.

    Raises:
        RuntimeError: if a run failed; the others are kept, and the same call does only what is missing.

    The runs go into :func:`adaptive_labels.analysis.read_records` for tables and statistics.
    """
    values = {**(settings or {})}
    values["data"] = {**values.get("data", {}), "name": data}
    config = from_dict(values)
    which = range(seeds) if isinstance(seeds, int) else seeds
    plan = make_plan(config, methods, which, Path(out), workers, estimate=False)
    runs, failed = run_plan(plan, lambda event: None, sys.argv)
    if failed:
        reasons = "; ".join(f"{outcome.job.name}: {outcome.error}" for outcome in failed)
        raise RuntimeError(f"{len(failed)} of {len(plan.configs)} runs failed: {reasons}")
    return runs

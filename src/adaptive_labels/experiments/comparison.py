"""Every method × seed on one data set: what it will cost, the runs themselves, and which folders they left."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from adaptive_labels.config import ConfigError, RunConfig, from_dict, to_dict
from adaptive_labels.data import Dataset
from adaptive_labels.experiments import build, teachers as teaching
from adaptive_labels.experiments.defaults import Choice
from adaptive_labels.experiments.executors import Job, Outcome, run_jobs
from adaptive_labels.experiments.executors.pool import Listener
from adaptive_labels.experiments.run import execute, execute_plain
from adaptive_labels.runs import RunFolder, find_run, run_id, write_json
from adaptive_labels.training.batches import batches, inputs_of
from adaptive_labels.training.evaluation import to_device
from adaptive_labels.training.session import Session, contained

DEFAULT_METHODS = ("baseline", "slr", "alr", "alr-s")
DEFAULT_SEEDS = 3
IMPORT_SECONDS = 3.0  # what a new process takes to start and to import torch
BUDGETS = "time-budgets.json"


@dataclass(frozen=True)
class Plan:
    """What a comparison will do: the data, the resolved configurations, and how long it may take.

    costs: seconds of a run by `cost_key`, None if they were not measured; starting: seconds before workers begin to
    train, once for every stage; budget_key: under which the number of epochs is kept that a time budget led to, so that
    the same command finds its own runs again.
    """

    dataset: Dataset
    choice: Choice
    configs: tuple[RunConfig, ...]
    out: Path
    workers: int
    costs: Mapping[str, float] | None = None
    starting: float = 0.0
    notes: tuple[str, ...] = ()
    budget_key: str | None = None

    @property
    def todo(self) -> tuple[RunConfig, ...]:
        """The configurations whose runs are not finished yet."""
        return tuple(config for config in self.configs if not _finished(self.out, config))

    @property
    def first(self) -> tuple[RunConfig, ...]:
        """The runs that the comparison's own learn from and that are not among them: teachers, earlier generations."""
        own = {run_id(to_dict(config)) for config in self.configs}
        needed = {run_id(to_dict(run)): run for config in self.configs for run in teaching.needed_runs(config)}
        return tuple(run for name, run in needed.items() if name not in own)

    @property
    def stages(self) -> tuple[tuple[RunConfig, ...], ...]:
        """All that is left to do, in the order in which it can be done: no run needs one of its own stage."""
        wanted = {run_id(to_dict(run)): run for config in self.todo for run in (*teaching.needed_runs(config), config)}
        left = [run for run in wanted.values() if not _finished(self.out, run)]
        depths = sorted({len(teaching.needed_runs(run)) for run in left})
        return tuple(tuple(run for run in left if len(teaching.needed_runs(run)) == depth) for depth in depths)

    @property
    def jobs(self) -> tuple[RunConfig, ...]:
        """The runs of all stages in turn."""
        return tuple(run for stage in self.stages for run in stage)

    @property
    def seconds(self) -> float | None:
        """The estimate for all that is left to do."""
        return None if self.costs is None else self.training_seconds + self.starting_seconds

    @property
    def training_seconds(self) -> float:
        """The part of the estimate that grows with the epochs: each stage as long as its busiest worker."""
        total = 0.0
        for stage in self.stages:
            busy = [0.0] * self.workers
            for run in stage:
                assert self.costs is not None
                busy[busy.index(min(busy))] += self.costs[cost_key(run)]
            total += max(busy)
        return total

    @property
    def starting_seconds(self) -> float:
        """The part of the estimate that does not."""
        return self.starting * len(self.stages)

    def name_of(self, config: RunConfig) -> str:
        """A run in words: method, what sets it apart from others (a model, options of the method), and its seed."""
        model = [] if config.model.name == self.configs[0].model.name else [str(config.model.name)]
        others = [other.method.options for other in self.configs if other.method.name == config.method.name]
        own = config.method.options
        varied = [f"{key} {value}" for key, value in own.items() if any(o.get(key) != value for o in others)]
        return " ".join([config.method.name, *model, *varied, f"seed {config.seed}"])


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
        workers: processes at a time; None: one a core, or this process alone where that is as fast.
        time_budget: seconds; if the estimate is over it, all runs get fewer epochs.
        estimate: measure the cost at all.
    """
    seeds = tuple(seeds)
    if not methods or not seeds:
        raise ConfigError(f"there is nothing to compare: {len(methods)} methods and {len(seeds)} seeds are given")
    began = time.perf_counter()
    dataset = build.load_data(config.data)
    reading = time.perf_counter() - began
    others = {option for name, _ in map(_pair, methods) for option in teaching.network_options(name)}
    resolved = [build.resolve_for(_with_method(config, method, others), dataset) for method in methods]
    configs = tuple(dataclasses.replace(one, seed=seed) for one, _ in resolved for seed in seeds)
    plan = Plan(dataset, resolved[0][1], configs, out, 1)
    if time_budget is not None:
        key = _budget_key(configs, time_budget)
        plan = dataclasses.replace(plan, budget_key=key)
        kept = _kept_budgets(out).get(key)
        if kept is not None:
            plan, time_budget = _with_epochs(plan, kept), None
    cores = os.cpu_count() or 1
    count = min(workers or cores, max([1, *map(len, plan.stages)]))
    plan = dataclasses.replace(plan, workers=count)
    if not estimate or not plan.todo:
        return plan
    different = {cost_key(run): run for run in reversed(plan.jobs)}
    costs = {key: seconds_of_run(run, dataset, threads=max(1, cores // count)) for key, run in different.items()}
    plan = dataclasses.replace(plan, costs=costs, starting=IMPORT_SECONDS + reading if count > 1 else 0.0)
    possible = [plan] if workers is not None else [dataclasses.replace(plan, workers=1, starting=0.0), plan]
    if time_budget is None:
        return min(possible, key=_seconds)
    return _within(possible, time_budget)


def _pair(method: str | tuple[str, Mapping[str, Any]]) -> tuple[str, Mapping[str, Any]]:
    return (method, {}) if isinstance(method, str) else method


def _with_method(config: RunConfig, method: str | tuple[str, Mapping[str, Any]], others: set[str]) -> RunConfig:
    """One method of a comparison; ``others`` are shared options on teachers and peers, for those that have any."""
    name, options = _pair(method)
    values = to_dict(config)
    own = teaching.network_options(name)
    shared = {key: value for key, value in values["method"]["options"].items() if key not in others or key in own}
    values["method"] = {"name": name, "options": {**shared, **options}}
    return from_dict(values)


def _finished(out: Path, config: RunConfig) -> bool:
    return (find_run(out, to_dict(config)) / "result.json").exists()


def _seconds(plan: Plan) -> float:
    assert plan.seconds is not None  # it has been measured
    return plan.seconds


def _within(possible: Sequence[Plan], budget: float) -> Plan:
    """The plan that allows most epochs within the budget, with so many."""
    fastest = min(possible, key=_seconds)
    if _seconds(fastest) <= budget:
        return fastest
    epochs = fastest.configs[0].training.epochs
    assert epochs is not None

    def affordable(plan: Plan) -> int:
        return int(epochs * (budget - plan.starting_seconds) / plan.training_seconds)

    best = max(possible, key=affordable)
    if affordable(best) < 1:
        least = min(plan.starting_seconds + plan.training_seconds / epochs for plan in possible)
        raise ConfigError(
            f"time-budget is {budget:.3g} s, but one epoch of all {len(best.todo)} runs takes about {least:.2g} s; "
            "give more time, fewer methods or fewer seeds"
        )
    return _with_epochs(best, affordable(best))


def _with_epochs(plan: Plan, epochs: int) -> Plan:
    before = plan.configs[0].training.epochs
    assert before is not None
    if epochs == before:
        return plan
    configs = tuple(
        dataclasses.replace(config, training=dataclasses.replace(config.training, epochs=epochs))
        for config in plan.configs
    )
    seconds = None if plan.costs is None else {key: cost * epochs / before for key, cost in plan.costs.items()}
    note = f"To stay within the time budget, every run has {epochs} instead of {before} epochs."
    return dataclasses.replace(plan, configs=configs, costs=seconds, notes=(*plan.notes, note))


def _budget_key(configs: Sequence[RunConfig], budget: float) -> str:
    asked = json.dumps([[run_id(to_dict(config)) for config in configs], budget])
    return hashlib.sha256(asked.encode()).hexdigest()[:16]


def _kept_budgets(out: Path) -> dict[str, int]:
    """The numbers of epochs that time budgets have led to in ``out``, by `_budget_key`."""
    try:
        kept = json.loads((out / BUDGETS).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # none yet, or not ours: then it is measured again
        return {}
    return kept if isinstance(kept, dict) else {}


def _keep_budget(plan: Plan) -> None:
    if plan.budget_key is not None:
        kept = _kept_budgets(plan.out) | {plan.budget_key: plan.configs[0].training.epochs}
        plan.out.mkdir(parents=True, exist_ok=True)
        write_json(plan.out / BUDGETS, kept)


def cost_key(config: RunConfig) -> str:
    """What a run's cost depends on within one comparison: the networks that are trained, and the one that teaches."""
    teacher = teaching.teacher_model(config)
    networks = [to_dict(model) for model in teaching.networks(config)]
    return json.dumps([networks, None if teacher is None else to_dict(teacher)], sort_keys=True)


def seconds_of_run(config: RunConfig, dataset: Dataset, threads: int, at_most: float = 2.0) -> float:
    """How long a run may take, from a few of its steps, leaving the first ones out."""
    few = dataset.train.subset(torch.arange(min(len(dataset.train), 20 * (config.training.batch_size or 1))))
    small = dataclasses.replace(dataset, train=few, validation=few, test=few)
    prepared = build.prepare(config, small)
    teacher = build.untrained_teacher(config, dataset, prepared.encoder)
    session = Session(build.make_objective(config, dataset, prepared.encoder, teacher), config.training)
    assert config.training.batch_size is not None
    assert config.training.epochs is not None
    times: list[float] = []
    with contained(session.device, config.training.threads or threads):
        session.objective.train()
        began = time.perf_counter()
        groups = list(batches(torch.arange(len(few)), config.training.batch_size))
        upcoming = inputs_of(prepared.train, groups)
        for batch in groups:
            step = time.perf_counter()
            target = few.labels[batch].to(session.device)
            loss, _ = session.objective(to_device(next(upcoming), session.device), target)
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
    """Do what is left of a plan, stage by stage. Returns all its finished runs, and the outcomes that are failures.

    The listener hears of every run by its number among the plan's jobs.
    """
    _keep_budget(plan)
    outcomes: list[Outcome] = []
    for stage in plan.stages:  # of the plan as it is now: what it says changes as runs are finished
        jobs = [Job(plan.name_of(config), to_dict(config), str(plan.out), tuple(command)) for config in stage]
        outcomes += run_jobs(jobs, _task(plan), _from(len(outcomes), listener), workers=plan.workers)
    folders = [find_run(plan.out, to_dict(config)) for config in plan.configs if _finished(plan.out, config)]
    return [RunFolder(folder) for folder in folders], [outcome for outcome in outcomes if outcome.error is not None]


def _from(number: int, listener: Listener) -> Listener:
    """A listener that counts jobs from a number on."""
    return lambda event: listener(dataclasses.replace(event, job=event.job + number))


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
    data: str | Path,
    methods: str | Sequence[str | tuple[str, Mapping[str, Any]]] = DEFAULT_METHODS,
    seeds: int | Iterable[int] = DEFAULT_SEEDS,
    *,
    out: str | Path = "runs",
    workers: int = 1,
    settings: Mapping[str, Any] | None = None,
) -> list[RunFolder]:
    """Train every method with every seed on ``data``, and return the runs; finished ones are not run again.

    Args:
        data: a data set's name or a path, as for ``alr compare``.
        methods: names, or (name, options) pairs; or names in one text with commas between.
        seeds: how many (0, 1, …), or which.
        out: where the run folders go.
        workers: processes at a time. With more than one, call it under ``if __name__ == "__main__":``.
        settings: the rest of the configuration, as nested tables: ``{"training": {"epochs": 5}}``.

    Raises:
        RuntimeError: if a run failed; the others are kept, and the same call does only what is missing.

    The runs go into :func:`adaptive_labels.analysis.read_records` for tables and statistics.
    """
    values = {**(settings or {})}
    values["data"] = {**values.get("data", {}), "name": str(data)}
    if isinstance(methods, str):
        methods = [name.strip() for name in methods.split(",") if name.strip()]
    config = from_dict(values)
    which = range(seeds) if isinstance(seeds, int) else seeds
    plan = make_plan(config, methods, which, Path(out), workers, estimate=False)
    runs, failed = run_plan(plan, lambda event: None, sys.argv)
    if failed:
        reasons = "; ".join(f"{outcome.job.name}: {outcome.error}" for outcome in failed)
        raise RuntimeError(f"{len(failed)} of {len(plan.configs)} runs failed: {reasons}")
    return runs

"""Every method × seed on one data set: what it will cost, the runs themselves, and which folders they left."""

from __future__ import annotations

import concurrent.futures as futures
import dataclasses
import hashlib
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from adaptive_labels.config import ConfigError, RunConfig, TrainingConfig, from_dict, to_dict, with_settings
from adaptive_labels.data import Dataset
from adaptive_labels.experiments import build, teachers as teaching
from adaptive_labels.experiments.compared import Compared
from adaptive_labels.experiments.executors import Job, Listener, Outcome, find_executor, in_this_process, run_jobs
from adaptive_labels.experiments.run import execute, execute_job
from adaptive_labels.machine import usable_cores
from adaptive_labels.runs import RunFolder, find_run, run_id, write_json
from adaptive_labels.training.batches import batches, inputs_of, to_device
from adaptive_labels.training.session import Session, contained

DEFAULT_METHODS = ("baseline", "slr", "alr", "alr-s")
DEFAULT_SEEDS = 3
MEASURED_SECONDS = 2.0  # for the steps of one kind of run
IMPORT_SECONDS = 3.0  # what a new process takes to start and to import torch
BUDGETS = "time-budgets.json"

Method = str | tuple[str, Mapping[str, Any]]
"""A method of a comparison: its name, or its name and options."""


@dataclass(frozen=True)
class Plan:
    """What a comparison will do, as plain data: `plan_runs` makes one, and looks once at which runs are finished.

    finished: the names of the runs that were finished then, and need not be done.
    costs: seconds of a run by `_cost_key`, None if they were not measured.
    notes: why the recipe is as it is, in sentences.
    budget_key: under which the number of epochs is kept that a time budget led to, so that the same command finds its
        own runs again.
    """

    dataset: Dataset
    configs: tuple[RunConfig, ...]
    out: Path
    workers: int = 1
    finished: frozenset[str] = frozenset()
    costs: Mapping[str, float] | None = None
    notes: tuple[str, ...] = ()
    budget_key: str | None = None

    @property
    def todo(self) -> tuple[RunConfig, ...]:
        """The configurations whose runs are not finished yet."""
        return tuple(config for config in self.configs if _id(config) not in self.finished)

    @property
    def first(self) -> tuple[RunConfig, ...]:
        """The runs that the comparison's own learn from and that are not among them: teachers, earlier generations."""
        own = {_id(config) for config in self.configs}
        return tuple(run for name, run in _with_needed(self.configs).items() if name not in own)

    @property
    def stages(self) -> tuple[tuple[RunConfig, ...], ...]:
        """All that is left to do, in the order in which it can be done: no run needs one of its own stage."""
        stages: dict[int, list[RunConfig]] = {}
        for name, run in _with_needed(self.todo).items():
            if name not in self.finished:
                stages.setdefault(len(teaching.needed_runs(run)), []).append(run)
        return tuple(tuple(stages[depth]) for depth in sorted(stages))

    @property
    def jobs(self) -> tuple[RunConfig, ...]:
        """The runs of all stages in turn."""
        return tuple(run for stage in self.stages for run in stage)

    @property
    def starting(self) -> float:
        """Seconds before workers begin to train."""
        return IMPORT_SECONDS if self.workers > 1 else 0.0

    @property
    def seconds(self) -> float | None:
        """The estimate for all that is left to do."""
        return None if self.costs is None else self.starting + self.training_seconds

    @property
    def training_seconds(self) -> float:
        """The part of the estimate that grows with the epochs: each stage as long as its busiest worker."""
        assert self.costs is not None
        total = 0.0
        for stage in self.stages:
            busy = [0.0] * self.workers
            for run in stage:
                busy[busy.index(min(busy))] += self.costs[_cost_key(run)]
            total += max(busy)
        return total

    def name_of(self, config: RunConfig) -> str:
        """A run in words: method, what sets it apart from others (a model, options of the method), and its seed."""
        model = [] if config.model.name == self.configs[0].model.name else [str(config.model.name)]
        others = [other.method.options for other in self.configs if other.method.name == config.method.name]
        own = config.method.options
        varied = [f"{key} {value}" for key, value in own.items() if any(o.get(key) != value for o in others)]
        return " ".join([config.method.name, *model, *varied, f"seed {config.seed}"])


def plan_runs(dataset: Dataset, configs: Iterable[RunConfig], out: Path, workers: int = 1, **more: Any) -> Plan:
    """A plan for resolved configurations; which of them are finished is read from ``out`` here, and nowhere later."""
    configs = tuple(configs)
    finished = frozenset(name for name, run in _with_needed(configs).items() if _is_finished(out, run))
    return Plan(dataset, configs, out, workers, finished, **more)


def _with_needed(configs: Iterable[RunConfig]) -> dict[str, RunConfig]:
    """Runs by name, each after those that it learns from."""
    return {_id(run): run for config in configs for run in (*teaching.needed_runs(config), config)}


def _id(config: RunConfig) -> str:
    return run_id(to_dict(config))


def _is_finished(out: Path, config: RunConfig) -> bool:
    return (find_run(out, to_dict(config)) / "result.json").exists()


def parse_methods(text: str) -> list[Method]:
    """The methods of a text such as ``baseline,alr,alr:attraction=-2:label_smoothing=0.1``; none is named twice.

    >>> parse_methods("baseline, slr:label_smoothing=0.3")
    ['baseline', ('slr', {'label_smoothing': 0.3})]
    """
    found: list[Method] = []
    for part in re.split(r",(?![^\[]*\])", text):  # not at a comma within a list
        name, *options = re.split(r":(?=[^:=]*=)", part.strip())
        if ":" in name:
            raise ConfigError(f"methods has {part.strip()!r}: options are written as NAME:OPTION=VALUE")
        settings = with_settings(RunConfig(), [f"method.options.{option}" for option in options])
        method = (name.strip(), settings.method.options) if options else name.strip()
        if name.strip() and method not in found:
            found.append(method)
    if not found:
        raise ConfigError("methods is empty; give at least one, see `alr list methods`")
    return found


def make_plan(
    config: RunConfig,
    methods: Sequence[Method],
    seeds: Iterable[int],
    out: Path,
    workers: int | None = None,
    time_budget: float | None = None,
    estimate: bool = True,
) -> Plan:
    """Read the data, choose what is left open, and measure a few steps to ``estimate`` what the whole will cost.

    ``config`` is what all runs share but for the method and the seed. Without ``workers`` there is one process per
    core, or this one alone where that is as fast. If the estimate exceeds ``time_budget`` seconds, all runs get fewer
    epochs.
    """
    seeds = tuple(seeds)
    if not methods or not seeds:
        raise ConfigError(f"there is nothing to compare: {len(methods)} methods and {len(seeds)} seeds are given")
    dataset = build.load_data(config.data)
    pairs = [(method, {}) if isinstance(method, str) else method for method in methods]
    # Shared options on teachers and peers are for the methods that have such.
    of_some = {option for name, _ in pairs for option in teaching.network_options(name)}
    resolved = []
    for name, options in pairs:
        others = of_some - {*teaching.network_options(name)}
        shared = {key: value for key, value in config.method.options.items() if key not in others}
        resolved.append(build.resolve_for(teaching.with_method(config, name, {**shared, **options}), dataset))
    configs = [dataclasses.replace(one, seed=seed) for one, _ in resolved for seed in seeds]
    plan = plan_runs(dataset, configs, out, notes=resolved[0][1])
    if time_budget is not None:
        plan = dataclasses.replace(plan, budget_key=_budget_key(configs, time_budget))
        kept = _kept_budgets(out).get(str(plan.budget_key))
        if kept is not None:
            plan, time_budget = _with_epochs(plan, kept), None
    cores = usable_cores()
    count = min(workers or cores, max([1, *map(len, plan.stages)]))
    plan = dataclasses.replace(plan, workers=count)
    if not estimate or not plan.todo:
        return plan
    different = {_cost_key(run): run for run in reversed(plan.jobs)}
    costs = {key: _seconds_of_run(run, dataset, threads=max(1, cores // count)) for key, run in different.items()}
    plan = dataclasses.replace(plan, costs=costs)
    possible = [plan] if workers is not None else [dataclasses.replace(plan, workers=1), plan]
    return _fastest(possible) if time_budget is None else _within(possible, time_budget)


def _fastest(plans: Sequence[Plan]) -> Plan:
    return min(plans, key=lambda plan: plan.seconds or 0.0)


def _within(plans: Sequence[Plan], budget: float) -> Plan:
    """The plan that allows most epochs within the budget, with so many."""
    fastest = _fastest(plans)
    if (fastest.seconds or 0.0) <= budget:
        return fastest
    epochs = fastest.configs[0].training.epochs or 0
    affordable = [int(epochs * (budget - plan.starting) / plan.training_seconds) for plan in plans]
    if max(affordable) < 1:
        least = min(plan.starting + plan.training_seconds / epochs for plan in plans)
        raise ConfigError(
            f"time-budget is {budget:.3g} s, but one epoch of all {len(fastest.todo)} runs takes about {least:.2g} s; "
            "give more time, fewer methods or fewer seeds"
        )
    return _with_epochs(plans[affordable.index(max(affordable))], max(affordable))


def _with_epochs(plan: Plan, epochs: int) -> Plan:
    """A plan with so many epochs in every run, and its costs and notes accordingly."""
    before = plan.configs[0].training.epochs
    assert before is not None
    if epochs == before:
        return plan
    configs = [dataclasses.replace(c, training=shortened(c.training, epochs)) for c in plan.configs]
    costs = None if plan.costs is None else {key: cost * epochs / before for key, cost in plan.costs.items()}
    notes = (*plan.notes, f"To stay within the time budget, every run has {epochs} instead of {before} epochs.")
    shorter = plan_runs(plan.dataset, configs, plan.out, plan.workers, costs=costs, notes=notes)
    return dataclasses.replace(shorter, budget_key=plan.budget_key)


def _cost_key(config: RunConfig) -> str:
    """What a run's cost depends on within one comparison: the networks that are trained, and the one that teaches."""
    networks = (*teaching.networks(config), teaching.teacher_model(config))
    return json.dumps([None if model is None else to_dict(model) for model in networks], sort_keys=True)


def _seconds_of_run(config: RunConfig, dataset: Dataset, threads: int) -> float:
    """How long a run may take, from a few of its steps, leaving the first ones out."""
    training = config.training
    assert training.batch_size is not None
    assert training.epochs is not None
    few = dataset.train.subset(torch.arange(min(len(dataset.train), 20 * training.batch_size)))
    encoder, teacher = build.make_encoder(config, dataset), None
    if (guide := teaching.teacher_model(config)) is not None:  # an untrained one costs as much
        teacher = build.make_model(dataclasses.replace(config, model=guide), dataset.num_classes, encoder.sizes)
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
            if time.perf_counter() - began > MEASURED_SECONDS and len(times) >= 2:
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


def _budget_key(configs: Sequence[RunConfig], budget: float) -> str:
    asked = json.dumps([[_id(config) for config in configs], budget])
    return hashlib.sha256(asked.encode()).hexdigest()[:16]


def _kept_budgets(out: Path) -> dict[str, int]:
    """The numbers of epochs that time budgets have led to in ``out``, by `_budget_key`."""
    try:
        kept = json.loads((out / BUDGETS).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # none yet, or not ours: then it is measured again
        return {}
    return kept if isinstance(kept, dict) else {}


def run_plan(
    plan: Plan, listener: Listener, command: Sequence[str], executor: futures.Executor | None = None
) -> tuple[list[RunFolder], list[Outcome]]:
    """Do what is left of a plan, stage by stage. Returns all its finished runs, and the outcomes that are failures.

    ``listener`` hears of every run by its number among the plan's jobs; ``command`` is recorded with every run. Without
    an executor the runs are done in local processes if the plan has several workers, or else in this process.
    """
    if plan.budget_key is not None:
        plan.out.mkdir(parents=True, exist_ok=True)
        epochs = plan.configs[0].training.epochs
        write_json(plan.out / BUDGETS, _kept_budgets(plan.out) | {plan.budget_key: epochs})
    outcomes: list[Outcome] = []
    own = find_executor("local")(plan.workers) if executor is None and plan.workers > 1 and plan.jobs else None
    with own or nullcontext(), _prepared_once(plan, executor or own) as (task, data):
        for stage in plan.stages:
            jobs = [
                Job(plan.name_of(run), to_dict(run), str(plan.out), tuple(command), data.get(build.reading(run)))
                for run in stage
            ]
            outcomes += run_jobs(jobs, task, _from(len(outcomes), listener), executor or own)
    folders = [find_run(plan.out, to_dict(config)) for config in plan.configs if _is_finished(plan.out, config)]
    return [RunFolder(folder) for folder in folders], [outcome for outcome in outcomes if outcome.error is not None]


def _from(number: int, listener: Listener) -> Listener:
    """A listener that counts jobs from a number on."""
    return lambda event: listener(dataclasses.replace(event, job=event.job + number))


@contextmanager
def _prepared_once(plan: Plan, executor: futures.Executor | None) -> Iterator[tuple[Any, dict[str, str]]]:
    """The data of a plan, encoded once for all its runs: the task that uses it, and files of it for other processes."""
    kinds = {build.reading(config): config for config in plan.jobs}
    if in_this_process(executor):
        prepared = {kind: build.prepare(config, plan.dataset) for kind, config in kinds.items()}

        def here(job: Job, reporter: Any) -> str:
            config = from_dict(job.config)
            return str(execute(config, prepared[build.reading(config)], Path(job.out), reporter, job.command).path)

        yield here, {}
        return
    with tempfile.TemporaryDirectory(prefix="adaptive-labels-") as folder:
        files = {}
        for number, (kind, config) in enumerate(kinds.items()):
            path = Path(folder) / f"{number}.pt"
            if build.save_prepared(build.prepare(config, plan.dataset), path):
                files[kind] = str(path)
        yield execute_job, files


def compare(
    data: str | Path,
    methods: str | Sequence[Method] = DEFAULT_METHODS,
    seeds: int | Iterable[int] = DEFAULT_SEEDS,
    *,
    out: str | Path = "runs",
    workers: int = 1,
    executor: futures.Executor | None = None,
    time_budget: float | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Compared:
    """Train every method with every seed on ``data``; finished runs are not run again.

    ``print`` what is returned for the table and the verdict.

    Args:
        data: a data set's name or a path, as for ``alr compare``.
        methods: names, or (name, options) pairs; or one text as for ``--methods``: ``"alr,alr:attraction=-2"``.
        seeds: how many (0, 1, …), or which.
        out: where the run folders go.
        workers: processes at a time. With more than one, call it under ``if __name__ == "__main__":``.
        executor: any ``concurrent.futures.Executor`` to hand the runs to, in the place of ``workers``. Threads of one
            process train one after another, since torch's random state is one per process.
        time_budget: seconds. If the estimate exceeds them, all runs get fewer epochs.
        settings: the rest of the configuration, as nested tables: ``{"training": {"epochs": 5}}``.

    Raises:
        RuntimeError: if a run failed; the others are kept, and the same call does only what is missing.
    """
    values = {**(settings or {})}
    values["data"] = {**values.get("data", {}), "name": str(data)}
    chosen = parse_methods(methods) if isinstance(methods, str) else methods
    which = range(seeds) if isinstance(seeds, int) else seeds
    plan = make_plan(
        from_dict(values), chosen, which, Path(out), workers, time_budget, estimate=time_budget is not None
    )
    runs, failed = run_plan(plan, lambda event: None, sys.argv, executor)
    if failed:
        reasons = "; ".join(f"{outcome.job.name}: {outcome.error}" for outcome in failed)
        raise RuntimeError(f"{len(failed)} of {len(plan.configs)} runs failed: {reasons}")
    return Compared(runs)

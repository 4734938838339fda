"""Every method × seed on one data set: do the runs, and return their folders."""

import concurrent.futures as futures
import dataclasses
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from adaptive_labels.lab import analysis
from adaptive_labels.lab.config import ConfigError, RunConfig, changed, from_dict, to_dict, with_settings
from adaptive_labels.lab.data import Dataset, OverdueError, encoding_until, read_once
from adaptive_labels.lab.experiments import budget as budgets, build, teachers
from adaptive_labels.lab.experiments.defaults import largest_size
from adaptive_labels.lab.experiments.estimate import (
    MEASURED_SECONDS,
    Known,
    count_lacking,
    seconds_of_encoding,
    seconds_of_run,
)
from adaptive_labels.lab.experiments.executors import (
    Do,
    Event,
    Job,
    Listener,
    Outcome,
    find_executor,
    in_this_process,
    run_jobs,
)
from adaptive_labels.lab.experiments.executors.local import LocalExecutor
from adaptive_labels.lab.experiments.plan import (
    IMPORT_SECONDS,
    Budget,
    Plan as Plan,
    cost_key,
    is_finished,
    plan_runs as plan_runs,
)
from adaptive_labels.lab.experiments.reference import ensure_reference, seconds_for
from adaptive_labels.lab.experiments.run import execute, execute_job
from adaptive_labels.lab.experiments.trackers import check_trackers, log_groups
from adaptive_labels.lab.machine import usable_cores
from adaptive_labels.lab.runs import RunError, RunFolder, remove, run_path, tidy

DEFAULT_METHODS = ("baseline", "slr", "alr", "alr-s")
DEFAULT_SEEDS = 3

Method = str | tuple[str, Mapping[str, Any]]
"""A method of a comparison: its name, or its name and options."""


def parse_methods(text: str) -> list[Method]:
    """The methods of a text such as ``baseline,alr,alr:attraction=-2:label_smoothing=0.1``; none is named twice.

    >>> parse_methods("baseline, slr:label_smoothing=0.3")
    ['baseline', ('slr', {'label_smoothing': 0.3})]
    """
    found: list[Method] = []
    for part in re.split(r",(?![^\[]*\])", text):  # not at a comma within a list
        name, *options = re.split(r":(?=[^:=]*=)", part.strip())
        if ":" in name or (options and not name.strip()):
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
    time_budget: float | Budget | None = None,
    estimate: bool = True,
    encode: bool = True,
) -> Plan:
    """Read the data, choose what is left open, and measure a few steps to ``estimate`` what the whole will cost.

    ``config`` is what all runs share but for the method and the seed. Without ``workers`` there is one process per GPU,
    or per core, or this one alone where that is as fast. With a ``time_budget``, in seconds from now unless it says
    from when, everything is made as small as it takes (see `budget.fit_into`), and the data is encoded here, unless
    ``encode`` is False: then nothing is left behind.
    """
    budget = Budget(time_budget, time.time()) if isinstance(time_budget, float | int) else time_budget
    # What this process took to start, another one will take.
    importing = IMPORT_SECONDS if budget is None else max(IMPORT_SECONDS, budget.seconds - budget.left)
    check_trackers(config, out)
    seeds = tuple(seeds)
    if not methods or not seeds:
        raise ConfigError(f"there is nothing to compare: {len(methods)} methods and {len(seeds)} seeds are given")
    pairs = [(method, {}) if isinstance(method, str) else method for method in methods]
    loaded: dict[str, Dataset] = {}
    known: Known = {}

    def planned(config: RunConfig, count: int | None) -> Plan:
        key = json.dumps([to_dict(config.data), largest_size(config.model.name, config.model.options)])
        dataset = loaded[key] = loaded.get(key) or build.load_data(config.data, config.model)
        resolved = _resolved(config, pairs, dataset)
        configs = [dataclasses.replace(one, seed=seed) for one, _ in resolved for seed in seeds[:count]]
        return plan_runs(dataset, configs, out, notes=resolved[0][1], budget=budget, importing=importing)

    measured = partial(_measured, workers, known)
    if budget is not None:
        with read_once():
            return budgets.fit_into(budget, config, planned, measured, _encoded if encode else None)
    plan = planned(config, None)
    if not estimate or not plan.todo:
        return with_workers(plan, workers)
    return min(measured(plan, MEASURED_SECONDS), key=lambda plan: plan.seconds or 0.0)


def _resolved(
    config: RunConfig, pairs: Sequence[tuple[str, Mapping[str, Any]]], dataset: Dataset
) -> list[tuple[RunConfig, tuple[str, ...]]]:
    """The configuration of each method, and why it is so."""
    # Shared options on teachers and peers are for the methods that have such.
    of_some = {option for name, _ in pairs for option in teachers.network_options(name)}
    resolved = []
    for name, options in pairs:
        others = of_some - {*teachers.network_options(name)}
        shared = {key: value for key, value in config.method.options.items() if key not in others}
        resolved.append(build.resolve_for(teachers.with_method(config, name, {**shared, **options}), dataset))
    return resolved


def with_workers(plan: Plan, workers: int | None) -> Plan:
    """The plan with so many runs at a time, or one per GPU, or else per core; no more than can be done at once."""
    places = len(_gpus(plan.configs[0].training.device)) or usable_cores()
    return dataclasses.replace(plan, workers=min(workers or places, max([1, *map(len, plan.stages)])))


def _encoded(plan: Plan, until: float) -> float | None:
    """Encode the data of a plan until a moment; the seconds it takes if that is too early. What is done is kept."""
    kinds = {build.reading(run): run for run in plan.jobs}
    encoders = [build.make_encoder(run, plan.dataset) for run in kinds.values()]
    try:
        with encoding_until(until, sum(count_lacking(encoder, plan.dataset) for encoder in encoders)):
            for encoder in encoders:
                # What every smaller comparison needs comes first.
                for examples in (plan.dataset.validation, plan.dataset.test, plan.dataset.train):
                    build.encode(encoder, examples)
    except OverdueError as late:
        return late.seconds
    return None


def _measured(workers: int | None, known: Known, plan: Plan, seconds: float) -> list[Plan]:
    """The ways to carry a plan out, with their costs: in this process, and in several unless their number is given.

    If encoding alone would take too much of a budget, no step is measured, and the list is empty.
    """
    kinds = {build.reading(run): run for run in plan.jobs}
    encoding = sum(seconds_of_encoding(run, plan.dataset, seconds, known) for run in kinds.values())
    if plan.budget is not None and encoding and encoding > budgets.MOST_ENCODING * plan.budget.left:
        return []
    whole = with_workers(plan, workers)
    different = {cost_key(run): run for run in reversed(plan.jobs)}
    threads = max(1, usable_cores() // whole.workers)
    costs = {key: seconds_of_run(run, plan.dataset, threads, seconds, known) for key, run in different.items()}
    whole = dataclasses.replace(whole, costs=costs, encoding=encoding)
    return [whole] if workers is not None else [dataclasses.replace(whole, workers=1), whole]


def run_plan(
    plan: Plan, listener: Listener, command: Sequence[str], executor: futures.Executor | None = None
) -> tuple[list[RunFolder], list[Outcome]]:
    """Do what is left of a plan, stage by stage. Returns all its finished runs, and the outcomes that are failures.

    ``listener`` hears of the plan, and of every run by its number among the plan's jobs; of both again if a budget
    leads to another plan. ``command`` is recorded with every run. Without an executor the runs are done in local
    processes if the plan has several workers, or else in this process.
    """
    if not plan.configs:
        return [], []
    if plan.workers > 1 or executor is not None:
        teachers.check_reachable(plan.configs)
    budgets.keep_choice(plan)
    own = None
    if executor is None and plan.workers > 1 and plan.jobs:
        own = find_executor("local")(plan.workers, gpus=_gpus(plan.configs[0].training.device))
    if plan.jobs and (prepare := getattr(executor, "prepare", None)) is not None:
        prepare(plan.out)
    with own or nullcontext(), _shared_data(plan, executor or own) as (do, data):
        while True:
            listener(Event(0, "plan", [plan.name_of(run) for run in plan.jobs]))
            outcomes, late = _run_stages(plan, listener, command, executor or own, do, data)
            if not late or plan.budget is None or plan.budget.left <= 0 or plan.configs[0].training.epochs == 1:
                break
            for run, _ in late:
                remove(RunFolder(run_path(plan.out, run)))
            plan = budgets.replanned(plan, late)
            budgets.keep_choice(plan)
    finished = [config for config in plan.configs if is_finished(plan.out, config)]
    runs = [RunFolder(run_path(plan.out, config)) for config in finished]
    for done in runs:  # a process that was ended just after the result may have left something in the folder
        with suppress(RunError):  # such a run is whole, also where it cannot be written to
            tidy(done)
    log_groups(plan.configs[0], runs)
    return runs, [outcome for outcome in outcomes if outcome.error is not None and outcome.late is None]


@contextmanager
def _shared_data(plan: Plan, executor: futures.Executor | None) -> Iterator[tuple[Do, dict[str, str]]]:
    """A function that does a run with data that is encoded once for all; and files of that data, by how it is read.

    The files are for other processes. Those on other machines find them beside the runs, which all machines share.
    """
    kinds = {build.reading(config): config for config in plan.jobs}
    if in_this_process(executor):
        prepared = {kind: build.prepare(config, plan.dataset) for kind, config in kinds.items()}

        def here(job: Job, reporter: Any) -> str:
            config = from_dict(job.config)
            return str(execute(config, prepared[build.reading(config)], Path(job.out), reporter, job.command).path)

        yield here, {}
        return
    beside = None if isinstance(executor, LocalExecutor) or not kinds else plan.out.absolute()
    if beside is not None:
        beside.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".adaptive-labels-", dir=beside, ignore_cleanup_errors=True) as folder:
        files = {}
        for number, (kind, config) in enumerate(kinds.items()):
            path = Path(folder) / f"{number}.pt"
            if build.save_prepared(build.prepare(config, plan.dataset), path):
                files[kind] = str(path)
        yield execute_job, files


def _run_stages(
    plan: Plan,
    listener: Listener,
    command: Sequence[str],
    executor: futures.Executor | None,
    do: Do,
    data: Mapping[str, str],
) -> tuple[list[Outcome], list[tuple[RunConfig, float]]]:
    """Do the stages of a plan as far as its budget allows: the outcomes, and runs of the first seed found too slow.

    Each of the latter comes with the seconds that it would take.
    """
    outcomes: list[Outcome] = []
    elsewhere = executor is not None and not isinstance(executor, LocalExecutor)
    out = str(plan.out.absolute() if elsewhere else plan.out)  # other machines have other working folders
    slowness, latest = 1.0, budgets.latest_moment(plan)
    for stage in plan.stages:
        if not budgets.fits(plan, stage, slowness):
            break
        more, costs = budgets.stretch(plan, stage), plan.costs or {}
        jobs = [
            Job(
                plan.name_of(run),
                to_dict(run),
                out,
                tuple(command),
                data.get(build.reading(run)),
                None if more is None else more * costs[cost_key(run)],
                latest,
            )
            for run in stage
        ]
        began = time.monotonic()
        done = run_jobs(jobs, do, _from(len(outcomes), listener), executor)
        outcomes += done
        late = [(run, one.late) for run, one in zip(stage, done, strict=True) if one.late]
        if late:
            return outcomes, late
        if plan.costs is not None:
            slowness = max(slowness, (time.monotonic() - began) / max(plan.stage_seconds(stage), 1e-9))
    return outcomes, []


def _gpus(device: str) -> tuple[str, ...]:
    """The GPUs that runs may use, as CUDA_VISIBLE_DEVICES names them; none if the device is a certain one."""
    if device not in ("auto", "cuda") or not torch.cuda.is_available():
        return ()
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return tuple(named or map(str, range(torch.cuda.device_count())))


def _from(number: int, listener: Listener) -> Listener:
    """A listener that counts jobs from a number on."""
    return lambda event: listener(dataclasses.replace(event, job=event.job + number))


class Compared(list[RunFolder]):
    """The runs of a comparison, which print as its table and verdict; with the reference, unless that is left out."""

    def __init__(self, runs: Iterable[RunFolder] = (), *, references: bool = True) -> None:
        super().__init__(runs)
        self._references = references

    @property
    def records(self) -> Sequence[analysis.RunRecord]:
        """The runs with their metrics, for tables and statistics."""
        return analysis.read_run_records(self, references=self._references)

    def table(self, format: str = "text") -> str:
        """One row per method, as ``alr table`` prints it: text, markdown, latex, csv or json."""
        return analysis.format_table(self.records, format)

    @property
    def verdict(self) -> str:
        """Which method is best on validation, and by how much."""
        return "\n".join(str(analysis.verdict(group)) for group in analysis.group_records(self.records))

    def __str__(self) -> str:
        return f"{self.table()}\n{self.verdict}"


def compare(
    data: str | Path,
    methods: str | Sequence[Method] = DEFAULT_METHODS,
    seeds: int | Iterable[int] = DEFAULT_SEEDS,
    *,
    out: str | Path = "runs",
    workers: int = 1,
    executor: futures.Executor | None = None,
    time_budget: float | None = None,
    reference: bool = True,
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
        executor: any ``concurrent.futures.Executor`` to hand the runs to, in the place of ``workers``: what it runs
            calls on must share ``out``. Threads of one process train one after another, since torch's random state is
            one per process.
        time_budget: seconds. If the estimate exceeds them, there are fewer epochs, then smaller images, a narrower
            network, fewer training examples or seeds.
        reference: fit a plain classifier on the same data as well, a row of the table to compare with.
        settings: the rest of the configuration, as nested tables: ``{"training": {"epochs": 5}}``.

    Raises:
        RuntimeError: if a run failed, or none was finished in time; the others are kept, and the same call does only
            what is missing.
    """
    config = changed(from_dict(settings or {}), "data", name=str(data))
    chosen = parse_methods(methods) if isinstance(methods, str) else methods
    which = range(seeds) if isinstance(seeds, int) else seeds
    plan = make_plan(config, chosen, which, Path(out), workers, time_budget, estimate=time_budget is not None)
    if reference:
        ensure_reference(plan.configs[0], plan.dataset, plan.out, seconds_for(plan.budget))
    runs, failed = run_plan(plan, lambda event: None, sys.argv, executor)
    if failed:
        reasons = "; ".join(f"{outcome.job.name}: {outcome.error}" for outcome in failed)
        raise RuntimeError(f"{len(failed)} of {len(plan.configs)} runs failed: {reasons}")
    if not runs:
        raise RuntimeError(f"no run was finished in {time_budget:g} s; the same call goes on, or give more time")
    return Compared(runs, references=reference)

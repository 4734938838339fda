"""Every method × seed on one data set: do the runs, and return their folders."""

import concurrent.futures as futures
import dataclasses
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from adaptive_labels.lab import analysis
from adaptive_labels.lab.config import ConfigError, RunConfig, changed, from_dict, with_settings
from adaptive_labels.lab.data import OnProgress
from adaptive_labels.lab.experiments import budget as budgets, build, teachers
from adaptive_labels.lab.experiments.candidates import Train, choose_network, with_candidates
from adaptive_labels.lab.experiments.loggers import check_loggers
from adaptive_labels.lab.experiments.plan import Plan as Plan, plan_runs as plan_runs
from adaptive_labels.lab.experiments.resolve import resolve_methods
from adaptive_labels.lab.experiments.run import execute, execute_job
from adaptive_labels.lab.jobs import (
    Do,
    Event,
    Here,
    Job,
    JobExecutor,
    Listener,
    Outcome,
    as_job_executor,
)
from adaptive_labels.lab.jobs.processes import LocalExecutor
from adaptive_labels.lab.jobs.queue import run_jobs
from adaptive_labels.lab.machine import TimeBudget, usable_cores
from adaptive_labels.lab.runs import RunError, RunFolder, tidy
from adaptive_labels.lab.training import processes

DEFAULT_METHODS = ("baseline", "slr", "alr", "alr-s")
DEFAULT_SEEDS = 5

Method = str | tuple[str, Mapping[str, Any]]
"""A method of a comparison: its name, or its name and options."""


def parse_methods(text: str) -> list[Method]:
    """The methods of a text such as ``baseline,alr,alr:attraction=-2:label_smoothing=0.1``; none is named twice.

    >>> parse_methods("baseline, slr:label_smoothing=0.3")
    ['baseline', ('slr', {'label_smoothing': 0.3})]
    """
    methods: list[Method] = []
    for part in re.split(r",(?![^\[]*\])", text):  # not at a comma within a list
        name, *options = re.split(r":(?=[^:=]*=)", part.strip())
        if ":" in name or (options and not name.strip()):
            raise ConfigError(f"methods has {part.strip()!r}: options are written as NAME:OPTION=VALUE")
        settings = with_settings(RunConfig(), [f"method.options.{option}" for option in options])
        method = (name.strip(), settings.method.options) if options else name.strip()
        if name.strip() and method not in methods:
            methods.append(method)
    if not methods:
        raise ConfigError("methods is empty; give at least one, see `alr list methods`")
    return methods


def make_plan(
    config: RunConfig,
    methods: Sequence[Method],
    seeds: Iterable[int],
    out: Path,
    workers: int | None = None,
    budget: TimeBudget | None = None,
    estimate: bool = True,
    executor: futures.Executor | None = None,
    train: Train | None = None,
) -> Plan:
    """Read the data, choose what is left open, and measure a few steps to ``estimate`` what the whole will cost.

    ``config`` is what all runs share but for the method and the seed. Without ``workers`` there is one process per GPU,
    or per core, or this one alone where that is as fast. An ``executor`` knows how many runs it does at a time; its
    machines are faster or slower than this one, so that steps are measured here only to keep a ``budget``. ``train``
    does the runs by which the network is chosen, if none is given (see `choose_network`).
    """
    if isinstance(executor, JobExecutor):
        workers, estimate = executor.workers, False
    if processes.world() > 1:
        if budget is not None:
            raise ConfigError("time-budget measures what one process does: leave it out where several share each run")
        estimate = False
    check_loggers(config)
    seeds = tuple(seeds)
    if not methods or not seeds:
        raise ConfigError(f"there is nothing to compare: {len(methods)} methods and {len(seeds)} seeds are given")
    pairs = [(method, {}) if isinstance(method, str) else method for method in methods]
    dataset = build.load_data(config.data, config.model)
    resolved = resolve_methods(config, pairs, dataset)  # what cannot be is refused before anything is trained
    config, dataset, why = choose_network(config, seeds[0], dataset, out, train, budget)
    if why:
        resolved = resolve_methods(config, pairs, dataset)
    configs = [dataclasses.replace(one, seed=seed) for one, _ in resolved for seed in seeds]
    plan = plan_runs(dataset, configs, out, notes=(*why, *resolved[0][1]), budget=budget)
    plan = with_workers(with_candidates(plan) if train is not None else plan, workers)
    if plan.todo and (estimate or budget is not None):
        plan = budgets.measured(plan)
        if workers is None:
            plan = min(dataclasses.replace(plan, workers=1), plan, key=lambda plan: plan.seconds or 0.0)
    return plan if budget is None else budgets.fit_into(plan)


def with_workers(plan: Plan, workers: int | None) -> Plan:
    """The plan with so many runs at a time, or one per GPU, or else per core; no more than can be done at once."""
    if (world := processes.world()) > 1:
        if (workers or 1) > 1:
            raise ConfigError(
                f"workers is {workers}, but {world} processes were started to share each run: leave it out"
            )
        return plan
    places = len(_gpus(plan.own[0].config.training.device)) or usable_cores()
    return dataclasses.replace(plan, workers=min(workers or places, max([1, *map(len, plan.stages)])))


def run_plan(
    plan: Plan,
    listener: Listener,
    command: Sequence[str],
    executor: futures.Executor | None = None,
    progress: OnProgress | None = None,
) -> tuple[list[RunFolder], list[Outcome]]:
    """Do what is left of a plan, stage by stage. Returns all its finished runs, and the outcomes that are failures.

    ``listener`` hears of the plan, and of every run by its number among the plan's jobs; ``progress`` of how far a
    pretrained encoder is before them. ``command`` is recorded with every run. Without an executor the runs are done in
    local processes if the plan has several workers, or else in this process.
    """
    if not plan.own:
        return [], []
    if processes.world() > 1 and executor is not None:
        raise ConfigError("executor is given, but several processes were started to share each run: leave it out")
    if plan.workers > 1 or executor is not None:
        teachers.check_reachable(entry.config for entry in plan.own)
    budgets.keep_choice(plan)
    with _place(plan, executor) as place:
        if plan.todo:
            place.prepare(plan.out)
        listener(Event(0, "plan", [plan.name_of(entry.config) for stage in plan.stages for entry in stage]))
        outcomes = _run_stages(plan, listener, command, place, progress)
    runs = [RunFolder(entry.folder) for entry in plan.own if (entry.folder / "result.json").exists()]
    for done in runs:  # a process that was ended just after the result may have left something in the folder
        with suppress(RunError):  # such a run is whole, also where it cannot be written to
            tidy(done)
    return runs, [outcome for outcome in outcomes if outcome.error is not None]


@contextmanager
def _place(plan: Plan, executor: futures.Executor | None) -> Iterator[JobExecutor]:
    """Where a plan's runs are done; what is made here ends here, and somebody else's executor does not."""
    if executor is not None:
        yield as_job_executor(executor)
    elif plan.workers > 1 and plan.todo:
        with LocalExecutor(plan.workers, gpus=_gpus(plan.own[0].config.training.device)) as local:
            yield local
    else:
        yield Here()


@contextmanager
def _encoded_data(
    plan: Plan, place: JobExecutor, progress: OnProgress | None
) -> Iterator[tuple[Do, Mapping[str, Path], Path | None]]:
    """What does a run with data that is encoded once for all; files of that data, by how it is read; their folder.

    The files are for other processes. Those on other machines find them beside the runs, which all machines share.
    """
    kinds = {build.reading(entry.config): entry.config for entry in plan.todo}
    if isinstance(place, Here):
        prepared = {kind: build.prepare_data(config, plan.dataset, progress) for kind, config in kinds.items()}

        def here(job: Job) -> str:
            return str(execute(job, prepared[build.reading(job.config)]).path)

        yield here, {}, None
        return
    beside = plan.out.absolute() if place.elsewhere and kinds else None
    if beside is not None:
        beside.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".adaptive-labels-", dir=beside, ignore_cleanup_errors=True) as folder:
        files = {}
        for number, (kind, config) in enumerate(kinds.items()):
            path = Path(folder) / f"{number}.pt"
            if build.save_prepared(build.prepare_data(config, plan.dataset, progress), path):
                files[kind] = path
        yield execute_job, files, None if beside is None else Path(folder)


def _run_stages(
    plan: Plan, listener: Listener, command: Sequence[str], place: JobExecutor, progress: OnProgress | None
) -> list[Outcome]:
    """Do the stages of a plan; within a budget, those that can end in time."""
    outcomes: list[Outcome] = []
    slowness = 1.0
    with _encoded_data(plan, place, progress) as (do, data, shared):
        for stage in plan.stages:
            if not budgets.fits(plan, stage, slowness):
                break
            jobs = [plan.job(entry, command, data.get(build.reading(entry.config)), shared) for entry in stage]
            began = time.monotonic()
            outcomes += run_jobs(jobs, do, _from(len(outcomes), listener), place)
            if plan.costs is not None:
                slowness = max(slowness, (time.monotonic() - began) / max(plan.stage_seconds(stage), 1e-9))
    return outcomes


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
    """The runs of a comparison, which print as its table and verdict."""

    @property
    def records(self) -> Sequence[analysis.RunRecord]:
        """The runs with their metrics, for tables and statistics."""
        return analysis.read_run_records(self)

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
    settings: Mapping[str, Any] | None = None,
) -> Compared:
    """Train every method with every seed on ``data``; finished runs are not run again.

    Unless ``settings`` name a model, the network is chosen first, by the baseline's validation accuracy with each of a
    few. ``print`` what is returned for the table and the verdict.

    Args:
        data: a data set's name or a path, as for ``alr compare``.
        methods: names, or (name, options) pairs; or one text as for ``--methods``: ``"alr,alr:attraction=-2"``.
        seeds: how many (0, 1, …), or which.
        out: where the run folders go.
        workers: processes at a time. With more than one, call it under ``if __name__ == "__main__":``.
        executor: any ``concurrent.futures.Executor`` to hand the runs to, in the place of ``workers``: what it runs
            calls on must share ``out``. Threads of one process train one after another, since torch's random state is
            one per process.
        time_budget: seconds. No seed is begun that cannot end in time; if not even the first one of every method can,
            every run has fewer epochs.
        settings: the rest of the configuration, as nested tables: ``{"training": {"epochs": 5}}``.

    Raises:
        RuntimeError: if a run failed, or none was finished in time; the others are kept, and the same call does only
            what is missing.
    """
    config = changed(from_dict(settings or {}), "data", name=str(data))
    chosen = parse_methods(methods) if isinstance(methods, str) else methods
    which = range(seeds) if isinstance(seeds, int) else seeds
    budget = None if time_budget is None else TimeBudget(time_budget)
    do = partial(run_plan, listener=lambda event: None, command=sys.argv, executor=executor)
    plan = make_plan(config, chosen, which, Path(out), workers, budget, estimate=False, train=do)
    runs, failed = do(plan)
    if failed:
        reasons = "; ".join(f"{outcome.job.name}: {outcome.error}" for outcome in failed)
        raise RuntimeError(f"{len(failed)} of {len(plan.own)} runs failed: {reasons}")
    if not runs:
        raise RuntimeError(f"no run was finished in {time_budget:g} s; the same call goes on, or give more time")
    return Compared(runs)

"""Do what a study asks for on one task: its runs, and a record of each as soon as it is finished."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_labels.analysis.suspects import mean_residual_labels
from adaptive_labels.config import RunConfig, from_dict, load_toml, to_dict
from adaptive_labels.data import Dataset
from adaptive_labels.experiments import build
from adaptive_labels.experiments.comparison import Plan, plan_runs, run_plan
from adaptive_labels.experiments.executors import Event, Outcome
from adaptive_labels.experiments.studies.records import append_record, make_record, read_all_records
from adaptive_labels.experiments.studies.study import Study, StudyError, Variant, task_file
from adaptive_labels.experiments.tuning import TUNE_SEEDS, best_trial, trials_of
from adaptive_labels.runs import RunFolder, run_id, write_npz

Listening = Callable[[Plan], Any]  # a context manager that gives something to tell events to


@dataclass(frozen=True)
class Work:
    """Where a study's parts lie and go; ``stand_ins``: other data for a task's, by the name of what it stands for."""

    file: Path
    out: Path
    results: Path
    data_dir: str | None = None
    workers: int = 1
    stand_ins: Mapping[str, str] = field(default_factory=dict)


def run_study(study: Study, task: str, work: Work, listening: Listening) -> list[Outcome]:
    """Run every variant × seed that is missing on a task; returns the failures."""
    config = _task_config(work, task)
    dataset = build.load_data(config.data)
    seeds = study.seeds_for(task)
    variants = study.variants_on(task)
    plain = [variant for variant in variants if not variant.fixed_to_confusions and variant.tune is None]
    fixed = [variant for variant in variants if variant.fixed_to_confusions]
    tuned = [variant for variant in variants if variant.tune is not None]

    def missing(variants: Sequence[Variant], seeds: Sequence[int] = seeds) -> list[tuple[Variant, int]]:
        recorded = read_all_records(work.results, [task])
        return [(v, seed) for seed in seeds for v in variants if (task, v.key, seed) not in recorded]

    def run(pairs: Iterable[tuple[Variant, int]], labels: str | None = None) -> list[Outcome]:
        return _run(task, _configs(config, dataset, pairs, labels), dataset, work, listening)

    failed = run(missing(plain))
    if held := missing(fixed):
        baselines = [(_plain_baseline(plain), seed) for seed in seeds]
        configs = _configs(config, dataset, baselines, None)
        folders = [RunFolder.create(work.out, to_dict(one)) for _, one in configs]
        # A record is not enough here: what the baseline confuses is in the predictions of its run.
        failed += run(pair for pair, folder in zip(baselines, folders, strict=True) if not folder.finished)
        failed += run(held, _confusions_file(folders, work.out, task))
    if tuned:
        failed += run(missing([trial for variant in tuned for trial in trials_of(variant)], seeds[:TUNE_SEEDS]))
        records = read_all_records(work.results, [task])
        best = [best_trial(variant, task, records) for variant in tuned]
        failed += run(missing([trial for trial in best if trial is not None], seeds[TUNE_SEEDS:]))
    return failed


def _task_config(work: Work, task: str) -> RunConfig:
    config = load_toml(task_file(work.file, task))
    name = work.stand_ins.get(config.data.name, config.data.name)
    return dataclasses.replace(config, data=dataclasses.replace(config.data, name=name, data_dir=work.data_dir))


def _configs(
    task: RunConfig, dataset: Dataset, pairs: Iterable[tuple[Variant, int]], labels: str | None
) -> list[tuple[Variant, RunConfig]]:
    """The resolved configuration of every variant and seed."""
    resolved: dict[str, RunConfig] = {}
    found = []
    for variant, seed in pairs:
        if variant.key not in resolved:
            resolved[variant.key], _ = build.resolve_for(with_variant(task, variant, labels), dataset)
        found.append((variant, dataclasses.replace(resolved[variant.key], seed=seed)))
    return found


def with_variant(task: RunConfig, variant: Variant, labels: str | None) -> RunConfig:
    """A task's recipe with a variant's method and settings; ``labels`` is a file of confusions to fix S at."""
    options = dict(variant.options)
    if variant.fixed_to_confusions:
        options |= {"initial_labels": labels, "frozen": True}
    values = to_dict(task)
    values["method"] = {"name": variant.method, "options": options}
    values["training"] |= variant.training
    return from_dict(values)


def _run(
    task: str,
    jobs: Sequence[tuple[Variant, RunConfig]],
    dataset: Dataset,
    work: Work,
    listening: Listening,
) -> list[Outcome]:
    if not jobs:
        return []
    _, choice = build.resolve_for(jobs[0][1], dataset)
    plan = plan_runs(dataset, choice, [config for _, config in jobs], work.out, work.workers)
    variants = {run_id(to_dict(config)): variant for variant, config in jobs}

    def record(path: Path) -> None:
        append_record(work.results, make_record(RunFolder(path), task, variants[_id_of(path)]))

    with listening(plan) as tell:

        def hear(event: Event) -> None:
            tell(event)
            if event.kind == "done" and _id_of(event.data) in variants:  # not what was only learned from
                record(Path(event.data))

        runs, failed = run_plan(plan, hear, sys.argv)
    for run in runs:  # those that had been finished before
        record(run.path)
    return failed


def _id_of(path: str | Path) -> str:
    return run_id(RunFolder(path).config)  # a folder of an earlier version may have another name


def _plain_baseline(variants: Sequence[Variant]) -> Variant:
    baseline = next((v for v in variants if v.method == "baseline" and not v.options and not v.training), None)
    if baseline is None:
        raise StudyError("fixed_to_confusions needs a plain baseline among the variants")
    return baseline


def _confusions_file(baselines: Sequence[RunFolder], out: Path, task: str) -> str:
    """Write what the baseline confuses on validation, named by its content, so that a run is known by it, too."""
    found = []
    for run in baselines:
        predictions = run.load_predictions()
        if predictions is None or predictions.validation_logits is None or predictions.validation_labels is None:
            raise StudyError(f"the baseline's run {run.path.name} on {task} has kept no predictions")
        found.append(mean_residual_labels(predictions.validation_logits, predictions.validation_labels))
    labels = np.mean(found, axis=0).astype(np.float32)
    path = out / f"confusions-{task}-{hashlib.sha256(labels.tobytes()).hexdigest()[:12]}.npz"
    write_npz(path, labels=labels)
    return str(path)


def count_missing(study: Study, task: str, results: Path) -> Mapping[str, int]:
    """How many runs a study wants on a task and how many of them are recorded, tuning trials included."""
    records = read_all_records(results, [task])
    wanted = 0
    done = 0
    for variant in study.variants_on(task):
        seeds = study.seeds_for(task)
        pairs = [(variant, seed) for seed in seeds]
        if variant.tune is not None:
            pairs = [(trial, seed) for trial in trials_of(variant) for seed in seeds[:TUNE_SEEDS]]
            best = best_trial(variant, task, records)
            wanted += 0 if best else len(seeds[TUNE_SEEDS:])
            pairs += [(best, seed) for seed in seeds[TUNE_SEEDS:]] if best else []
        wanted += len(pairs)
        done += sum((task, v.key, seed) in records for v, seed in pairs)
    return {"wanted": wanted, "done": done}

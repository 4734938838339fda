"""Do what a study asks for on one bench: its runs, and a record of each as soon as it is finished."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_labels import build
from adaptive_labels.analysis.label_scores import mean_residual_labels
from adaptive_labels.comparison import Plan, run_plan
from adaptive_labels.config import RunConfig, from_dict, load_toml, to_dict
from adaptive_labels.data import Dataset
from adaptive_labels.runs import RunFolder, run_id, write_npz
from adaptive_labels.studies.choosing import TUNE_SEEDS, best_trial, trials_of
from adaptive_labels.studies.records import append_record, make_record, read_all_records
from adaptive_labels.studies.study import Study, StudyError, Variant, bench_file
from adaptive_labels.sweeps import Event, Outcome

Listening = Callable[[Plan], Any]  # a context manager that gives something to tell events to


@dataclass(frozen=True)
class Work:
    """Where a study's parts lie and go; ``stand_ins``: other data for a bench's, by the name of what it stands for."""

    file: Path
    out: Path
    results: Path
    data_dir: str | None = None
    workers: int = 1
    stand_ins: Mapping[str, str] = field(default_factory=dict)


def conduct(study: Study, bench: str, work: Work, listening: Listening) -> list[Outcome]:
    """Run every variant × seed that is missing on a bench; returns the failures."""
    config = _bench_config(work, bench)
    dataset = build.load_data(config.data)
    seeds = study.seeds_for(bench)
    variants = study.variants_on(bench)
    plain = [variant for variant in variants if not variant.fixed_to_confusions and variant.tune is None]
    fixed = [variant for variant in variants if variant.fixed_to_confusions]
    tuned = [variant for variant in variants if variant.tune is not None]

    def missing(variants: Sequence[Variant], seeds: Sequence[int] = seeds) -> list[tuple[Variant, int]]:
        recorded = read_all_records(work.results, [bench])
        return [(v, seed) for seed in seeds for v in variants if (bench, v.key, seed) not in recorded]

    def run(pairs: Iterable[tuple[Variant, int]], labels: str | None = None) -> list[Outcome]:
        return _run(bench, _configs(config, dataset, pairs, labels), dataset, work, listening)

    failed = run(missing(plain))
    if held := missing(fixed):
        baselines = [(_plain_baseline(plain), seed) for seed in seeds]
        configs = _configs(config, dataset, baselines, None)
        folders = [RunFolder.create(work.out, to_dict(one)) for _, one in configs]
        # A record is not enough here: what the baseline confuses is in the predictions of its run.
        failed += run(pair for pair, folder in zip(baselines, folders, strict=True) if not folder.finished)
        failed += run(held, _confusions_file(folders, work.out, bench))
    if tuned:
        failed += run(missing([trial for variant in tuned for trial in trials_of(variant)], seeds[:TUNE_SEEDS]))
        records = read_all_records(work.results, [bench])
        best = [best_trial(variant, bench, records) for variant in tuned]
        failed += run(missing([trial for trial in best if trial is not None], seeds[TUNE_SEEDS:]))
    return failed


def _bench_config(work: Work, bench: str) -> RunConfig:
    config = load_toml(bench_file(work.file, bench))
    name = work.stand_ins.get(config.data.name, config.data.name)
    return dataclasses.replace(config, data=dataclasses.replace(config.data, name=name, data_dir=work.data_dir))


def _configs(
    bench: RunConfig, dataset: Dataset, pairs: Iterable[tuple[Variant, int]], labels: str | None
) -> list[tuple[Variant, RunConfig]]:
    """The resolved configuration of every variant and seed."""
    resolved: dict[str, RunConfig] = {}
    found = []
    for variant, seed in pairs:
        if variant.key not in resolved:
            resolved[variant.key], _ = build.resolve_for(with_variant(bench, variant, labels), dataset)
        found.append((variant, dataclasses.replace(resolved[variant.key], seed=seed)))
    return found


def with_variant(bench: RunConfig, variant: Variant, labels: str | None) -> RunConfig:
    """A bench's recipe with a variant's method and settings; ``labels`` is a file of confusions to fix S at."""
    options = dict(variant.options)
    if variant.fixed_to_confusions:
        options |= {"initial_labels": labels, "frozen": True}
    values = to_dict(bench)
    values["method"] = {"name": variant.method, "options": options}
    values["training"] |= variant.training
    return from_dict(values)


def _run(
    bench: str,
    jobs: Sequence[tuple[Variant, RunConfig]],
    dataset: Dataset,
    work: Work,
    listening: Listening,
) -> list[Outcome]:
    if not jobs:
        return []
    _, choice = build.resolve_for(jobs[0][1], dataset)
    plan = Plan(dataset, choice, tuple(config for _, config in jobs), work.out, work.workers)
    variants = {run_id(to_dict(config)): variant for variant, config in jobs}

    def record(path: Path) -> None:
        append_record(work.results, make_record(RunFolder(path), bench, variants[path.name]))

    with listening(plan) as tell:

        def hear(event: Event) -> None:
            tell(event)
            if event.kind == "done" and Path(event.data).name in variants:  # not what was only learned from
                record(Path(event.data))

        runs, failed = run_plan(plan, hear, sys.argv)
    for run in runs:  # those that had been finished before
        record(run.path)
    return failed


def _plain_baseline(variants: Sequence[Variant]) -> Variant:
    baseline = next((v for v in variants if v.method == "baseline" and not v.options and not v.training), None)
    if baseline is None:
        raise StudyError("fixed_to_confusions needs a plain baseline among the variants")
    return baseline


def _confusions_file(baselines: Sequence[RunFolder], out: Path, bench: str) -> str:
    """Write what the baseline confuses on validation, named by its content, so that a run is known by it, too."""
    found = []
    for run in baselines:
        predictions = run.load_predictions()
        if predictions is None or predictions.validation_logits is None or predictions.validation_labels is None:
            raise StudyError(f"the baseline's run {run.path.name} on {bench} has kept no predictions")
        found.append(mean_residual_labels(predictions.validation_logits, predictions.validation_labels))
    labels = np.mean(found, axis=0).astype(np.float32)
    path = out / f"confusions-{bench}-{hashlib.sha256(labels.tobytes()).hexdigest()[:12]}.npz"
    write_npz(path, labels=labels)
    return str(path)


def count_missing(study: Study, bench: str, results: Path) -> Mapping[str, int]:
    """How many runs a study wants on a bench and how many of them are recorded, tuning trials included."""
    records = read_all_records(results, [bench])
    wanted = 0
    done = 0
    for variant in study.variants_on(bench):
        seeds = study.seeds_for(bench)
        pairs = [(variant, seed) for seed in seeds]
        if variant.tune is not None:
            pairs = [(trial, seed) for trial in trials_of(variant) for seed in seeds[:TUNE_SEEDS]]
            best = best_trial(variant, bench, records)
            wanted += 0 if best else len(seeds[TUNE_SEEDS:])
            pairs += [(best, seed) for seed in seeds[TUNE_SEEDS:]] if best else []
        wanted += len(pairs)
        done += sum((bench, v.key, seed) in records for v, seed in pairs)
    return {"wanted": wanted, "done": done}

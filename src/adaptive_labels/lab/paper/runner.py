"""Do the runs of a study on one task, and write a record of each as soon as it is finished."""

import concurrent.futures as futures
import dataclasses
import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from adaptive_labels.lab.analysis.residual_labels import mean_residual_labels
from adaptive_labels.lab.config import RunConfig, changed, from_dict, to_dict
from adaptive_labels.lab.data import Dataset
from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.experiments.comparison import plan_runs, run_plan, with_workers
from adaptive_labels.lab.experiments.loggers import check_loggers
from adaptive_labels.lab.experiments.resolve import resolve_for
from adaptive_labels.lab.jobs import Event, Listener, Outcome
from adaptive_labels.lab.paper.records import (
    Records,
    append_record,
    make_record,
    read_records,
    stand_in_name,
)
from adaptive_labels.lab.paper.study import TUNE_SEEDS, Study, StudyError, Variant
from adaptive_labels.lab.runs import RunFolder, write_npz


@dataclass(frozen=True)
class StudyOptions:
    """Where runs are done, and where they and their records go.

    stand_ins: by the name of a data set, the data to use instead.
    workers: processes at a time; None for one per GPU, or else per core.
    executor: does the runs instead of ``workers`` processes; log: the loggers of the runs.
    """

    out: Path
    results: Path
    data_dir: str | None = None
    workers: int | None = None
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    executor: futures.Executor | None = None
    log: tuple[str, ...] = ()

    def config(self, study: Study, task: str) -> RunConfig:
        """A task's configuration with the data of these options, and its loggers if there are any."""
        config = study.config(task)
        name = self.stand_ins.get(config.data.name, config.data.name)
        config = changed(config, "data", name=name, data_dir=self.data_dir or config.data.data_dir)
        return changed(config, "training", log=self.log or config.training.log)

    def recorded_as(self, study: Study, task: str) -> str:
        """What a task's runs are recorded under: on other data than its own it is another task."""
        instead = self.stand_ins.get(study.config(task).data.name)
        return task if instead is None else stand_in_name(task, instead)


def run_study(study: Study, task: str, options: StudyOptions, listener: Listener) -> list[Outcome]:
    """Run every variant × seed that is missing on a task; returns the failures."""
    config, name = options.config(study, task), options.recorded_as(study, task)
    check_loggers(config)
    dataset = build.load_data(config.data, config.model)
    for (other, _, _), record in read_records(options.results, study).items() if name != task else ():
        # Two folders that are called alike would be one column.
        if other == name and record["config"]["data"].get("fingerprint", dataset.fingerprint) != dataset.fingerprint:
            raise StudyError(f"{name} has records of other data under this name: rename the data, or give --results")
    failed: list[Outcome] = []

    def run(pairs: Sequence[tuple[Variant, int]], labels: str | None = None) -> list[RunFolder]:
        by_variant = {variant.key: with_variant(config, variant, labels) for variant, _ in pairs}
        resolved = {key: resolve_for(stated, dataset)[0] for key, stated in by_variant.items()}
        configs = [dataclasses.replace(resolved[variant.key], seed=seed) for variant, seed in pairs]
        finished, failures = _run(name, pairs, configs, dataset, options, listener)
        failed.extend(failures)
        return finished

    tried: set[tuple[str, int]] = set()
    for _ in range(2):  # once its trials are recorded, the best one of a tuned variant is known and gets its seeds
        records = read_records(options.results, study)
        wanted = [(v, seed) for v, seed in _wanted(study, task, name, records) if (v.key, seed) not in tried]
        missing = [(v, seed) for v, seed in wanted if (name, v.key, seed) not in records]
        tried |= {(v.key, seed) for v, seed in missing}
        run([(v, seed) for v, seed in missing if not v.fixed_to_confusions])
        if held := [(v, seed) for v, seed in missing if v.fixed_to_confusions]:
            baseline = Variant("baseline", "baseline")
            if baseline.key not in {v.key for v in study.variants_on(task)}:
                raise StudyError("fixed_to_confusions needs a plain baseline among the variants")
            # A record is not enough here: what the baseline confuses is in the predictions of its run.
            seeds = study.seeds_for(task)
            baselines = run([(baseline, seed) for seed in seeds])
            if len(baselines) == len(seeds):
                run(held, _confusions_file(baselines, options.out, name))
    return failed


def _wanted(study: Study, task: str, name: str, records: Records) -> list[tuple[Variant, int]]:
    """Variants and seeds to be run on a task, one seed after the other; of a tuned variant what is known by now."""
    seeds, pairs = study.seeds_for(task), []
    for variant in study.variants_on(task):
        if variant.tune is None:
            pairs += [(variant, seed) for seed in seeds]
        else:
            pairs += [(trial, seed) for trial in variant.trials() for seed in seeds[:TUNE_SEEDS]]
            best = variant.best_trial(name, records, seeds)
            pairs += [(best, seed) for seed in seeds[TUNE_SEEDS:]] if best else []
    return sorted(pairs, key=lambda pair: pair[1])


def count_runs(study: Study, task: str, options: StudyOptions) -> tuple[int, int]:
    """How many runs a study wants on a task, tuning trials included, and how many of them are recorded."""
    name, records, seeds = options.recorded_as(study, task), read_records(options.results, study), study.seeds_for(task)
    pairs = _wanted(study, task, name, records)
    open_ends = [
        v for v in study.variants_on(task) if v.tune is not None and v.best_trial(name, records, seeds) is None
    ]
    done = sum((name, variant.key, seed) in records for variant, seed in pairs)
    return len(pairs) + len(open_ends) * len(seeds[TUNE_SEEDS:]), done


def run_variant(config: RunConfig, variant: Variant, out: Path, listener: Listener) -> RunFolder:
    """One run of a variant on a task's configuration, trained unless it is there already; nothing is recorded."""
    dataset = build.load_data(config.data, config.model)
    resolved, _ = resolve_for(with_variant(config, variant), dataset)
    runs, failed = run_plan(plan_runs(dataset, [resolved], out), listener, sys.argv)
    if failed:
        raise StudyError(f"the run failed: {failed[0].error}")
    return runs[0]


def with_variant(task: RunConfig, variant: Variant, labels: str | None = None) -> RunConfig:
    """A task's recipe with a variant's method and settings; ``labels`` is a file of confusions to fix S at."""
    options = dict(variant.options)
    if variant.fixed_to_confusions:
        options |= {"initial_labels": labels, "update": "frozen"}
    values = to_dict(task)
    values["method"] = {"name": variant.method, "options": options}
    values["training"] |= variant.training
    return from_dict(values)


def _run(
    name: str,
    pairs: Sequence[tuple[Variant, int]],
    configs: Sequence[RunConfig],
    dataset: Dataset,
    options: StudyOptions,
    listener: Listener,
) -> tuple[list[RunFolder], list[Outcome]]:
    """Do the runs of variants and seeds, and record each; the finished runs, and the failures."""
    if not pairs:
        return [], []
    plan = with_workers(plan_runs(dataset, configs, options.out), options.workers)
    variants: dict[str, list[Variant]] = {}  # several can be one run: one gives a setting that the others have anyway
    for (variant, _), folder in zip(pairs, plan.asked, strict=True):
        variants.setdefault(folder.name, []).append(variant)

    def record(run: RunFolder) -> None:
        for variant in variants.get(run.name, ()):  # none for a run that was only learned from
            append_record(options.results, make_record(run, name, variant))

    def hear(event: Event) -> None:
        listener(event)
        if event.kind == "done":
            record(RunFolder(Path(event.data)))

    runs, failures = run_plan(plan, hear, sys.argv, options.executor)
    for run in runs:  # those that had been finished before
        record(run)
    return runs, failures


def _confusions_file(baselines: Sequence[RunFolder], out: Path, task: str) -> str:
    """Write what the baseline confuses on validation, named by its content, so that a run is known by it, too."""
    matrices = []
    for run in baselines:
        predictions = run.load_predictions()
        if predictions is None:
            raise StudyError(f"the baseline's run {run.path.name} on {task} has kept no predictions")
        matrices.append(mean_residual_labels(predictions.validation_logits, predictions.validation_labels))
    labels = np.mean(matrices, axis=0).astype(np.float32)
    path = out / f"confusions-{task}-{hashlib.sha256(labels.tobytes()).hexdigest()[:12]}.npz"
    write_npz(path, labels=labels)
    return str(path)

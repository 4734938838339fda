"""The plan of a comparison, as plain data, with an estimate of its cost."""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptive_labels.lab.config import RunConfig, to_dict
from adaptive_labels.lab.data import Dataset
from adaptive_labels.lab.experiments import teachers
from adaptive_labels.lab.runs import run_id, run_path

IMPORT_SECONDS = 3.0  # what a new process takes to start and to import torch


@dataclass(frozen=True)
class Budget:
    """The seconds that a comparison may take from when it began, by a clock that other processes share.

    key: names what the budget led to in a file beside the runs, so that the same command finds its own runs again.
    """

    seconds: float
    began: float
    key: str = ""
    clock: Callable[[], float] = time.time

    @property
    def left(self) -> float:
        """What is left of it."""
        return self.began + self.seconds - self.clock()


@dataclass(frozen=True)
class Plan:
    """What a comparison will do, as plain data: `plan_runs` makes one, and looks once at which runs are finished.

    finished: the names of the runs that were finished then, and need not be done.
    costs: seconds of a run by `cost_key`, None if they were not measured.
    encoding: seconds that a pretrained encoder may take before all runs.
    notes: why the recipe is as it is, in sentences.
    budget: the time that it may take, if that is limited.
    """

    dataset: Dataset
    configs: tuple[RunConfig, ...]
    out: Path
    workers: int = 1
    finished: frozenset[str] = frozenset()
    costs: Mapping[str, float] | None = None
    encoding: float = 0.0
    notes: tuple[str, ...] = ()
    budget: Budget | None = None

    @property
    def todo(self) -> tuple[RunConfig, ...]:
        """The configurations whose runs are not finished yet."""
        return tuple(config for config in self.configs if name_of_run(config) not in self.finished)

    @property
    def first(self) -> tuple[RunConfig, ...]:
        """The runs that the comparison's own learn from and that are not among them: teachers, earlier generations."""
        own = {name_of_run(config) for config in self.configs}
        return tuple(run for name, run in with_needed(self.configs).items() if name not in own)

    @property
    def stages(self) -> tuple[tuple[RunConfig, ...], ...]:
        """All that is left to do, in the order in which it can be done: no run needs one of its own stage.

        Where time is limited, every method has its first seed before any has its second.
        """
        stages: dict[tuple[int, int], list[RunConfig]] = {}
        for name, run in with_needed(self.todo).items():
            if name not in self.finished:
                seed = 0 if self.budget is None else run.seed
                stages.setdefault((seed, len(teachers.needed_runs(run))), []).append(run)
        return tuple(tuple(stages[depth]) for depth in sorted(stages))

    @property
    def jobs(self) -> tuple[RunConfig, ...]:
        """The runs of all stages in turn."""
        return tuple(run for stage in self.stages for run in stage)

    @property
    def starting(self) -> float:
        """Seconds before workers begin to train."""
        return self.encoding + (IMPORT_SECONDS if self.workers > 1 else 0.0)

    @property
    def seconds(self) -> float | None:
        """The estimate for all that is left to do."""
        return None if self.costs is None else self.starting + self.training_seconds

    @property
    def training_seconds(self) -> float:
        """The part of the estimate that grows with the epochs: each stage as long as its busiest worker."""
        return sum(map(self.stage_seconds, self.stages))

    def stage_seconds(self, stage: Iterable[RunConfig]) -> float:
        """The estimate for one stage: that of its busiest worker."""
        assert self.costs is not None
        busy = [0.0] * self.workers
        for run in stage:
            busy[busy.index(min(busy))] += self.costs[cost_key(run)]
        return max(busy)

    def name_of(self, config: RunConfig) -> str:
        """A run in words: method, what sets it apart from others (a model, options of the method), and its seed."""
        model = [] if config.model.name == self.configs[0].model.name else [str(config.model.name)]
        others = [other.method.options for other in self.configs if other.method.name == config.method.name]
        own = config.method.options
        varied = [f"{key} {value}" for key, value in own.items() if any(o.get(key) != value for o in others)]
        return " ".join([config.method.name, *model, *varied, f"seed {config.seed}"])


def plan_runs(dataset: Dataset, configs: Iterable[RunConfig], out: Path, **more: Any) -> Plan:
    """A plan for resolved configurations; which of them are finished is read from ``out`` here, and nowhere later.

    Two that are the same run, such as one with an option at its default and one without it, are planned once.
    """
    configs = tuple({name_of_run(config): config for config in configs}.values())
    needed = with_needed(configs).items()
    finished = frozenset(name for name, run in needed if is_finished(out, run))
    return Plan(dataset, configs, out, finished=finished, **more)


def with_needed(configs: Iterable[RunConfig]) -> dict[str, RunConfig]:
    """Runs by name, each after those that it learns from."""
    return {name_of_run(run): run for config in configs for run in (*teachers.needed_runs(config), config)}


def name_of_run(config: RunConfig) -> str:
    """The name of a configuration's run."""
    return run_id(config)


def is_finished(out: Path, config: RunConfig) -> bool:
    """Whether a configuration's run is there, whole."""
    return (run_path(out, config) / "result.json").exists()


def cost_key(config: RunConfig) -> str:
    """What a run's cost depends on within one comparison: the networks that are trained, and the one that teaches."""
    networks = (*teachers.networks(config), teachers.teacher_model(config))
    return json.dumps([None if model is None else to_dict(model) for model in networks], sort_keys=True)

"""The plan of a comparison: which runs there are, in which folders, what each learns from, and what they may cost."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptive_labels.lab.config import RunConfig, to_dict
from adaptive_labels.lab.data import Dataset
from adaptive_labels.lab.experiments import build, teachers
from adaptive_labels.lab.experiments.resolve import resolve_for
from adaptive_labels.lab.jobs import Job
from adaptive_labels.lab.machine import TimeBudget
from adaptive_labels.lab.runs import run_path

IMPORT_SECONDS = 3.0  # what a new process takes to start and to import torch


@dataclass(frozen=True)
class Entry:
    """A run of a plan.

    folder: of the run; its name says which run it is.
    teacher: the folder of the run that it learns from, or None.
    depth: how many runs must be finished before it, one after the other.
    kind: what its cost depends on within one comparison: the networks that are trained, and the one that teaches.
    is_finished: whether its run was finished when the plan was made.
    """

    config: RunConfig
    folder: Path
    teacher: Path | None
    depth: int
    kind: str
    is_finished: bool


@dataclass(frozen=True)
class Plan:
    """What a comparison will do: `plan_runs` makes one, and looks once at which runs are finished.

    own: the runs that were asked for; first: those that they learn from and that are not among them.
    asked: the folder of each configuration that was asked for; several may be one run.
    costs: seconds of a run by its kind, None if they were not measured.
    encoding: seconds that a pretrained encoder may take before all runs.
    notes: why the recipe is as it is, in sentences.
    budget: the time that it may take, if that is limited.
    """

    dataset: Dataset
    out: Path
    own: tuple[Entry, ...]
    first: tuple[Entry, ...] = ()
    asked: tuple[Path, ...] = ()
    workers: int = 1
    costs: Mapping[str, float] | None = None
    encoding: float = 0.0
    notes: tuple[str, ...] = ()
    budget: TimeBudget | None = None

    @property
    def todo(self) -> tuple[Entry, ...]:
        """What is left to do, each run after the one that it learns from."""
        by_folder = {entry.folder: entry for entry in (*self.first, *self.own)}
        entries: dict[Path, Entry] = {}
        for own in self.own:
            chain: list[Entry] = []
            entry: Entry | None = own
            while entry is not None and not entry.is_finished and entry.folder not in entries:
                chain.append(entry)
                entry = None if entry.teacher is None else by_folder.get(entry.teacher)
            entries |= {entry.folder: entry for entry in reversed(chain)}
        return tuple(entries.values())

    @property
    def stages(self) -> tuple[tuple[Entry, ...], ...]:
        """All that is left to do, in the order in which it can be done: no run needs one of its own stage.

        Where time is limited, every method has its first seed before any has its second.
        """
        stages: dict[tuple[int, int], list[Entry]] = {}
        for entry in self.todo:
            seed = 0 if self.budget is None else entry.config.seed
            stages.setdefault((seed, entry.depth), []).append(entry)
        return tuple(tuple(stages[place]) for place in sorted(stages))

    @property
    def starting(self) -> float:
        """Seconds before workers begin to train."""
        return self.encoding + (IMPORT_SECONDS if self.workers > 1 else 0.0)

    @property
    def seconds(self) -> float | None:
        """The estimate for all that is left to do: each stage takes as long as its busiest worker."""
        return None if self.costs is None else self.starting + sum(map(self.stage_seconds, self.stages))

    def stage_seconds(self, stage: Iterable[Entry]) -> float:
        """The estimate for one stage: that of its busiest worker."""
        assert self.costs is not None
        busy = [0.0] * self.workers
        for entry in stage:
            busy[busy.index(min(busy))] += self.costs[entry.kind]
        return max(busy)

    def name_of(self, config: RunConfig) -> str:
        """A run in words: method, what sets it apart from others (a model, options of the method), and its seed."""
        configs = [entry.config for entry in self.own]
        model = [str(config.model.name)] if len({other.model.name for other in configs}) > 1 else []
        others = [other.method.options for other in configs if other.method.name == config.method.name]
        own = config.method.options
        varied = [f"{key} {value}" for key, value in own.items() if any(o.get(key) != value for o in others)]
        return " ".join([config.method.name, *model, *varied, f"seed {config.seed}"])

    def job(self, entry: Entry, command: Iterable[str], data: Path | None = None, shared: Path | None = None) -> Job:
        """A run of the plan as a job; machines that share a folder with this one have other working folders."""
        folder, teacher = entry.folder, entry.teacher
        if shared is not None:
            folder, teacher = folder.absolute(), None if teacher is None else teacher.absolute()
        return Job(self.name_of(entry.config), entry.config, folder, tuple(command), teacher, data, shared)


def plan_runs(dataset: Dataset, configs: Iterable[RunConfig], out: Path, **more: Any) -> Plan:
    """A plan for resolved configurations: only here runs are named, ordered, and looked up in ``out``.

    Two that are the same run, such as one with an option at its default and one without it, are planned once.
    """
    entries: dict[Path, Entry] = {}
    own: list[Path] = []
    for asked in configs:
        before: Entry | None = None
        for config in (*teachers.needed_runs(asked), asked):
            folder = run_path(out, config)
            if folder not in entries:
                teacher = teachers.given_teacher(config) if before is None else before.folder
                depth, taught_by = (0 if before is None else before.depth + 1), teachers.teacher_model(config)
                networks = [to_dict(model) for model in (*teachers.networks(config), taught_by) if model is not None]
                is_finished = (folder / "result.json").exists()
                kind = json.dumps(networks, sort_keys=True)
                entries[folder] = Entry(config, folder, teacher, depth, kind, is_finished)
            before = entries[folder]
        assert before is not None
        own.append(before.folder)
    first = tuple(entry for folder, entry in entries.items() if folder not in own)
    return Plan(dataset, out, tuple(entries[folder] for folder in dict.fromkeys(own)), first, tuple(own), **more)


def plan_one(config: RunConfig, out: Path) -> Plan:
    """The plan of one run, with those that it learns from: read the data, and choose what is left open."""
    dataset = build.load_data(config.data, config.model)
    config, reasons = resolve_for(config, dataset)
    return plan_runs(dataset, [config], out, notes=reasons)

"""A study as plain data: a question, its tasks, and the variants to compare. evidence/README.md describes its keys.

A task is data, a network and a recipe. It is a table ``[task.NAME]`` of the study's own file, of ``tasks.toml`` beside
it, or of one of the paper's recipes; a study names its tasks by their names alone.
"""

import dataclasses
import itertools
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from adaptive_labels.errors import UserError
from adaptive_labels.lab.config import ConfigError, RunConfig, from_dict
from adaptive_labels.lab.config.checks import Section, typed
from adaptive_labels.lab.files import read_toml
from adaptive_labels.losses import find_method

RECIPES = Path(__file__).parent / "recipes"
Record = dict[str, Any]
Records = Mapping[tuple[str, str, int], Record]  # by task, variant and seed
TUNE_SEEDS = 2  # seeds that every trial is run with; the chosen one gets the study's others as well


class StudyError(UserError):
    """A study that cannot be used: one sentence that names the file and the key."""


@dataclass(frozen=True)
class Variant(Section, prefix="variant."):
    """One row of a study: a method with some settings.

    tasks: where it is run; empty for all of the study's.
    grid: lists of values; the entry stands for one variant per combination.
    """

    name: str = ""
    method: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    tune: int | None = None
    fixed_to_confusions: bool = False
    tasks: tuple[str, ...] = ()
    grid: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What a run of this variant is known by, whatever its name in a study: its settings as canonical JSON.

        >>> Variant("a", "alr", {"attraction": -2.0}).key
        '{"method":"alr","options":{"attraction":-2.0},"training":{}}'
        """
        settings: dict[str, Any] = {"method": self.method, "options": self.options, "training": self.training}
        if self.fixed_to_confusions:
            settings["fixed_to_confusions"] = True
        return json.dumps(settings, sort_keys=True, separators=(",", ":"))

    def trials(self) -> list[Self]:
        """A variant with ``tune = n`` at n values of its method's main option, the ones that `alr tune` tries."""
        option, values = find_method(self.method).trials(self.tune or 0)
        return [
            dataclasses.replace(
                self, name=f"{self.name} ({option} {value:g})", options={**self.options, option: value}, tune=None
            )
            for value in values
        ]

    def best_trial(self, task: str, records: Records, seeds: Sequence[int] = range(TUNE_SEEDS)) -> Self | None:
        """The trial with the highest mean validation accuracy over the first ``seeds`` (the first of equals).

        None while a trial is missing. One that diverged counts as 0.
        """
        trials = self.trials()
        runs = [[records.get((task, trial.key, seed)) for seed in seeds[:TUNE_SEEDS]] for trial in trials]
        if any(run is None for some in runs for run in some):
            return None
        splits = [[run["metrics"].get("validation", {}) for run in some if run is not None] for some in runs]
        scores = [statistics.fmean(split.get("top1", 0.0) for split in some) for some in splits]
        return trials[scores.index(max(scores))]

    def combinations(self, shared: Mapping[str, Any]) -> Iterator[Self]:
        """One variant for each combination of the grid's values; this one alone without a grid.

        ``shared``: the options that all variants of this method have.
        """
        shared = {} if self.fixed_to_confusions else shared
        if wrong := [key for key, values in self.grid.items() if not isinstance(values, list)]:
            raise StudyError(f"variant.grid.{wrong[0]} is {self.grid[wrong[0]]!r}: allowed is a list of values")
        for values in itertools.product(*self.grid.values()):
            chosen: dict[str, Any] = {"options": {**shared, **self.options}, "training": dict(self.training)}
            shown = {}
            for key, value in zip(self.grid, values, strict=True):
                name = key.removeprefix("training.")
                chosen["options" if name == key else "training"][name] = value
                shown[name] = f"{value:g}".replace("-", "−") if isinstance(value, float) else str(value)
            try:
                yield dataclasses.replace(self, name=self.name.format(**shown), grid={}, **chosen)
            except (KeyError, IndexError, ValueError) as error:
                raise StudyError(f"variant.name is {self.name!r}, but its grid has {', '.join(shown)}") from error


@dataclass(frozen=True)
class Figure(Section, prefix="figure."):
    """What a study's picture shows: a method's option, at these values, against the baseline."""

    title: str
    label: str
    method: str
    option: str
    default: float
    values: tuple[float, ...]


@dataclass(frozen=True)
class Task(Section, prefix="task."):
    """What a task states: its settings, over those of the task that it is ``like``, or else of its file's defaults.

    column: the column of the paper's table that it stands for.
    """

    like: str | None = None
    column: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)

    def over(self, base: Self) -> Self:
        """This task with the settings of another one where it states none."""
        sections: dict[str, Any] = {
            name: {**getattr(base, name), **getattr(self, name)} for name in ("data", "model", "training")
        }
        return dataclasses.replace(self, like=base.like, **sections)


@dataclass(frozen=True)
class Study(Section):
    """A question, what is run to answer it, and the answer so far.

    methods: methods that are variants without settings.
    options: by method, the options of all its variants.
    by_class: whether to show in which classes the gain over the baseline lies.
    combined: the variants that gains over all tasks together are taken against.
    """

    file: Path = Path()
    title: str = ""
    question: str = ""
    conclusion: str = ""
    tasks: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    variant: tuple[Variant, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    reference: str = "baseline"
    seeds: int = 5
    seeds_on: dict[str, int] = field(default_factory=dict)
    columns: tuple[str, ...] = ("nll", "ece", "ece_scaled", "aurc")
    by_class: bool = False
    figure: Figure | None = None
    combined: tuple[str, ...] = ()
    defaults: dict[str, Any] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The file's, without its ending."""
        return self.file.stem

    def seeds_for(self, task: str) -> range:
        """The seeds of every variant on a task."""
        return range(self.seeds_on.get(task, self.seeds))

    def variants_on(self, task: str) -> list[Variant]:
        """The variants that are run on a task."""
        return [variant for variant in self.variant if not variant.tasks or task in variant.tasks]

    def limited(self, variants: Sequence[Variant], seeds: int | None = None) -> Self:
        """A study of these variants only, with so many seeds on every task if a number is given."""
        counts: dict[str, Any] = {} if seeds is None else {"seeds": seeds, "seeds_on": {}}
        return dataclasses.replace(self, variant=tuple(variants), **counts)

    def config(self, task: str) -> RunConfig:
        """A task's data, network and recipe, the method left open."""
        try:
            known = _find_task(task, self._files())
            return from_dict({"data": known.data, "model": known.model, "training": known.training})
        except ConfigError as error:
            raise StudyError(f"the task {task} of {self.file}: {error}") from error

    def column(self, task: str) -> str:
        """The column of the paper's table that a task stands for."""
        return _find_task(task, self._files()).column

    def _files(self) -> tuple[Path, ...]:
        beside = self.file.with_name("tasks.toml")
        return tuple(
            dict.fromkeys((self.file, *([beside] if beside.exists() else []), *sorted(RECIPES.glob("*.toml"))))
        )


def load_study(path: str | Path) -> Study:
    """Read a study; unknown keys, missing ones, wrong types and a reference that is no variant are refused."""
    path = Path(path)
    try:
        study = _read(path)
        entries = (*(Variant(name, name) for name in study.methods), *study.variant)
        variants = tuple(v for entry in entries for v in entry.combinations(study.options.get(entry.method, {})))
        study = dataclasses.replace(study, methods=(), variant=variants, tasks=study.tasks or tuple(study.task))
        _check(study)
        for task in study.tasks:
            study.config(task)
    except (ConfigError, StudyError) as error:
        sentence = str(error)
        raise StudyError(sentence if str(path) in sentence else f"the study {path}: {sentence}") from error
    return study


def _check(study: Study) -> None:
    for key in ("title", "question", "tasks", "variant"):
        if not getattr(study, key):
            raise StudyError(f"it has no {key}")
    for variant in study.variant:
        if not variant.name or not variant.method:
            raise StudyError(f"the variant {variant.name or variant.method!r} needs a name and a method")
    for first, second in itertools.combinations(study.variant, 2):
        if first.name == second.name and (not first.tasks or not second.tasks or set(first.tasks) & set(second.tasks)):
            raise StudyError(f"it has two variants called {first.name!r}")
    names = {variant.name for variant in study.variant}
    for key, name in (("reference", study.reference), *(("combined", name) for name in study.combined)):
        if name not in names:
            raise StudyError(f"its {key} {name!r} is none of its variants")


def _read(path: Path) -> Study:
    try:
        values = read_toml(path)
    except (OSError, ValueError) as error:
        raise StudyError(f"the study {path} cannot be read: {error}") from error
    try:
        study: Study = typed(values | {"file": path}, Study, "")
    except TypeError as error:  # of a figure, whose settings have no defaults
        raise StudyError(f"the study {path}: its figure lacks a setting ({error})") from error
    return study


@lru_cache(maxsize=64)
def _stated(path: Path, changed: int) -> dict[str, Task]:
    """The tasks that a file states, over its defaults unless they are like others; read again when it has changed."""
    study = _read(path)
    defaults: Task = typed(study.defaults, Task, "defaults")
    stated: dict[str, Task] = {name: typed(values, Task, f"task.{name}") for name, values in study.task.items()}
    return {name: task if task.like else task.over(defaults) for name, task in stated.items()}


def _find_task(name: str, files: Sequence[Path], seen: tuple[str, ...] = ()) -> Task:
    """The task of this name in the first file that has it, whole."""
    if name in seen:
        raise StudyError(f"the task {name} is like itself, by {' and '.join(seen)}")
    for file in files:
        task = _stated(file, file.stat().st_mtime_ns).get(name)
        if task is not None:
            return task.over(_find_task(task.like, files, (*seen, name))) if task.like else task
    raise StudyError(f"there is no task {name!r} in {files[0]}, in tasks.toml beside it, or in the paper's recipes")

"""A study as plain data: a question, its tasks, and the variants to compare.

It is one TOML file; studies/README.md describes its keys.
"""

import dataclasses
import itertools
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, get_type_hints

from adaptive_labels.errors import UserError, did_you_mean
from adaptive_labels.lab.config import ConfigError, RunConfig, from_dict, load_toml
from adaptive_labels.lab.config.checks import typed
from adaptive_labels.lab.files import read_toml
from adaptive_labels.losses import find_method

Record = dict[str, Any]
Records = Mapping[tuple[str, str, int], Record]  # by task, variant and seed
TUNE_SEEDS = 2  # seeds that every trial is run with; the chosen one gets the study's others as well
DEFAULT_COLUMNS = ("nll", "ece", "ece_scaled", "aurc")
# How a metric is called in a table, and how many digits it is shown with.
COLUMNS = {
    "top5": ("top-5 %", 1, 100.0),
    "nll": ("NLL", 3, 1.0),
    "nll_scaled": ("NLL, scaled", 3, 1.0),
    "ece": ("ECE", 3, 1.0),
    "ece_scaled": ("ECE, scaled", 3, 1.0),
    "aurc": ("AURC", 4, 1.0),
    "worst_class": ("worst class %", 1, 100.0),
    "train_top1": ("train %", 1, 100.0),
    "loss_rise": ("rise of validation NLL", 3, 1.0),  # from its lowest epoch to the last
    "residual_entropy": ("entropy of confusions", 3, 1.0),
    "rival_margin": ("margin to rival", 3, 1.0),
    "confused_margin": ("to most confused", 3, 1.0),
    "other_margin": ("to the mean other", 3, 1.0),
    "errors_to_confused": ("errors to most confused %", 1, 100.0),
    "label_entropy": ("entropy of S", 3, 1.0),
    "label_agreement": ("S with test errors, Spearman", 3, 1.0),
    "label_top1": ("top of S is top error %", 1, 100.0),
}


class StudyError(UserError):
    """A study that cannot be used: one sentence that names the file and the key."""


@dataclass(frozen=True)
class Variant:
    """One row of a study: a method with some settings.

    tasks: where it is run; empty for all of the study's.
    """

    name: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    tune: int | None = None
    fixed_to_confusions: bool = False
    tasks: tuple[str, ...] = ()

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
        found = [[records.get((task, trial.key, seed)) for seed in seeds[:TUNE_SEEDS]] for trial in trials]
        if any(None in runs for runs in found):
            return None
        splits = [[run["metrics"].get("validation", {}) for run in runs if run is not None] for runs in found]
        scores = [statistics.fmean(split.get("top1", 0.0) for split in runs) for runs in splits]
        return trials[scores.index(max(scores))]


@dataclass(frozen=True)
class Figure:
    """What a study's picture shows: a method's option, at these values, against the baseline."""

    title: str
    label: str
    method: str
    option: str
    default: float
    values: tuple[float, ...]


@dataclass(frozen=True)
class Study:
    """A question, and what is run to answer it."""

    file: Path
    title: str
    question: str
    tasks: tuple[str, ...]
    variants: tuple[Variant, ...]
    reference: str = "baseline"
    seeds: int = 5
    seeds_on: dict[str, int] = field(default_factory=dict)
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    by_class: bool = False  # whether to show in which classes the gain over the baseline lies
    figure: Figure | None = None
    combined: tuple[str, ...] = ()  # the variants that gains over all tasks together are taken against
    paper_columns: Mapping[str, str] = field(default_factory=dict)  # task → the column of the paper's table
    own_tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # task → its configuration
    options: dict[str, dict[str, Any]] = field(default_factory=dict)  # method → what all its variants have

    @property
    def name(self) -> str:
        """The file's, without its ending."""
        return self.file.stem

    def seeds_for(self, task: str) -> range:
        """The seeds of every variant on a task."""
        return range(self.seeds_on.get(task, self.seeds))

    def variants_on(self, task: str) -> list[Variant]:
        """The variants that are run on a task."""
        return [variant for variant in self.variants if not variant.tasks or task in variant.tasks]

    def limited(self, variants: Sequence[Variant], seeds: int | None = None) -> Self:
        """A study of these variants only, with so many seeds on every task if a number is given."""
        counts: dict[str, Any] = {} if seeds is None else {"seeds": seeds, "seeds_on": {}}
        return dataclasses.replace(self, variants=tuple(variants), **counts)

    def config(self, task: str) -> RunConfig:
        """A task's data, network and recipe, the method left open: of the study itself, or of tasks/ beside it."""
        if task in self.own_tasks:
            try:
                return from_dict(self.own_tasks[task])
            except ConfigError as error:
                raise StudyError(f"the task {task} of {self.file}: {error}") from error
        path = self.file.parent / "tasks" / f"{task}.toml"
        if not path.exists():
            raise StudyError(f"the study {self.file} names the task {task!r}, but there is no {path}")
        return load_toml(path)


_TABLE = dict[str, Any]
_TABLES = dict[str, _TABLE]
_STUDY_KINDS = get_type_hints(Study) | {"methods": tuple[str, ...], "variant": tuple[_TABLE, ...], "figure": _TABLE}
_STUDY_KINDS |= {"defaults": _TABLES, "task": _TABLES}
for _name in ("file", "variants", "paper_columns", "own_tasks"):
    del _STUDY_KINDS[_name]
_VARIANT_KINDS = {**get_type_hints(Variant), "grid": dict[str, tuple[Any, ...]]}
_TASK_SECTIONS = ("data", "model", "training")
_TASK_KINDS = {"like": str, "study": str, "column": str, **dict.fromkeys(_TASK_SECTIONS, _TABLE)}


def load_study(path: str | Path) -> Study:
    """Read a study; unknown keys, missing ones, wrong types and a reference that is no variant are refused."""
    path = Path(path)
    values = _read(path)
    given = values.pop("task", {})
    own = _own_tasks(path, given, values.pop("defaults", {}))
    if own:
        values.setdefault("tasks", tuple(own))
    for key in ("title", "question", "tasks"):
        if key not in values:
            raise StudyError(f"the study {path} has no {key}")
    shared = values.get("options", {})
    variants = [Variant(name, name, shared.get(name, {})) for name in values.pop("methods", ())]
    variants += [variant for entry in values.pop("variant", ()) for variant in _expand(path, entry, shared)]
    reference = values.setdefault("reference", "baseline")
    if not variants:
        raise StudyError(f"the study {path} has no variant")
    for first, second in itertools.combinations(variants, 2):
        if first.name == second.name and (not first.tasks or not second.tasks or set(first.tasks) & set(second.tasks)):
            raise StudyError(f"the study {path} has two variants called {first.name!r}")
    for key, name in (("reference", reference), *(("combined", name) for name in values.get("combined", ()))):
        if name not in {variant.name for variant in variants}:
            raise StudyError(f"the study {path} has the {key} {name!r}, which is none of its variants")
    for column in values.get("columns", ()):
        if column not in COLUMNS:
            raise StudyError(f"the study {path} has the unknown column {column!r}; known are {', '.join(COLUMNS)}")
    if "figure" in values:
        try:
            values["figure"] = Figure(**{**values["figure"], "values": tuple(values["figure"]["values"])})
        except (KeyError, TypeError) as error:
            needed = "title, label, method, option, default and values"
            raise StudyError(f"the figure of {path} needs {needed}: {error}") from error
    columns = {name: task["column"] for name, task in given.items() if "column" in task}
    return Study(file=path, variants=tuple(variants), paper_columns=columns, own_tasks=own, **values)


def _read(path: Path) -> dict[str, Any]:
    try:
        values = read_toml(path)
    except (OSError, ValueError) as error:
        raise StudyError(f"the study {path} cannot be read: {error}") from error
    return _checked(path, values, _STUDY_KINDS)


def _own_tasks(path: Path, tasks: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The tasks that a study holds itself: their own values over those of the task they are like or the defaults."""
    found: dict[str, dict[str, Any]] = {}
    for name, own in tasks.items():
        own = _checked(path, own, _TASK_KINDS)
        like = own.get("like")
        others, where = found, "is no task before it"
        if "study" in own:  # the task is one that another study holds
            file = path.parent / own["study"]
            others, where = _held_by(file), f"is no task of {file}"
            like = like or name
        if like is not None and like not in others:
            raise StudyError(f"the task {name} of {path} is like {like!r}, which {where}")
        base = defaults if like is None else others[like]
        found[name] = {key: {**base.get(key, {}), **own.get(key, {})} for key in _TASK_SECTIONS}
    return found


def _held_by(path: Path) -> dict[str, dict[str, Any]]:
    """The tasks that a study's file states, without those that it has from other files: so there is no circle."""
    values = _read(path)
    stated = {name: task for name, task in values.get("task", {}).items() if "study" not in task}
    return _own_tasks(path, stated, values.get("defaults", {}))


def _expand(path: Path, entry: Mapping[str, Any], shared: Mapping[str, dict[str, Any]]) -> Iterator[Variant]:
    """The variants of one entry: one, or one for every combination of its grid; ``shared`` are options by method."""
    given = _checked(path, entry, _VARIANT_KINDS)
    for key in ("name", "method"):
        if key not in given:
            raise StudyError(f"a variant of {path} has no {key}")
    grid = given.pop("grid", {})
    for values in itertools.product(*grid.values()):
        chosen: dict[str, dict[str, Any]] = {"options": {}, "training": {}}
        shown = {}
        for key, value in zip(grid, values, strict=True):
            name = key.removeprefix("training.")
            chosen["options" if name == key else "training"][name] = value
            shown[name] = f"{value:g}".replace("-", "−") if isinstance(value, float) else str(value)
        settings = {key: {**given.get(key, {}), **more} for key, more in chosen.items()}
        if not given.get("fixed_to_confusions"):
            settings["options"] = {**shared.get(given["method"], {}), **settings["options"]}
        try:
            yield Variant(**{**given, **settings, "name": given["name"].format(**shown)})
        except (KeyError, IndexError, ValueError) as error:
            known = ", ".join(shown) or "nothing"
            raise StudyError(f"the study {path} has the name {given['name']!r}, but its grid has {known}") from error


def _checked(path: Path, values: Mapping[str, Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a table by their kinds; other keys and types are refused."""
    for key in values:
        if key not in kinds:
            hint = did_you_mean(key, kinds) or f"; known are {', '.join(sorted(kinds))}"
            raise StudyError(f"the study {path} has the unknown key {key!r}{hint}")
    try:
        return {key: typed(value, kinds[key], key) for key, value in values.items()}
    except ConfigError as error:
        raise StudyError(f"the study {path}: {error}") from error

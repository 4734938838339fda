"""A study as plain data: one TOML file with a question, the tasks it is put to, and the variants compared.

    title = "What the weight on L_res is"
    question = "Which accuracy should 1 − accuracy be made of?"
    reference = "running"                  # what the others are compared with
    tasks = ["towns", "banking77"]         # files in tasks/ beside the study
    seeds = 5

    [seeds_on]                             # fewer where a run is long
    cifar100 = 3

    [[variant]]
    name = "running"
    method = "alr"

    [[variant]]
    name = "constant {residual_weight}"    # a grid: every combination is a variant of its own
    method = "alr"
    grid.residual_weight = [0.5, 1.0]

``methods = ["baseline", "alr"]`` is short for variants of these names without settings.

A variant's ``options`` go to the method, its ``training`` to the training settings. ``tune = 5`` tries five values of
the method's main option and shows the one that is best on validation. ``fixed_to_confusions = true`` holds S at what
the baseline's runs confuse on validation.

A study may hold its tasks itself, as the recipes of the paper's tables do:

    [defaults.training]                    # what its tasks share
    epochs = 300

    [task.cifar10-narrow]
    column = "cifar10/preact-resnet18"     # the paper's column that it stands for
    data.name = "cifar10"
    model.name = "preact-resnet18-w16"

    [task.cifar100-narrow]
    like = "cifar10-narrow"                # the same but for what follows
    column = "cifar100/preact-resnet18"
    data.name = "cifar100"
"""

from __future__ import annotations

import itertools
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adaptive_labels.config import ConfigError, RunConfig, from_dict, load_toml
from adaptive_labels.errors import UserError, did_you_mean

_STUDY_KEYS = (
    *("title", "question", "reference", "tasks", "seeds", "seeds_on", "columns", "by_class", "methods", "variant"),
    *("figure", "defaults", "task"),
)
_VARIANT_KEYS = ("name", "method", "options", "training", "grid", "tune", "fixed_to_confusions", "tasks")
_TASK_KEYS = ("like", "column", "data", "model", "training")
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
    options: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
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
    seeds_on: Mapping[str, int] = field(default_factory=dict)
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    by_class: bool = False  # whether to show in which classes the gain over the baseline lies
    figure: Figure | None = None
    paper_columns: Mapping[str, str] = field(default_factory=dict)  # task → the column of the paper's table
    own_tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # task → its configuration

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


def load_study(path: str | Path) -> Study:
    """Read a study; unknown keys, missing ones and a reference that is no variant are refused."""
    path = Path(path)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise StudyError(f"the study {path} cannot be read: {error}") from error
    _refuse_unknown(path, values, _STUDY_KEYS)
    given = values.pop("task", {})
    own = _own_tasks(path, given, values.pop("defaults", {}))
    if own:
        values.setdefault("tasks", list(own))
    for key in ("title", "question", "tasks"):
        if key not in values:
            raise StudyError(f"the study {path} has no {key}")
    plain = [Variant(name, name) for name in values.pop("methods", ())]
    variants = (*plain, *(variant for entry in values.pop("variant", ()) for variant in _expand(path, entry)))
    if not variants:
        raise StudyError(f"the study {path} has no variant")
    for first, second in itertools.combinations(variants, 2):
        if first.name == second.name and (not first.tasks or not second.tasks or set(first.tasks) & set(second.tasks)):
            raise StudyError(f"the study {path} has two variants called {first.name!r}")
    reference = values.setdefault("reference", "baseline")
    if reference not in {variant.name for variant in variants}:
        raise StudyError(f"the study {path} has the reference {reference!r}, which is none of its variants")
    for column in values.get("columns", ()):
        if column not in COLUMNS:
            raise StudyError(f"the study {path} has the unknown column {column!r}; known are {', '.join(COLUMNS)}")
    figure = _figure(path, values.pop("figure", None))
    others: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return Study(
        file=path,
        variants=variants,
        figure=figure,
        paper_columns={name: task["column"] for name, task in given.items() if "column" in task},
        own_tasks=own,
        **others,
    )


def _own_tasks(path: Path, tasks: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The tasks that a study holds itself: their own values over those of the task they are like or the defaults."""
    found: dict[str, dict[str, Any]] = {}
    for name, own in tasks.items():
        _refuse_unknown(path, own, _TASK_KEYS)
        like = own.get("like")
        if like is not None and like not in found:
            raise StudyError(f"the task {name} of {path} is like {like!r}, which is no task before it")
        base = defaults if like is None else found[like]
        found[name] = {key: {**base.get(key, {}), **own.get(key, {})} for key in ("data", "model", "training")}
    return found


def _figure(path: Path, values: Mapping[str, Any] | None) -> Figure | None:
    if values is None:
        return None
    try:
        return Figure(**{**values, "values": tuple(values["values"])})
    except (KeyError, TypeError) as error:
        raise StudyError(
            f"the figure of {path} needs title, label, method, option, default and values: {error}"
        ) from error


def _expand(path: Path, entry: Mapping[str, Any]) -> Iterator[Variant]:
    """The variants of one entry: one, or one for every combination of its grid."""
    _refuse_unknown(path, entry, _VARIANT_KEYS)
    for key in ("name", "method"):
        if key not in entry:
            raise StudyError(f"a variant of {path} has no {key}")
    grid = entry.get("grid", {})
    for values in itertools.product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        options = {**entry.get("options", {}), **{k: v for k, v in chosen.items() if not k.startswith("training.")}}
        training = {
            **entry.get("training", {}),
            **{k.removeprefix("training."): v for k, v in chosen.items() if k.startswith("training.")},
        }
        shown = {key.removeprefix("training."): _word(value) for key, value in chosen.items()}
        yield Variant(
            name=entry["name"].format(**shown),
            method=entry["method"],
            options=options,
            training=training,
            tune=entry.get("tune"),
            fixed_to_confusions=entry.get("fixed_to_confusions", False),
            tasks=tuple(entry.get("tasks", ())),
        )


def _word(value: Any) -> str:
    return f"{value:g}".replace("-", "−") if isinstance(value, float) else str(value)


def _refuse_unknown(path: Path, values: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in values:
        if key not in known:
            hint = did_you_mean(key, known) or f"; known are {', '.join(sorted(known))}"
            raise StudyError(f"the study {path} has the unknown key {key!r}{hint}")

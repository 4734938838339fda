"""A study as plain data: one TOML file with a question, the tasks it is put to, and the variants compared.

    title = "What the weight on L_res is"
    question = "Which accuracy should 1 − accuracy be made of?"
    reference = "running"                  # what the others are compared with
    tasks = ["towns", "banking77"]       # files in tasks/ beside the study
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

``methods = ["baseline", "alr"]`` is short for variants of these names without settings. With ``paper = "cifar"`` and
``paper_columns`` (task → the paper's column) the paper's figures can stand beside a study's: see `reproduction`.

A variant's ``options`` go to the method, its ``training`` to the training settings. ``tune = 5`` tries five values of
the method's main option and shows the one that is best on validation. ``fixed_to_confusions = true`` holds S at what
the baseline's runs confuse on validation.
"""

from __future__ import annotations

import itertools
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adaptive_labels.errors import UserError

_STUDY_KEYS = {
    "title",
    "question",
    "reference",
    "tasks",
    "seeds",
    "seeds_on",
    "columns",
    "by_class",
    "methods",
    "variant",
    "figure",
    "paper",
    "paper_columns",
}
_VARIANT_KEYS = {"name", "method", "options", "training", "grid", "tune", "fixed_to_confusions", "tasks"}
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

    name: str
    title: str
    question: str
    tasks: tuple[str, ...]
    variants: tuple[Variant, ...]
    reference: str
    seeds: int
    seeds_on: Mapping[str, int]
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    by_class: bool = False  # whether to show in which classes the gain over the baseline lies
    figure: Figure | None = None
    paper: str | None = None  # the paper's table that it is put beside
    paper_columns: Mapping[str, str] = field(default_factory=dict)  # task → the table's column

    def seeds_for(self, task: str) -> range:
        """The seeds of every variant on a task."""
        return range(self.seeds_on.get(task, self.seeds))

    def variants_on(self, task: str) -> list[Variant]:
        """The variants that are run on a task."""
        return [variant for variant in self.variants if not variant.tasks or task in variant.tasks]


def load_study(path: str | Path) -> Study:
    """Read a study; unknown keys, missing ones and a reference that is no variant are refused."""
    path = Path(path)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise StudyError(f"the study {path} cannot be read: {error}") from error
    _refuse_unknown(path, values, _STUDY_KEYS)
    for key in ("title", "question", "tasks"):
        if key not in values:
            raise StudyError(f"the study {path} has no {key}")
    if "variant" not in values and "methods" not in values:
        raise StudyError(f"the study {path} has no variant")
    plain = tuple(Variant(name, name) for name in values.get("methods", ()))
    variants = (*plain, *(variant for entry in values.get("variant", ()) for variant in _expand(path, entry)))
    names = [variant.name for variant in variants]
    for number, variant in enumerate(variants):
        if any(_same_place(variant, other) for other in variants[:number]):
            raise StudyError(f"the study {path} has two variants called {variant.name!r}")
    reference = values.get("reference", "baseline")
    if reference not in names:
        raise StudyError(f"the study {path} has the reference {reference!r}, which is none of its variants")
    for column in values.get("columns", ()):
        if column not in COLUMNS:
            raise StudyError(f"the study {path} has the unknown column {column!r}; known are {', '.join(COLUMNS)}")
    return Study(
        name=path.stem,
        title=values["title"],
        question=values["question"],
        tasks=tuple(values["tasks"]),
        variants=variants,
        reference=reference,
        seeds=values.get("seeds", 5),
        seeds_on=values.get("seeds_on", {}),
        columns=tuple(values.get("columns", DEFAULT_COLUMNS)),
        by_class=values.get("by_class", False),
        figure=_figure(path, values.get("figure")),
        paper=values.get("paper"),
        paper_columns=values.get("paper_columns", {}),
    )


def _same_place(first: Variant, second: Variant) -> bool:
    """Whether two variants would be two rows of one table under one name."""
    shared = not first.tasks or not second.tasks or set(first.tasks) & set(second.tasks)
    return first.name == second.name and bool(shared)


def _figure(path: Path, values: Mapping[str, Any] | None) -> Figure | None:
    if values is None:
        return None
    try:
        return Figure(**{**values, "values": tuple(values["values"])})
    except (KeyError, TypeError) as error:
        raise StudyError(
            f"the figure of {path} needs title, label, method, option, default and values: {error}"
        ) from error


def task_file(study_path: str | Path, task: str) -> Path:
    """Where a task (data and recipe, as a run's configuration) lies: in tasks/ beside the study."""
    path = Path(study_path).parent / "tasks" / f"{task}.toml"
    if not path.exists():
        raise StudyError(f"the study {study_path} names the task {task!r}, but there is no {path}")
    return path


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


def _refuse_unknown(path: Path, values: Mapping[str, Any], known: set[str]) -> None:
    for key in values:
        if key not in known:
            raise StudyError(f"the study {path} has the unknown key {key!r}; known are {', '.join(sorted(known))}")

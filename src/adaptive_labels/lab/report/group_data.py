"""The data of a group of runs for the report: each file is read once; an unreadable one becomes a sentence.

Shapes: E stored epochs, K classes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.lab.analysis.confusions import Confusions, count_confusions
from adaptive_labels.lab.analysis.records import RunGroup, RunRecord
from adaptive_labels.lab.analysis.table import MethodRow, best_row, group_rows
from adaptive_labels.lab.runs import Predictions, ResidualLabels, RunError

T = TypeVar("T")


@dataclass(frozen=True)
class Residuals:
    """The residual labels of one method's runs, at the epochs (E,) that all of them stored."""

    epochs: NDArray[np.int64]
    runs: tuple[ResidualLabels, ...]

    def of_run(self, run: int, position: int) -> NDArray[np.float64]:
        """(K, K) of one run at ``epochs[position]``; the last position is the last epoch of that run."""
        stored = self.runs[run]
        last = position in (-1, len(self.epochs) - 1)
        place = -1 if last else int(np.flatnonzero(stored.epochs == self.epochs[position])[0])
        return stored.matrix(place).astype(np.float64)

    def mean(self, position: int = -1) -> NDArray[np.float64]:
        """(K, K), the mean over the runs at ``epochs[position]``."""
        return np.asarray(sum(self.of_run(run, position) for run in range(len(self.runs))) / len(self.runs))


@dataclass(frozen=True)
class TestedRun:
    """What one run predicts on the test split."""

    stored: Predictions
    counts: NDArray[np.float64]  # (K, K) examples of the row's class predicted as the column's
    temperature: float | None  # fitted on validation


@dataclass(frozen=True)
class MethodData:
    """The files of one method's counted runs; a run without a file is left out of that list."""

    label: str
    records: tuple[RunRecord, ...]
    histories: tuple[list[dict[str, Any]], ...]  # the epochs of each run
    residuals: Residuals | None
    tested: tuple[TestedRun, ...]
    examples: tuple[dict[str, Any], ...]  # the content of each ``examples.json``

    @cached_property
    def confusions(self) -> Confusions:
        """Residual labels and test counts, means over the runs; without either it has no classes."""
        names = next(iter(self.class_names), ())
        mean = np.mean([run.counts for run in self.tested], axis=0) if self.tested else None
        if self.residuals is None:
            return Confusions(names, None, mean, 0, len(self.tested))
        return Confusions(names, self.residuals.mean(), mean, len(self.residuals.runs), len(self.tested))

    @property
    def class_names(self) -> list[tuple[str, ...]]:
        """The class names of every file that has them."""
        names = [] if self.residuals is None else [labels.classes for labels in self.residuals.runs]
        return names + [run.stored.classes for run in self.tested]


@dataclass(frozen=True)
class GroupData:
    """A group with its methods' files, and a sentence for each file that could not be read."""

    group: RunGroup
    methods: tuple[MethodData, ...]
    problems: tuple[str, ...]

    @cached_property
    def rows(self) -> list[MethodRow]:
        """The table of the group."""
        return group_rows(self.group)

    @cached_property
    def best(self) -> MethodRow | None:
        """The row that is best by validation accuracy, if one is."""
        return best_row(self.rows)

    @property
    def baseline(self) -> str | None:
        """The label of the baseline."""
        return self.group.label_of("baseline")

    @property
    def styles(self) -> dict[str, int]:
        """A number for each method, so that all figures draw it alike."""
        return {method.label: position for position, method in enumerate(self.methods)}

    @property
    def main(self) -> MethodData | None:
        """The method whose confusions are shown first: the best by validation, else the last."""
        usable = [method for method in self.methods if method.class_names]
        best = [method for method in usable if self.best is not None and method.label == self.best.label]
        return (best or usable)[-1] if usable else None

    @property
    def mapped(self) -> MethodData | None:
        """The method whose maps are shown first: the main one if it has residual labels, else one that has."""
        if self.main is None or self.main.residuals is not None:
            return self.main
        return next((method for method in self.methods if method.residuals is not None), self.main)


def read_group(group: RunGroup) -> GroupData:
    """Read the files of a group's counted runs."""
    problems: list[str] = []
    methods = tuple(_method(label, records, problems) for label, records in group.by_label().items())
    if len({classes for method in methods for classes in method.class_names}) > 1:
        problems.append("the runs have different classes, so their confusions and calibration are not shown.")
        methods = tuple(replace(method, residuals=None, tested=(), examples=()) for method in methods)
    return GroupData(group, methods, tuple(problems))


def _method(label: str, records: Sequence[RunRecord], problems: list[str]) -> MethodData:
    def read(load: Callable[[RunRecord], T | None]) -> tuple[T, ...]:
        """What the runs have; a missing or damaged file costs its figure, not the whole report."""
        contents = []
        for record in records:
            try:
                contents.append(load(record))
            except RunError as error:
                problems.append(str(error))
        return tuple(content for content in contents if content is not None)

    histories = read(lambda record: record.run.history() or None)
    stored = read(lambda record: record.residual_labels)
    residuals = None
    if stored:
        epochs = set.intersection(*(set(labels.epochs.tolist()) for labels in stored))
        # The last of each run stands at the end, even where one stopped early.
        epochs.add(max(int(labels.epochs[-1]) for labels in stored))
        residuals = Residuals(np.array(sorted(epochs)), stored)
    return MethodData(label, tuple(records), histories, residuals, read(_tested), read(_examples))


def _tested(record: RunRecord) -> TestedRun | None:
    stored = record.predictions
    if stored is None:
        return None
    return TestedRun(stored, count_confusions(record.run, stored), record.metrics.get("test_temperature"))


def _examples(record: RunRecord) -> dict[str, Any] | None:
    content = record.run.examples
    if content is not None and not isinstance(content.get("pairs"), list):
        raise RunError(f"{record.run.path / 'examples.json'} has no list of pairs.")
    return content

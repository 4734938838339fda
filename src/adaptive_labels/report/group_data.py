"""All that a group's runs have to show, each file read once; what cannot be read becomes a sentence.

Shapes: E stored epochs, K classes, N test examples.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.analysis.confusions import Confusions, count_confusions
from adaptive_labels.analysis.records import Group, Record
from adaptive_labels.runs import ResidualLabels, RunError, RunFolder

T = TypeVar("T")


@dataclass(frozen=True)
class Residuals:
    """The residual labels of one method's runs, at the epochs that all of them stored.

    Attributes:
        epochs: (E,) whole numbers.
        runs: what each run stored.
    """

    epochs: NDArray[np.int64]
    runs: tuple[ResidualLabels, ...]

    def of_run(self, run: int, position: int) -> NDArray[np.float64]:
        """(K, K) of one run at ``epochs[position]``; the last is the run's own last, should one have stopped early."""
        stored = self.runs[run]
        last = position in (-1, len(self.epochs) - 1)
        place = -1 if last else int(np.flatnonzero(stored.epochs == self.epochs[position])[0])
        return stored.matrix(place).astype(np.float64)

    def mean(self, position: int = -1) -> NDArray[np.float64]:
        """(K, K), the mean over the runs at ``epochs[position]``."""
        total = self.of_run(0, position)
        for run in range(1, len(self.runs)):
            total += self.of_run(run, position)
        return total / len(self.runs)


@dataclass(frozen=True)
class RunPredictions:
    """What one run predicts on the test split.

    Attributes:
        seed: the run's.
        logits: (N, K).
        labels: (N,).
        classes: K names, numbers where the run has none.
        temperature: fitted on validation, or None.
        counts: (K, K) examples of the row's class predicted as the column's.
    """

    seed: int
    logits: NDArray[Any]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    temperature: float | None
    counts: NDArray[np.float64]


@dataclass(frozen=True)
class MethodData:
    """The files of one method's counted runs.

    Attributes:
        histories: a list of epochs for each run that has any.
        residuals: the residual labels, or None.
        predictions: of each run that has them.
        examples: the content of each run's ``examples.json``.
    """

    label: str
    records: tuple[Record, ...]
    histories: tuple[list[dict[str, Any]], ...]
    residuals: Residuals | None
    predictions: tuple[RunPredictions, ...]
    examples: tuple[dict[str, Any], ...]

    @cached_property
    def confusions(self) -> Confusions | None:
        """Residual labels and test counts, means over the runs; None without either."""
        counts = [found.counts for found in self.predictions]
        classes = self.classes
        if classes is None:
            return None
        return Confusions(
            classes,
            None if self.residuals is None else self.residuals.mean(),
            np.mean(counts, axis=0) if counts else None,
            0 if self.residuals is None else len(self.residuals.runs),
            len(counts),
        )

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The class names; numbers where the runs have none."""
        if self.residuals is not None:
            return self.residuals.runs[0].classes
        return self.predictions[0].classes if self.predictions else None


@dataclass(frozen=True)
class GroupData:
    """A group with its methods' files, and a sentence for each file that could not be read."""

    group: Group
    methods: tuple[MethodData, ...]
    problems: tuple[str, ...]

    @property
    def styles(self) -> dict[str, int]:
        """A number for each method, so that all figures draw it alike."""
        return {method.label: position for position, method in enumerate(self.methods)}


def read_group(group: Group) -> GroupData:
    """Read the files of a group's counted runs."""
    problems: list[str] = []
    methods = tuple(_method(label, records, problems) for label, records in group.by_label().items())
    if len({classes for method in methods for classes in _classes(method)}) > 1:
        problems.append("the runs have different classes, so their confusions and calibration are not shown.")
        methods = tuple(MethodData(m.label, m.records, m.histories, None, (), ()) for m in methods)
    return GroupData(group, methods, tuple(problems))


def _classes(method: MethodData) -> list[tuple[str, ...]]:
    """The class names of every file that has them."""
    found = [] if method.residuals is None else [labels.classes for labels in method.residuals.runs]
    return found + [predictions.classes for predictions in method.predictions]


def _predictions(record: Record) -> RunPredictions | None:
    found = record.run.load_predictions()
    if found is None:
        return None
    counts = count_confusions(record.run, found)
    names = found.classes or tuple(str(i) for i in range(len(counts)))
    temperature = record.value("test", "temperature")
    return RunPredictions(record.seed, found.test_logits, found.test_labels, names, temperature, counts)


def _method(label: str, records: Sequence[Record], problems: list[str]) -> MethodData:
    histories, residuals, predictions, examples = [], [], [], []
    for record in records:
        history = _read(record.run.history, problems)
        if history:
            histories.append(history)
        labels = _read(record.run.load_residual_labels, problems)
        if labels is not None and len(labels.epochs):
            residuals.append(labels)
        found = _read(partial(_predictions, record), problems)
        if found is not None:
            predictions.append(found)
        kept = _read(partial(_examples, record.run), problems)
        if kept is not None:
            examples.append(kept)
    return MethodData(label, tuple(records), tuple(histories), _shared(residuals), tuple(predictions), tuple(examples))


def _examples(run: RunFolder) -> dict[str, Any] | None:
    content = run.examples
    if content is not None and not isinstance(content.get("pairs"), list):
        raise RunError(f"{run.path / 'examples.json'} has no list of pairs.")
    return content


def _shared(residuals: Sequence[ResidualLabels]) -> Residuals | None:
    if not residuals:
        return None
    epochs = set.intersection(*(set(labels.epochs.tolist()) for labels in residuals))
    # The last of each run stands at the end, even where one stopped early.
    epochs.add(max(int(labels.epochs[-1]) for labels in residuals))
    return Residuals(np.array(sorted(epochs)), tuple(residuals))


def _read(read: Callable[[], T], problems: list[str]) -> T | None:
    """What a run's file holds, or None: a missing or damaged one costs its figure, not the whole report."""
    try:
        return read()
    except RunError as error:
        problems.append(str(error))
        return None

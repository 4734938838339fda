"""Run folders → columns, for notebooks, spreadsheets and your own plots.

Each function takes a folder of runs, a run, or several of either, and returns `Columns`.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adaptive_labels.lab.analysis.confusions import read_confusions
from adaptive_labels.lab.analysis.records import RunRecord, read_run_records
from adaptive_labels.lab.analysis.residual_labels import consistency, row_entropy
from adaptive_labels.lab.runs import RunError, RunFolder, list_runs
from adaptive_labels.metrics import confidence_and_correct

Runs = str | Path | RunFolder | Iterable[str | Path | RunFolder]


class Columns(dict[str, NDArray[Any]]):
    """Named columns of one length, in order; missing numbers are NaN.

    >>> table = Columns({"seed": [0, 1], "test_top1": [0.5, 0.75]})
    >>> table
    Columns of 2 rows: seed, test_top1
    >>> float(table["test_top1"].mean()), table.where(seed=1).rows()
    (0.625, [{'seed': 1, 'test_top1': 0.75}])
    """

    def __init__(self, columns: Mapping[str, ArrayLike]) -> None:
        super().__init__((name, np.asarray(values)) for name, values in columns.items())
        shapes = {name: values.shape for name, values in self.items()}
        if len(set(shapes.values())) > 1 or any(len(shape) != 1 for shape in shapes.values()):
            raise ValueError(f"columns must be one-dimensional and of one length; their shapes are {shapes}.")

    def __repr__(self) -> str:
        return f"Columns of {self.height:,} rows: {', '.join(self)}"

    @property
    def height(self) -> int:
        """The number of rows."""
        return len(next(iter(self.values()), ()))

    def where(self, **values: Any) -> "Columns":
        """The rows in which every named column has the given value: ``where(method="alr", seed=0)``."""
        kept = np.ones(self.height, dtype=bool)
        for name, value in values.items():
            if name not in self:
                raise ValueError(f"there is no column {name!r}; there are {', '.join(self)}.")
            kept &= self[name] == value
        return Columns({name: column[kept] for name, column in self.items()})

    def rows(self) -> list[dict[str, Any]]:
        """One dict per row, of plain Python values."""
        lists = [column.tolist() for column in self.values()]
        return [dict(zip(self, row, strict=True)) for row in zip(*lists, strict=True)]

    def to_frame(self) -> Any:
        """The same as a pandas DataFrame; pandas is imported here and only here."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_frame needs pandas, which is not installed: pip install pandas") from error
        return pandas.DataFrame(self)


def metrics_of(runs: Runs) -> Columns:
    """One row per run: names, status, every figure of its ``result.json`` as ``split_metric`` (test_top1)."""
    records = read_run_records(open_runs(runs))
    figures = [
        {f"{split}_{name}": value for split, named in record.metrics.items() for name, value in named.items()}
        for record in records
    ]
    names = _names(records, "dataset", "model", "method", "label", "seed", "epochs", "status", "seconds")
    numbers = {name: [_number(value) for value in names[name]] for name in ("epochs", "seconds")}
    keys = sorted({key for one in figures for key in one})
    return Columns({**names, **numbers, **{key: [_number(one.get(key)) for one in figures] for key in keys}})


def histories_of(runs: Runs) -> Columns:
    """One row per epoch of every run: number, losses, accuracies, rate, seconds, and loss parts as ``part_…``."""
    records = read_run_records(open_runs(runs))
    lines = [(record, _flat(line)) for record in records for line in record.run.history()]
    keys = list(dict.fromkeys(key for _, line in lines for key in line))
    names = _names([record for record, _ in lines], "dataset", "model", "method", "label", "seed")
    columns: dict[str, ArrayLike] = {key: [_number(line.get(key)) for _, line in lines] for key in keys}
    if "epoch" in columns:
        columns["epoch"] = np.asarray(columns["epoch"], dtype=np.int64)
    return Columns({**names, **columns})


def pairs_of(runs: Runs) -> Columns:
    """One row per pair of classes, means over the runs: residual label, test rate, test count."""
    found = read_confusions(open_runs(runs))
    names = np.asarray(found.classes, dtype=np.str_)
    true, taken_for = np.nonzero(~np.eye(len(names), dtype=bool))
    views = {"residual": found.residual, "rate": found.rates, "count": found.counts}
    values = {name: matrix[true, taken_for] for name, matrix in views.items() if matrix is not None}
    return Columns({"true": names[true], "taken_for": names[taken_for], **values})


def residuals_of(run: str | Path | RunFolder) -> Columns:
    """One row per stored epoch of one run: mean entropy of its residual labels, and consistency with the last epoch."""
    folder = _one_run(run, "residuals_of")
    stored = folder.load_residual_labels()
    if stored is None or not len(stored.epochs):
        raise RunError(f"{folder.path} has no residual labels; its method, {folder.names.method}, learns none.")
    labels = np.stack([stored.matrix(position) for position in range(len(stored.epochs))])  # (E, K, K)
    same = consistency(labels)
    return Columns(
        {
            "epoch": stored.epochs,
            "entropy": row_entropy(labels).mean(axis=1),
            "normalised_entropy": row_entropy(labels, normalised=True).mean(axis=1),
            "same_top_confusion": same.top_share,
            "rank_correlation": same.correlation,
        }
    )


def predictions_of(run: str | Path | RunFolder, split: str = "test") -> Columns:
    """One row per example of a run's test or validation split: label, prediction, its probability, right or not."""
    folder = _one_run(run, "predictions_of")
    if split not in ("test", "validation"):
        raise ValueError(f"split is {split!r}; it must be test or validation.")
    stored = folder.load_predictions()
    logits, labels = (getattr(stored, f"{split}_{array}", None) for array in ("logits", "labels"))
    if stored is None or logits is None or labels is None:
        raise RunError(f"{folder.path} keeps no predictions of its {split} split.")
    names = np.asarray(stored.classes or [str(k) for k in range(logits.shape[1])], dtype=np.str_)
    confidence, correct = confidence_and_correct(logits, labels)
    return Columns(
        {
            "index": np.arange(len(labels)),
            "label": names[labels],
            "predicted": names[logits.argmax(axis=1)],
            "confidence": confidence,
            "correct": correct,
        }
    )


def open_runs(runs: Runs) -> list[RunFolder]:
    """Run folders from whatever names them: a folder of runs, a run, or several of either."""
    given = [runs] if isinstance(runs, str | Path | RunFolder) else list(runs)
    found = list_runs([run.path if isinstance(run, RunFolder) else run for run in given])
    if not found:
        raise RunError(f"There is no run in {', '.join(str(run) for run in given) or 'an empty list'}.")
    return found


def _one_run(run: str | Path | RunFolder, caller: str) -> RunFolder:
    found = open_runs(run)
    if len(found) != 1:
        raise ValueError(f"run is {run}, which holds {len(found)} runs; {caller} takes one of them.")
    return found[0]


def _names(records: Sequence[RunRecord], *names: str) -> dict[str, list[Any]]:
    columns = {"run": [str(record.run.path) for record in records]}
    return columns | {name: [getattr(record, name) for record in records] for name in names}


def _flat(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of the history without nested values, but with the parts of the loss."""
    flat = {key: value for key, value in line.items() if not isinstance(value, Mapping)}
    parts = line.get("parts")
    return flat | {f"part_{key}": value for key, value in parts.items()} if isinstance(parts, Mapping) else flat


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")

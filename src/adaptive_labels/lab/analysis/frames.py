"""Run folders → pandas frames, for notebooks, spreadsheets and your own plots.

Each function takes a folder of runs, a run, or several of either. Missing numbers are NaN.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from adaptive_labels.lab.analysis.confusions import pair_frame, read_confusions
from adaptive_labels.lab.analysis.records import RunRecord, is_number, read_run_records
from adaptive_labels.lab.analysis.residual_labels import consistency, row_entropy
from adaptive_labels.lab.runs import RunError, RunFolder, list_runs
from adaptive_labels.metrics import confidence_and_correct

Runs = str | Path | RunFolder | Iterable[str | Path | RunFolder]


def metrics_of(runs: Runs) -> pd.DataFrame:
    """One row per run: names, status, and every metric of its ``result.json`` as ``split_metric`` (test_top1)."""
    names = ("dataset", "model", "method", "label", "seed", "epochs", "status")
    records = read_run_records(open_runs(runs))
    return pd.DataFrame([{**_names(record, *names), **record.metrics} for record in records])


def histories_of(runs: Runs) -> pd.DataFrame:
    """One row per epoch of every run: number, losses, accuracies, rate, seconds, and loss parts as ``part_…``."""
    rows = []
    for record in read_run_records(open_runs(runs)):
        for line in record.run.history():
            parts = line.get("parts")
            more = {f"part_{name}": value for name, value in parts.items()} if isinstance(parts, Mapping) else {}
            numbers = {name: value for name, value in {**line, **more}.items() if is_number(value)}
            rows.append({**_names(record, "dataset", "model", "method", "label", "seed"), **numbers})
    return pd.DataFrame(rows)


def pairs_of(runs: Runs) -> pd.DataFrame:
    """One row per pair of classes, means over the runs: residual label, test rate and count, each with its reverse."""
    confusions = read_confusions(open_runs(runs))
    size = range(len(confusions.classes))
    return pair_frame(confusions, [(i, j) for i in size for j in size if i != j])


def residuals_of(run: str | Path | RunFolder) -> pd.DataFrame:
    """One row per stored epoch of one run: mean entropy of its residual labels, and consistency with the last epoch."""
    folder = _one_run(run, "residuals_of")
    stored = folder.load_residual_labels()
    if stored is None or not len(stored.epochs):
        raise RunError(f"{folder.path} has no residual labels; its method, {folder.config.method.name}, learns none.")
    labels = np.stack([stored.matrix(position) for position in range(len(stored.epochs))])  # (E, K, K)
    same = consistency(labels)
    return pd.DataFrame(
        {
            "epoch": stored.epochs,
            "entropy": row_entropy(labels).mean(axis=1),
            "normalised_entropy": row_entropy(labels, normalised=True).mean(axis=1),
            "same_top_confusion": same.top_share,
            "rank_correlation": same.correlation,
        }
    )


def predictions_of(run: str | Path | RunFolder, split: str = "test") -> pd.DataFrame:
    """One row per example of a run's test or validation split: label, prediction, its probability, right or not."""
    folder = _one_run(run, "predictions_of")
    if split not in ("test", "validation"):
        raise ValueError(f"split is {split!r}; it must be test or validation.")
    stored = folder.load_predictions()
    if stored is None:
        raise RunError(f"{folder.path} keeps no predictions.")
    logits, labels = getattr(stored, f"{split}_logits"), getattr(stored, f"{split}_labels")
    names = np.asarray(stored.classes, dtype=object)
    confidence, correct = confidence_and_correct(logits, labels)
    predicted = names[logits.argmax(axis=1)]
    return pd.DataFrame({"label": names[labels], "predicted": predicted, "confidence": confidence, "correct": correct})


def open_runs(runs: Runs) -> list[RunFolder]:
    """Run folders from whatever names them: a folder of runs, a run, or several of either."""
    given = [runs] if isinstance(runs, str | Path | RunFolder) else list(runs)
    folders = list_runs([run.path if isinstance(run, RunFolder) else run for run in given])
    if not folders:
        raise RunError(f"There is no run in {', '.join(str(run) for run in given) or 'an empty list'}.")
    return folders


def _one_run(run: str | Path | RunFolder, caller: str) -> RunFolder:
    folders = open_runs(run)
    if len(folders) != 1:
        raise ValueError(f"run is {run}, which holds {len(folders)} runs; {caller} takes one of them.")
    return folders[0]


def _names(record: RunRecord, *names: str) -> dict[str, Any]:
    return {"run": str(record.run.path), **{name: getattr(record, name) for name in names}}

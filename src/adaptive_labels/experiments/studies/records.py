"""A run in a few kilobytes: configuration, environment, metrics, what it confuses, its final residual labels.

A record never holds a path of the machine it was made on. Records of a task are lines of one file, so that runs that
several studies share are kept once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.analysis.residual_labels import agreement, row_entropy
from adaptive_labels.experiments.studies.margins import describe_margins
from adaptive_labels.experiments.studies.study import Variant
from adaptive_labels.runs import RunError, RunFolder

KEPT_PER_ROW = 5
Record = dict[str, Any]


def make_record(run: RunFolder, task: str, variant: Variant) -> Record:
    """The compact record of a finished run."""
    result = run.result
    if result is None:
        raise RunError(f"{run.path} is unfinished: there is nothing to record")
    predictions = run.load_predictions()
    labels = run.load_residual_labels()
    config = run.config
    config["data"] = {**config["data"], "name": PurePath(config["data"]["name"]).name, "data_dir": None}
    config["method"]["options"].pop("teacher", None)  # a path; `teacher_run` says which run it is
    if variant.fixed_to_confusions:
        config["method"]["options"].pop("initial_labels", None)
    record: Record = {
        "task": task,
        "variant": variant.key,
        "seed": result["seed"],
        "status": result["status"],
        "config": _without_defaults(config),
        "environment": _environment(run.environment or {}),
        "parameters": result["parameters"],
        "seconds": round(result["seconds"], 1),
        "metrics": {split: _rounded(metrics) for split, metrics in result["metrics"].items()},
    }
    if result["reason"]:
        record["reason"] = result["reason"]
    if predictions is not None:
        record["mechanism"] = _rounded(describe_margins(predictions.test_logits, predictions.test_labels))
        right = predictions.test_logits.argmax(1) == predictions.test_labels
        classes = predictions.test_logits.shape[1]
        record["right_by_class"] = np.bincount(predictions.test_labels[right], minlength=classes).tolist()
        record["test_by_class"] = np.bincount(predictions.test_labels, minlength=classes).tolist()
    if labels is not None:
        record["residual_labels"] = _largest(labels.matrix())
        if predictions is not None:
            counts = np.zeros_like(labels.matrix(), dtype=np.int64)
            np.add.at(counts, (predictions.test_labels, predictions.test_logits.argmax(1)), 1)
            found = agreement(labels.matrix(), counts, pairs=0)
            if found.overall is not None and found.top1 is not None:
                record["mechanism"] |= _rounded({"label_agreement": found.overall, "label_top1": found.top1})
    return record


def _without_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without its nulls, which say nothing that the defaults do not."""
    return {
        key: _without_defaults(value) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if value is not None
    }


def _environment(environment: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: environment.get(key) for key in ("date", "commit", "versions")}
    return {**kept, "cpu": (environment.get("cpu") or {}).get("model")}


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {key: float(f"{value:.6g}") for key, value in values.items()}


def _largest(labels: NDArray[np.float32]) -> dict[str, Any]:
    """The mean normalised entropy of the rows, and the largest entries of each: [class, per mille], largest first."""
    size = len(labels)
    top = np.argsort(-labels, axis=1, kind="stable")[:, : min(KEPT_PER_ROW, size - 1)]
    values = np.rint(np.take_along_axis(labels, top, axis=1) * 1000).astype(int)
    rows = [[[int(i), int(v)] for i, v in zip(*row, strict=True)] for row in zip(top, values, strict=True)]
    return {"entropy": float(f"{row_entropy(labels, normalised=True).mean():.5g}"), "largest": rows}


def record_key(record: Mapping[str, Any]) -> tuple[str, str, int]:
    """What makes two records the same run: task, variant and seed."""
    return record["task"], record["variant"], record["seed"]


def records_file(results: Path, task: str) -> Path:
    """The file of a task's records."""
    return results / "records" / f"{task}.jsonl"


def append_record(results: Path, record: Record) -> None:
    """Add a record to its task's file, unless the same run is there already."""
    path = records_file(results, record["task"])
    if record_key(record) in {record_key(other) for other in read_records(path)}:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n")


def read_records(path: Path) -> list[Record]:
    """The records of one file; none if it does not exist."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as lines:
        return [_renamed(json.loads(line)) for line in lines if line.strip()]


def _renamed(record: Record) -> Record:
    """A record in today's words: the earliest ones call their task "bench"."""
    if "bench" in record:
        record["task"] = record.pop("bench")
    return record


def read_all_records(results: Path, tasks: Iterable[str]) -> dict[tuple[str, str, int], Record]:
    """All records of some tasks, by `record_key`."""
    return {record_key(record): record for task in tasks for record in read_records(records_file(results, task))}

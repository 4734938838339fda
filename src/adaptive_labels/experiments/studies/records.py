"""A run in a few kilobytes: configuration, environment, metrics, what it confuses, its final residual labels.

A record never holds a path of the machine it was made on. Records of a task are lines of one file, so that runs that
several studies share are kept once. Runs on other data in the place of a task's are of another task, TASK@DATA.

Shapes: N examples, K classes; z are logits, y labels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.analysis.residual_labels import agreement, row_entropy
from adaptive_labels.experiments.studies.study import Study, Variant
from adaptive_labels.runs import RunError, RunFolder, recipe_hash

KEPT_PER_ROW = 5
Record = dict[str, Any]
Records = Mapping[tuple[str, str, int], Record]  # by task, variant and seed


def make_record(run: RunFolder, task: str, variant: Variant) -> Record:
    """The compact record of a finished run."""
    result = run.result
    if result is None:
        raise RunError(f"{run.path} is unfinished: there is nothing to record")
    predictions = run.load_predictions()
    labels = run.load_residual_labels()
    config = run.config
    recipe = recipe_hash(config)
    config["data"] = {**config["data"], "name": PurePath(config["data"]["name"]).name, "data_dir": None}
    for path in ("teacher", "initial_labels"):  # which of them it is stands beside each
        config["method"]["options"].pop(path, None)
    config["model"].pop("weights", None)
    record: Record = {
        "task": task,
        "variant": variant.key,
        "seed": result["seed"],
        "status": result["status"],
        "recipe_hash": recipe,
        "config": _without_nulls(config),
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


def _without_nulls(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without its nulls, which say nothing that the defaults do not."""
    return {
        key: _without_nulls(value) if isinstance(value, Mapping) else value
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


def describe_margins(logits: NDArray[Any], labels: NDArray[np.int64]) -> dict[str, float]:
    """What a trained network does to the classes it confuses: margins, and where their probability goes.

    z is divided by its standard deviation over all entries, so that a more confident network does not look like one
    that separates better.

    * ``rival_margin``: mean of z_y − max of the others: how far the nearest rival is behind.
    * ``confused_margin``: mean of z_y − z_c with c the class that y is most confused with (by mean residual
      probability over the class); ``other_margin``: z_y minus the mean of all others.
    * ``residual_entropy``: of the class means of p_res, over log(K − 1): 1 if a class's other probability goes
      everywhere alike.
    * ``errors_to_confused``: the share of all errors that go to the class's most confused one.

    >>> z = np.array([[3.0, 1.0, 0.0], [2.0, 3.0, 0.0], [0.0, 0.0, 3.0]])
    >>> {k: round(v, 3) for k, v in describe_margins(z, np.array([0, 1, 2])).items()}["errors_to_confused"]
    0.0
    """
    z = np.asarray(logits, dtype=np.float64)
    n, classes = z.shape
    if classes < 3 or n == 0:
        return {}
    z = z / max(float(z.std()), 1e-12)
    rows = np.arange(n)
    own = z[rows, labels]
    others = np.asarray(logits, dtype=np.float64).copy()
    others[rows, labels] = -np.inf
    p_res = np.exp(others - others.max(1, keepdims=True))
    p_res /= p_res.sum(1, keepdims=True)
    sums = np.zeros((classes, classes))
    np.add.at(sums, labels, p_res)
    counts = np.bincount(labels, minlength=classes)
    seen = counts > 0
    means = sums[seen] / counts[seen, None]
    entropy = -(means * np.log(np.maximum(means, 1e-300))).sum(1).mean() / np.log(classes - 1)
    confused = np.where(seen, sums.argmax(1), 0)[labels]
    hidden = z.copy()
    hidden[rows, labels] = -np.inf
    rival = hidden.max(1)
    predicted = z.argmax(1)
    wrong = predicted != labels
    return {
        "rival_margin": float((own - rival).mean()),
        "confused_margin": float((own - z[rows, confused]).mean()),
        "other_margin": float((own - (z.sum(1) - own) / (classes - 1)).mean()),
        "residual_entropy": float(entropy),
        "errors_to_confused": float((predicted[wrong] == confused[wrong]).mean()) if wrong.any() else 0.0,
    }


def stand_in_name(task: str, data: str) -> str:
    """What a task is called on other data than its own.

    >>> stand_in_name("ag_news-fasttext-short", "somewhere/my_news")
    'ag_news-fasttext-short@my_news'
    """
    return f"{task}@{PurePath(data).name}"


def record_key(record: Mapping[str, Any]) -> tuple[str, str, int]:
    """What makes two records the same run: task, variant and seed."""
    return record["task"], record["variant"], record["seed"]


def records_file(results: Path, task: str) -> Path:
    """The file of a task's records, those on other data included."""
    return results / "records" / f"{task.partition('@')[0]}.jsonl"


def append_record(results: Path, record: Record) -> None:
    """Add a record to its task's file, unless the same run is there already."""
    path = records_file(results, record["task"])
    if record_key(record) in map(record_key, read_lines(path)):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n")


def read_lines(path: Path) -> list[Record]:
    """The records of one file as they are; none if it does not exist."""
    if not path.exists():
        return []
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [{"task": one.get("bench"), **one} for one in found]  # the earliest records call their task "bench"


def read_records(results: Path, study: Study) -> Records:
    """All records of a study's tasks by `record_key`; those on other data than the task's own are TASK@DATA."""
    found = {}
    for task in study.tasks:
        lines = read_lines(records_file(results, task))
        own = PurePath(study.config(task).data.name).name if lines else ""
        for record in lines:
            if record["task"] == task and record["config"]["data"]["name"] != own:  # of an earlier version
                record["task"] = stand_in_name(task, record["config"]["data"]["name"])
            found[record_key(record)] = record
    return found

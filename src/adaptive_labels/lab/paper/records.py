"""A run in a few kilobytes: configuration, environment, metrics, confusions, and final residual labels.

A record never holds a path of the machine it was made on. Records of a task are lines of one file, so that runs that
several studies share are kept once. A task on other data than its own is another task, TASK@DATA.

Shapes: N examples, K classes; z are logits, y labels.
"""

import json
from collections.abc import Mapping
from functools import lru_cache, reduce
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.lab.analysis.records import flatten
from adaptive_labels.lab.analysis.residual_labels import agreement, mean_residual_labels, row_entropy, top_confusions
from adaptive_labels.lab.config import to_dict
from adaptive_labels.lab.files import append_line, parse_json, whole_lines
from adaptive_labels.lab.paper.study import Record as Record, Records as Records, Study, Variant
from adaptive_labels.lab.runs import RunError, RunFolder, identity_settings, recipe_hash
from adaptive_labels.metrics import confusion_matrix

LARGEST_PER_ROW = 5
COURSE = ("train_accuracy", "validation_accuracy", "validation_loss")  # kept of every epoch
SECTIONS = ("data", "model", "training")  # of a configuration, which a task states
OF_EVERY_RECORD = ("task", "variant", "seed", "status", "config", "metrics")


def make_record(run: RunFolder, task: str, variant: Variant) -> Record:
    """The compact record of a finished run."""
    result, config = run.result, to_dict(run.config)
    if result is None:
        raise RunError(f"{run.path} is unfinished: there is nothing to record")
    recipe = recipe_hash(run.config)
    config["data"] |= {"name": _short(config["data"]["name"]), "data_dir": None}
    for path in ("teacher", "initial_labels"):  # their hashes say which they are
        config["method"]["options"].pop(path, None)
    config["model"]["weights"] = None
    environment = run.environment or {}
    record: Record = {
        "task": task,
        "variant": variant.key,
        "seed": result["seed"],
        "status": result["status"],
        "recipe_hash": recipe,
        "config": config,
        "environment": {
            **{key: environment.get(key) for key in ("date", "commit", "versions")},
            "cpu": (environment.get("cpu") or {}).get("model"),
        },
        "parameters": result["parameters"],
        "seconds": round(result["seconds"], 1),
        "metrics": {split: _rounded(metrics) for split, metrics in result["metrics"].items()},
    }
    if result["reason"]:
        record["reason"] = result["reason"]
    history = run.history()
    kept = [key for key in COURSE if all(epoch.get(key) is not None for epoch in history)]
    record["course"] = {key: [float(f"{epoch[key]:.4g}") for epoch in history] for key in kept}
    predictions, labels = run.load_predictions(), run.load_residual_labels()
    if labels is not None:
        record["residual_labels"] = _largest(labels.matrix())
    if predictions is not None:
        counts = confusion_matrix(predictions.test_logits, predictions.test_labels)  # (K, K)
        record["mechanism"] = _rounded(describe_margins(predictions.test_logits, predictions.test_labels))
        record["right_by_class"] = counts.diagonal().tolist()
        record["test_by_class"] = counts.sum(axis=1).tolist()
        agreed = None if labels is None else agreement(labels.matrix(), counts)
        if agreed is not None and agreed.overall is not None and agreed.top1 is not None:
            record["mechanism"] |= _rounded({"label_agreement": agreed.overall, "label_top1": agreed.top1})
    return record


def record_metrics(record: Record) -> dict[str, float]:
    """The metrics of a record as tables have them (``test_top1``), and figures on how they came about."""
    metrics: dict[str, float] = flatten(record["metrics"], joint="_") | record.get("mechanism", {})
    if losses := record.get("course", {}).get("validation_loss"):
        metrics["loss_rise"] = losses[-1] - min(losses)
    if (entropy := record.get("residual_labels", {}).get("entropy")) is not None:
        metrics["label_entropy"] = entropy
    return metrics


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {key: float(f"{value:.6g}") for key, value in values.items()}


def _largest(labels: NDArray[np.float32]) -> dict[str, Any]:
    """The mean normalised entropy of the rows, and the largest entries of each: [class, per mille], largest first."""
    top, values = top_confusions(labels, min(LARGEST_PER_ROW, len(labels) - 1))
    largest = np.stack([top, np.rint(values * 1000).astype(int)], axis=-1).tolist()
    return {"entropy": float(f"{row_entropy(labels, normalised=True).mean():.5g}"), "largest": largest}


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
    n, classes = logits.shape
    if classes < 3 or n == 0:
        return {}
    residual = mean_residual_labels(logits, labels)  # (K, K)
    confused = residual.argmax(axis=1)[labels]
    z = np.asarray(logits, dtype=np.float64)
    z = z / max(float(z.std()), 1e-12)
    rows, predicted = np.arange(n), z.argmax(1)
    label_score, others = z[rows, labels], z.copy()
    others[rows, labels] = -np.inf
    wrong = predicted != labels
    return {
        "rival_margin": float((label_score - others.max(1)).mean()),
        "confused_margin": float((label_score - z[rows, confused]).mean()),
        "other_margin": float((label_score - (z.sum(1) - label_score) / (classes - 1)).mean()),
        "residual_entropy": float(row_entropy(residual, normalised=True)[np.unique(labels)].mean()),
        "errors_to_confused": float((predicted[wrong] == confused[wrong]).mean()) if wrong.any() else 0.0,
    }


def stand_in_name(task: str, data: str) -> str:
    """What a task is called on other data than its own.

    >>> stand_in_name("ag_news-fasttext-short", "somewhere/my_news")
    'ag_news-fasttext-short@my_news'
    """
    return f"{task}@{_short(data)}"


def _short(data: str) -> str:
    """The last part of a path to data; where that says nothing, as in `.`, the folder's own name."""
    name = PurePath(data).name
    return Path(data).resolve().name if name in ("", "..") else name


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
    append_line(path, json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())


@lru_cache(maxsize=10_000)
def _parsed(line: bytes) -> Record:
    """A line's record. Studies share tasks, so that pages read it some seven times; it is never changed."""
    record: Record = parse_json(line)
    if lacking := [key for key in OF_EVERY_RECORD if key not in record]:
        raise ValueError(f"it has no {', '.join(lacking)}")
    return record


def read_lines(path: Path) -> list[Record]:
    """The records of one file; none if it does not exist. A last line that a crash cut short is no record yet."""
    records = []
    for number, line in enumerate(whole_lines(path), start=1):
        if not line.strip():
            continue
        try:
            records.append(_parsed(line))
        except (ValueError, TypeError) as error:
            raise RunError(f"{path} line {number} is no record: {error}.") from None
    return records


def read_records(results: Path, study: Study) -> Records:
    """All records of a study's tasks by `record_key`; those on other data than the task's own are TASK@DATA.

    A record that was made by another recipe than its task's is refused: a table would mix the two.
    """
    records = {}
    for task in study.tasks:
        path = records_file(results, task)
        lines = read_lines(path)
        settings = identity_settings(study.config(task)) if lines else {}
        stated = flatten({section: settings[section] for section in SECTIONS if section in settings})
        stated.pop("data.name", None)  # other data than the task's own is another task
        for record in lines:
            if other := _other_setting(record, stated):
                raise RunError(
                    f"{path} has a record of {record['variant']}, seed {record['seed']}, with {other}: remove the "
                    "records of the earlier recipe, or give the task another name."
                )
            records[record_key(record)] = record
    return records


def _other_setting(record: Record, stated: Mapping[str, Any]) -> str | None:
    """A setting in which a record differs from what its task states."""
    config, varied = record["config"], json.loads(record["variant"]).get("training", {})
    learns = "residual_labels" in record and config["method"]["options"].get("update") != "frozen"
    for key, value in stated.items():
        name = key.removeprefix("training.")
        if value is None or name in varied:
            continue
        if name.startswith("residual_") and not learns:  # how S is moved, where none is learned
            continue
        made = reduce(lambda section, part: section.get(part, {}), key.split("."), config)
        if made != value:
            return f"{key} {made}, where its task says {value}"
    return None

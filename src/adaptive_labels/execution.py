"""One run, from its configuration to its result: trains, tests once, and leaves a folder that never changes again."""

from __future__ import annotations

import functools
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from adaptive_labels import build
from adaptive_labels.config import ConfigError, RunConfig, from_dict, to_dict
from adaptive_labels.metrics import evaluate, fit_temperature, nll, top_k_accuracy
from adaptive_labels.mistakes import example_mistakes
from adaptive_labels.runs import RunFolder, RunRecorder
from adaptive_labels.training.contracts import Recorder
from adaptive_labels.training.evaluate import predict_logits
from adaptive_labels.training.loop import FitResult, fit
from adaptive_labels.training.progress import Reporter
from adaptive_labels.training.tensorboard import TensorBoardRecorder


def execute(
    config: RunConfig, prepared: build.Prepared, out: Path, reporter: Reporter, command: Sequence[str]
) -> RunFolder:
    """Run a resolved configuration into its folder under ``out``; go on where it stopped, do nothing if finished.

    The least time between two checkpoints is 5 seconds, or what the environment variable ALR_CHECKPOINT_SECONDS says.
    """
    run = RunFolder.create(out, to_dict(config))
    if run.finished:
        reporter.close()
        return run
    with run.lock():
        dataset = prepared.dataset
        run.write_environment(list(command))
        run.write_json("encoder.json", {"kind": dataset.kind, "settings": prepared.encoder.to_dict()})
        objective = build.make_objective(config, dataset)
        began = time.perf_counter()
        fitted = fit(
            objective,
            prepared.train,
            dataset.train.labels,
            (prepared.validation, dataset.validation.labels),
            config.training,
            config.seed,
            recorder=_recorder(run, config, dataset.classes),
            reporter=reporter,
            checkpoint_dir=run.path / "checkpoint",
            checkpoint_seconds=_checkpoint_seconds(),
            augment=build.make_augment(config, dataset),
        )
        weights = {name: tensor.contiguous().cpu() for name, tensor in objective.model.state_dict().items()}
        run.write_bytes("model.safetensors", safetensors_bytes(weights))
        metrics = _measure(objective.model, prepared, run) if fitted.status != "diverged" else {}
        run.finish(_result(config, dataset.name, objective, fitted, metrics, time.perf_counter() - began))
        shutil.rmtree(run.path / "checkpoint", ignore_errors=True)  # nothing is left to resume
    return run


def _checkpoint_seconds() -> float:
    given = os.environ.get("ALR_CHECKPOINT_SECONDS", "5")
    try:
        return float(given)
    except ValueError:
        raise ConfigError(f"ALR_CHECKPOINT_SECONDS is {given!r}: allowed is a number of seconds") from None


def _recorder(run: RunFolder, config: RunConfig, classes: Sequence[str]) -> Recorder:
    recorder = RunRecorder(run, classes)
    return TensorBoardRecorder(recorder, run.path / "tensorboard") if config.training.tensorboard else recorder


def execute_plain(config: Mapping[str, Any], out: str, reporter: Reporter, command: Sequence[str]) -> str:
    """`execute` for another process: plain data in, the run's path out. The data is read once a process."""
    resolved = from_dict(config)
    prepared = _prepared(json.dumps(config["data"], sort_keys=True), json.dumps(config["model"], sort_keys=True))
    return str(execute(resolved, prepared, Path(out), reporter, command).path)


@functools.lru_cache(maxsize=1)
def _prepared(data: str, model: str) -> build.Prepared:
    config = from_dict({"data": json.loads(data), "model": json.loads(model)})
    dataset = build.load_data(config.data)
    if config.data.fingerprint not in (None, dataset.fingerprint):
        raise ConfigError(f"data: {config.data.name} has changed since the comparison began; start it again")
    return build.prepare(config, dataset)


def _measure(model: torch.nn.Module, prepared: build.Prepared, run: RunFolder) -> dict[str, dict[str, float]]:
    """Metrics of every split, the test split read here and only here; predictions are kept for the analysis."""
    dataset = prepared.dataset
    validation = predict_logits(model, prepared.validation)
    test = predict_logits(model, prepared.test)
    train = predict_logits(model, prepared.train)  # as given, not augmented: its distance from test is the gap
    temperature = fit_temperature(validation, dataset.validation.labels)
    metrics = {
        "train": {"top1": top_k_accuracy(train, dataset.train.labels), "nll": nll(train, dataset.train.labels)},
        "validation": evaluate(validation, dataset.validation.labels, temperature),
        "test": evaluate(test, dataset.test.labels, temperature),
    }
    if dataset.num_classes > 5:
        metrics["train"]["top5"] = top_k_accuracy(train, dataset.train.labels, k=5)
    if dataset.train.true_labels is not None:
        metrics["train"] |= _memorised(train, dataset.train.labels, dataset.train.true_labels)
    run.save_predictions(
        test_logits=test.numpy().astype(np.float32),
        test_labels=dataset.test.labels.numpy(),
        validation_logits=validation.numpy().astype(np.float32),
        validation_labels=dataset.validation.labels.numpy(),
        classes=dataset.classes,
    )
    run.write_json("examples.json", example_mistakes(dataset, test))
    return metrics


def _memorised(logits: Tensor, labels: Tensor, true_labels: Tensor) -> dict[str, float]:
    """Of the training labels that injected noise made wrong: the shares predicted as given, and as true."""
    wrong, predicted = labels != true_labels, logits.argmax(1)
    count = max(int(wrong.sum()), 1)
    return {
        "wrong_labels": float(wrong.sum()),
        "memorised": float((wrong & (predicted == labels)).sum()) / count,
        "recovered": float((wrong & (predicted == true_labels)).sum()) / count,
    }


def _result(
    config: RunConfig,
    dataset: str,
    objective: Any,
    fitted: FitResult,
    metrics: dict[str, dict[str, float]],
    seconds: float,
) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "model": config.model.name,
        "method": config.method.name,
        "seed": config.seed,
        "epochs": fitted.epochs,
        "parameters": {
            "network": sum(parameter.numel() for parameter in objective.model.parameters()),
            "criterion": sum(parameter.numel() for parameter in objective.criterion.parameters()),
        },
        "metrics": metrics,
        "seconds": seconds,
        "status": "diverged" if fitted.status == "diverged" else "finished",
        "reason": fitted.reason,
    }

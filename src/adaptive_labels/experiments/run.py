"""One run, from its configuration to its result: trains, tests once, and leaves a folder that never changes again."""

from __future__ import annotations

import functools
import json
import os
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from adaptive_labels.config import ConfigError, RunConfig, from_dict, to_dict
from adaptive_labels.experiments import build, teachers as teaching
from adaptive_labels.experiments.executors import Job
from adaptive_labels.experiments.mistakes import example_mistakes
from adaptive_labels.metrics import evaluate, fit_temperature, nll, top_k_accuracy
from adaptive_labels.models import file_hash
from adaptive_labels.objectives import Objective
from adaptive_labels.runs import RunFolder, RunRecorder, find_run, run_id
from adaptive_labels.training.evaluation import predict_logits
from adaptive_labels.training.loop import FitResult, fit
from adaptive_labels.training.progress import Reporter, SilentReporter
from adaptive_labels.training.recorders import Recorder, TensorBoardRecorder

# Torch's random state is one per process: two threads that trained at once would draw from each other's.
_ONE_AT_A_TIME = threading.Lock()


def execute(
    config: RunConfig, prepared: build.Prepared, out: Path, reporter: Reporter, command: Sequence[str]
) -> RunFolder:
    """Run a resolved configuration into its folder under ``out``; go on where it stopped, do nothing if finished.

    A run that this one learns from is done first, in silence, unless it is finished; so is what that one needs. The
    least time between two checkpoints is 5 seconds, or what the environment variable ALR_CHECKPOINT_SECONDS says.
    """
    if (find_run(out, to_dict(config)) / "result.json").exists():
        reporter.close()
        return RunFolder.create(out, to_dict(config))
    needed = teaching.needed_run(config)
    if needed is not None:
        execute(needed, prepared, out, SilentReporter(), command)
    taught_by = teaching.teacher_run(config, out)
    run = RunFolder.create(out, to_dict(config))
    with _ONE_AT_A_TIME, run.lock():
        dataset = prepared.dataset
        recorder: Recorder = RunRecorder(run, dataset.classes)
        if config.training.tensorboard:
            recorder = TensorBoardRecorder(recorder, run.path / "tensorboard")
        teacher = None if taught_by is None else build.load_network(taught_by)[0]
        run.write_environment(list(command))
        run.write_json("encoder.json", build.encoder_to_dict(prepared.encoder))
        objective = build.make_objective(config, dataset, prepared.encoder, teacher)
        fitted = fit(
            objective,
            prepared.train,
            dataset.train.labels,
            (prepared.validation, dataset.validation.labels),
            config.training,
            config.seed,
            recorder=recorder,
            reporter=reporter,
            checkpoint_dir=run.path / "checkpoint",
            checkpoint_seconds=_checkpoint_seconds(),
            augment=build.make_augment(config, dataset),
        )
        trained = time.perf_counter()
        weights = {name: tensor.contiguous().cpu() for name, tensor in objective.model.state_dict().items()}
        run.write_bytes("model.safetensors", safetensors_bytes(weights))
        result = _result(config, prepared, objective, fitted, run)
        if taught_by is not None:
            result["teacher"] = _teacher(taught_by)
        run.finish({**result, "seconds": fitted.seconds + time.perf_counter() - trained})
        shutil.rmtree(run.path / "checkpoint", ignore_errors=True)  # nothing is left to resume
    return run


def _checkpoint_seconds() -> float:
    given = os.environ.get("ALR_CHECKPOINT_SECONDS", "5")
    try:
        return float(given)
    except ValueError:
        raise ConfigError(f"ALR_CHECKPOINT_SECONDS is {given!r}: allowed is a number of seconds") from None


def execute_job(job: Job, reporter: Reporter) -> str:
    """`execute` for another process: plain data in, the run's path out. The data is opened once per process."""
    config = from_dict(job.config)
    prepared = _prepared(job.data, json.dumps(to_dict(config.data)), json.dumps(to_dict(config.model)))
    return str(execute(config, prepared, Path(job.out), reporter, job.command).path)


@functools.lru_cache(maxsize=1)
def _prepared(file: str | None, data: str, model: str) -> build.Prepared:
    if file is not None and Path(file).exists():  # another machine does not have it
        return build.load_prepared(file)
    config = from_dict({"data": json.loads(data), "model": json.loads(model)})
    dataset = build.load_data(config.data)
    if config.data.fingerprint not in (None, dataset.fingerprint):
        raise ConfigError(f"data: {config.data.name} has changed since the comparison began; start it again")
    return build.prepare(config, dataset)


def _result(
    config: RunConfig, prepared: build.Prepared, objective: Objective, fitted: FitResult, run: RunFolder
) -> dict[str, Any]:
    """What is known of a run once it is trained. The test split is read here, and only here."""
    dataset = prepared.dataset
    result: dict[str, Any] = {
        "dataset": dataset.name,
        "model": config.model.name,
        "method": config.method.name,
        "seed": config.seed,
        "epochs": fitted.epochs,
        "parameters": {
            "network": _count_parameters(objective.model),
            "criterion": _count_parameters(objective.criterion),
            "training": objective.held_parameters,
        },
        "metrics": {},
        "status": "diverged" if fitted.status == "diverged" else "finished",
        "reason": fitted.reason,
    }
    if fitted.status == "diverged":
        return result
    result["metrics"], validation, test = _metrics(objective.model, prepared)
    run.save_predictions(
        test_logits=test.numpy().astype(np.float32),
        test_labels=dataset.test.labels.numpy(),
        validation_logits=validation.numpy().astype(np.float32),
        validation_labels=dataset.validation.labels.numpy(),
        classes=dataset.classes,
    )
    run.write_json("examples.json", example_mistakes(dataset, test))
    if len(objective.learners) > 1:
        result["peers"] = _peers(config, objective, result["metrics"], prepared)
    return result


def _metrics(model: torch.nn.Module, prepared: build.Prepared) -> tuple[dict[str, dict[str, float]], Tensor, Tensor]:
    """Metrics of every split, and the logits of validation and test."""
    dataset = prepared.dataset
    validation = predict_logits(model, prepared.validation)
    test = predict_logits(model, prepared.test)
    train = predict_logits(model, prepared.train)  # as given, not augmented: its distance from test is the gap
    temperature = fit_temperature(validation, dataset.validation.labels)
    given, true = dataset.train.labels, dataset.train.true_labels
    of_train = {"top1": top_k_accuracy(train, given), "nll": nll(train, given)}
    if dataset.num_classes > 5:
        of_train["top5"] = top_k_accuracy(train, given, k=5)
    if true is not None:
        of_train |= _memorised(train, given, true)
    metrics = {
        "train": of_train,
        "validation": evaluate(validation, dataset.validation.labels, temperature),
        "test": evaluate(test, dataset.test.labels, temperature),
    }
    return metrics, validation, test


def _memorised(logits: Tensor, labels: Tensor, true_labels: Tensor) -> dict[str, float]:
    """Of the training labels that injected noise made wrong: the shares predicted as given, and as true."""
    wrong, predicted = labels != true_labels, logits.argmax(1)
    count = max(int(wrong.sum()), 1)
    return {
        "wrong_labels": float(wrong.sum()),
        "memorised": float((wrong & (predicted == labels)).sum()) / count,
        "recovered": float((wrong & (predicted == true_labels)).sum()) / count,
    }


def _peers(
    config: RunConfig, objective: Objective, first: dict[str, dict[str, float]], prepared: build.Prepared
) -> dict[str, Any]:
    """The metrics of every network that was trained, the one that predicts first, and their means."""
    every = [first, *(_metrics(learner, prepared)[0] for learner in objective.learners[1:])]
    mean = {
        split: {name: sum(one[split][name] for one in every) / len(every) for name in figures}
        for split, figures in first.items()
    }
    networks = [
        {"model": model.name, "parameters": _count_parameters(learner), "metrics": metrics}
        for model, learner, metrics in zip(teaching.networks(config), objective.learners, every, strict=True)
    ]
    return {"networks": networks, "mean": mean}


def _teacher(run: RunFolder) -> dict[str, Any]:
    """What a result says of the run that was learned from; the weights' hash tells apart what a name cannot."""
    result = run.result
    assert result is not None  # it is finished
    return {
        "run": run_id(run.config),
        "model": result["model"],
        "parameters": result["parameters"]["network"],
        "weights": file_hash(run.path / "model.safetensors"),
        "top1": {split: result["metrics"][split]["top1"] for split in ("validation", "test")},
        "seconds": result["seconds"],
    }


def _count_parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())

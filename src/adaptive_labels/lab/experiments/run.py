"""One run, from its configuration to its result: trains, tests once, and leaves a folder that never changes again."""

import json
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from adaptive_labels.lab.config import ConfigError, RunConfig, to_dict
from adaptive_labels.lab.data import pretraining_notes
from adaptive_labels.lab.experiments import build, teachers
from adaptive_labels.lab.experiments.loggers import RunRecorder, check_loggers
from adaptive_labels.lab.experiments.mistakes import example_mistakes
from adaptive_labels.lab.files import file_hash
from adaptive_labels.lab.jobs import Job
from adaptive_labels.lab.objectives import Objective, count_parameters
from adaptive_labels.lab.runs import RunFolder, run_id, tidy
from adaptive_labels.lab.training import processes
from adaptive_labels.lab.training.evaluation import predict_logits, predicted_batches
from adaptive_labels.lab.training.loop import FitResult, Interrupted, fit
from adaptive_labels.lab.training.progress import Reporter
from adaptive_labels.lab.training.recorders import Recorder
from adaptive_labels.lab.training.session import contained
from adaptive_labels.metrics import evaluate, fit_temperature
from adaptive_labels.metrics.rows import CheckedLogits
from adaptive_labels.plugins import load_plugin

# Torch's random state is one per process: two threads that trained at once would draw from each other's.
_ONE_AT_A_TIME = threading.Lock()


def execute(
    job: Job,
    prepared: build.Prepared,
    reporter: Reporter | None = None,
    should_stop: Callable[[], int] = lambda: 0,
) -> RunFolder:
    """Do a run in its folder; go on where it stopped, do nothing if it is finished.

    ``should_stop`` is asked after each step, see `fit`. The other processes of this command take part, see `follow`.
    """
    processes.from_first(lambda: job)
    try:
        return _execute(job, prepared, reporter or Reporter(), should_stop)
    except BaseException as error:
        if not processes.is_everywhere(error):
            processes.stop()  # the others are in the middle of the run, which their next message ends
        raise


def follow() -> None:
    """Take part in each run of the first process, until it has no more; that one reads and writes runs, and speaks."""
    job: Job | None
    while (job := processes.from_first(lambda: None)) is not None:
        try:
            _load_plugins(job)
            _execute(job, open_prepared(job.config), Reporter(), lambda: 0)
        except Exception as error:
            if not processes.is_everywhere(error):
                raise


def _execute(job: Job, prepared: build.Prepared, reporter: Reporter, should_stop: Callable[[], int]) -> RunFolder:
    """Do a run; where several processes train, all of them call this, and the first one reads and writes the folder."""
    config = job.config
    if (done := processes.from_first(lambda: _finished(job))) is not None:
        reporter.close()
        return done
    taught_by, teacher = processes.from_first(lambda: _open_teacher(job))
    run = processes.from_first(lambda: RunFolder.create(job.folder, config))
    lock = run.lock()
    with _ONE_AT_A_TIME:
        processes.from_first(lock.acquire)
        try:
            recorder = _begin(run, config, prepared, job.command) if processes.rank() == 0 else Recorder()
            objective = build.make_objective(config, prepared.dataset, prepared.encoder, teacher)
            fitted = fit(
                objective,
                prepared.train,
                prepared.dataset.train.labels,
                (prepared.validation, prepared.dataset.validation.labels),
                config.training,
                config.seed,
                recorder=recorder,
                reporter=reporter,
                checkpoint_dir=run.path / "checkpoint",
                augment=build.make_augment(config, prepared.dataset),
                should_stop=should_stop,
            )
            trained = time.perf_counter()
            learners = objective.learners if fitted.status != "diverged" else ()
            with contained(torch.device("cpu"), config.training.threads):  # other threads round the figures differently
                every = [_metrics(learner, prepared) for learner in learners]
            if processes.rank() == 0:
                result = _result(config, prepared, objective, fitted, every, run)
                if taught_by is not None:
                    result["teacher"] = _teacher(taught_by)
                run.finish({**result, "seconds": fitted.seconds + time.perf_counter() - trained})
                shutil.rmtree(run.path / "checkpoint", ignore_errors=True)  # nothing is left to resume
                recorder.end(result)
        finally:
            lock.release()
    if processes.rank() == 0:
        tidy(run)  # earlier processes may have been ended in the middle of a file
    return run


def _finished(job: Job) -> RunFolder | None:
    """The run of a job, tidied, if it is finished."""
    if not (job.folder / "result.json").exists():
        return None
    run = RunFolder.create(job.folder, job.config)
    tidy(run)
    return run


def _open_teacher(job: Job) -> tuple[RunFolder | None, torch.nn.Module | None]:
    """The run that a job learns from, and its network; None if it learns from none."""
    if job.teacher is None:
        return None, None
    taught_by = teachers.open_teacher(job.config, job.teacher)
    return taught_by, build.load_network(taught_by)[0]


def _begin(run: RunFolder, config: RunConfig, prepared: build.Prepared, command: Sequence[str]) -> Recorder:
    """Write what is known of a run before it is trained; where its history goes."""
    check_loggers(config)
    run.write_json("config.json", to_dict(config))  # device, threads and the like are those of this sitting
    run.write_environment(list(command), processes=processes.world())
    run.write_json("encoder.json", build.encoder_to_dict(prepared.encoder))
    return RunRecorder(run, prepared.dataset.classes)


def execute_job(job: Job) -> str:
    """`execute` for another process: a job in, the run's path out. The data is opened once per process.

    A worker that is asked to stop ends, once its run has kept what it learnt.
    """
    _load_plugins(job)
    prepared = open_prepared(job.config, job.data)
    should_stop = (lambda: 0) if job.shared is None else _WhenGone(job.shared)
    try:
        return str(execute(job, prepared, should_stop=should_stop).path)
    except Interrupted as stop:
        # A pool would give a worker that was told to end another job.
        if multiprocessing.parent_process() is not None and (job.shared is None or job.shared.is_dir()):
            os._exit(128 + stop.number)
        raise


def _load_plugins(job: Job) -> None:
    for plugin in job.plugins:
        load_plugin(plugin)
    if teachers.with_plugin_hash(job.config) != job.config:
        raise ConfigError("the plugin has changed since the run was planned; the same command plans it anew")


class _WhenGone:
    """Asks to stop once a folder is gone, at which it looks once per second."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._next, self._gone = folder, 0.0, False

    def __call__(self) -> int:
        if not self._gone and time.monotonic() >= self._next:
            self._next, self._gone = time.monotonic() + 1.0, not self._folder.is_dir()
        return signal.SIGTERM if self._gone else 0


_OPENED: dict[str, build.Prepared] = {}  # a worker does many runs on the same data


def open_prepared(config: RunConfig, file: Path | None = None) -> build.Prepared:
    """The data of a resolved configuration, from a file if it is there; a `ConfigError` if it has changed since."""
    key = json.dumps([str(file), to_dict(config.data), build.reading(config)])
    if key not in _OPENED:
        _OPENED.clear()
        if file is not None and file.exists():  # another machine does not have it
            _OPENED[key] = build.load_prepared(file)
            return _OPENED[key]
        dataset = build.load_data(config.data, config.model)
        if config.data.fingerprint not in (None, dataset.fingerprint):
            raise ConfigError(f"data: {config.data.name} has changed since the comparison began; start it again")
        _OPENED[key] = build.prepare_data(config, dataset)
    return _OPENED[key]


def _result(
    config: RunConfig,
    prepared: build.Prepared,
    objective: Objective,
    fitted: FitResult,
    every: Sequence[tuple[dict[str, dict[str, float]], Tensor, Tensor]],
    run: RunFolder,
) -> dict[str, Any]:
    """What is known of a run once it is trained; ``every`` is what `_metrics` gives for each of its networks."""
    dataset = prepared.dataset
    result: dict[str, Any] = {
        "dataset": dataset.name,
        "model": config.model.name,
        "method": config.method.name,
        "seed": config.seed,
        "epochs": fitted.epochs,
        "parameters": {
            "network": count_parameters(objective.model),
            "criterion": count_parameters(objective.criterion),
            "training": objective.held_parameters,
        },
        "metrics": {},
        "status": "diverged" if fitted.status == "diverged" else "finished",
        "reason": fitted.reason,
    }
    if notes := pretraining_notes(prepared.encoder, dataset.name):
        result["pretraining"] = notes
    if dataset.text_columns:
        result["text_columns"] = dataset.text_columns
    # Cloned, since safetensors refuses weights that two layers share.
    state = objective.model.state_dict()
    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.items()}
    run.write_bytes("model.safetensors", safetensors_bytes(weights))
    if fitted.status == "diverged":
        return result
    result["metrics"], validation, test = every[0]
    run.save_predictions(
        test_logits=test.numpy(),
        test_labels=dataset.test.labels.numpy(),
        validation_logits=validation.numpy(),
        validation_labels=dataset.validation.labels.numpy(),
        classes=dataset.classes,
    )
    run.write_json("examples.json", example_mistakes(dataset, test))
    if len(objective.learners) > 1:
        result["peers"] = _peers(config, objective, [metrics for metrics, _, _ in every])
    return result


def _metrics(model: torch.nn.Module, prepared: build.Prepared) -> tuple[dict[str, dict[str, float]], Tensor, Tensor]:
    """Metrics of every split, and the logits of validation and test; in the first process. Only here test is read."""
    dataset = prepared.dataset
    validation = predict_logits(model, prepared.validation)
    test = predict_logits(model, prepared.test)
    of_train = _train_metrics(model, prepared)
    if processes.rank() > 0:
        return {}, validation, test
    temperature = fit_temperature(validation, dataset.validation.labels)
    metrics = {
        "train": of_train,
        "validation": evaluate(validation, dataset.validation.labels, temperature),
        "test": evaluate(test, dataset.test.labels, temperature),
    }
    return metrics, validation, test


def _train_metrics(model: torch.nn.Module, prepared: build.Prepared) -> dict[str, float]:
    """Metrics of the training split, not augmented: their distance from test is the gap. No logits are kept."""
    examples = prepared.dataset.train
    predicted, ranks = torch.empty_like(examples.labels), torch.empty_like(examples.labels)
    losses = torch.empty(len(examples), dtype=torch.float64)
    for indices, logits in predicted_batches(model, prepared.train):
        if processes.rank() > 0:
            continue
        rows = CheckedLogits(logits, examples.labels[indices])
        predicted[indices], ranks[indices] = torch.from_numpy(rows.predicted), torch.from_numpy(rows.ranks)
        losses[indices] = torch.from_numpy(rows.losses)
    metrics = {"top1": float((ranks < 1).numpy().mean()), "nll": float(losses.numpy().mean())}
    if prepared.dataset.num_classes > 5:
        metrics["top5"] = float((ranks < 5).numpy().mean())
    if examples.true_labels is not None:
        wrong = examples.labels != examples.true_labels  # made so by injected noise
        count = max(int(wrong.sum()), 1)
        metrics["wrong_labels"] = float(wrong.sum())
        metrics["memorised"] = float((wrong & (predicted == examples.labels)).sum()) / count
        metrics["recovered"] = float((wrong & (predicted == examples.true_labels)).sum()) / count
    return metrics


def _peers(config: RunConfig, objective: Objective, every: Sequence[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """The metrics of every network that was trained, the one that predicts first, and their means."""
    mean = {
        split: {name: sum(one[split][name] for one in every) / len(every) for name in figures}
        for split, figures in every[0].items()
    }
    networks = [
        {"model": model.name, "parameters": count_parameters(learner), "metrics": metrics}
        for model, learner, metrics in zip(teachers.networks(config), objective.learners, every, strict=True)
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
        "weights": file_hash(run.checked("model.safetensors")),
        "top1": {split: result["metrics"][split]["top1"] for split in ("validation", "test")},
        "seconds": result["seconds"],
    }

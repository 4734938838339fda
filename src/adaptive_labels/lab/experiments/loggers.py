"""Runs in MLflow, Weights & Biases and TensorBoard, while they are trained: the setting `training.log`.

A logger of one's own is a class here, registered by name: it is made when a run starts, or goes on after so many
epochs. Its package is imported only then.
"""

import hashlib
import importlib.util
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from adaptive_labels.errors import UserError
from adaptive_labels.lab.analysis.records import flatten
from adaptive_labels.lab.config import RunConfig, to_dict
from adaptive_labels.lab.runs import RunFolder
from adaptive_labels.lab.training.progress import warn
from adaptive_labels.lab.training.recorders import Recorder
from adaptive_labels.lab.words import first_line

Values = Mapping[str, float]
Labels = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class LoggedRun:
    """What a logger knows of a run.

    key: for the logger, one per folder; project: the data set's name; settings: the configuration, with dotted keys.
    """

    folder: Path
    project: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """An id that only this folder has."""
        return hashlib.sha256(str(self.folder.absolute()).encode()).hexdigest()[:16]


class Logger(Protocol):
    """Where metrics go."""

    def log(self, epoch: int, values: Values) -> None:
        """Take the metrics of an epoch."""
        ...

    def residual_labels(self, epoch: int, labels: Labels) -> None:
        """Take the residual labels (K, K)."""
        ...

    def end(self, values: Values) -> None:
        """Take the metrics of the result; nothing comes after them."""
        ...


class Mlflow:
    """A run in MLflow, at MLFLOW_TRACKING_URI or else in the folder ``mlruns`` beside the runs."""

    def __init__(self, run: LoggedRun, resumed: int) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if uri is None:  # a folder is what many machines can write to; MLflow wants to be told that it is meant
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            uri = str(run.folder.parent.absolute() / "mlruns")
        self._client: Any = MlflowClient(uri)
        self._metric: Any = Metric
        experiment = self._experiment(run.project)
        for found in self._client.search_runs([experiment], f"tags.alr_run = '{run.key}'"):
            if resumed:
                self._id = found.info.run_id
                return
            self._client.delete_run(found.info.run_id)
        tags = {"alr_run": run.key}
        self._id = self._client.create_run(experiment, run_name=run.folder.name, tags=tags).info.run_id
        self._client.log_batch(self._id, params=[Param(key, str(value)) for key, value in run.settings.items()])

    def _experiment(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        try:
            return str(self._client.create_experiment(name) if found is None else found.experiment_id)
        except Exception:  # another run has just made it, or nothing answers
            return str(self._client.get_experiment_by_name(name).experiment_id)

    def log(self, epoch: int, values: Values) -> None:
        """Take the metrics of an epoch."""
        now = int(time.time() * 1000)
        metrics = [self._metric(name, value, now, epoch) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def residual_labels(self, epoch: int, labels: Labels) -> None:
        """Nothing."""

    def end(self, values: Values) -> None:
        """Take the metrics of the result."""
        self.log(0, values)
        self._client.set_terminated(self._id)


class Wandb:
    """A run in Weights & Biases, in the project WANDB_PROJECT or else ``adaptive-labels``."""

    def __init__(self, run: LoggedRun, resumed: int) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "adaptive-labels"),
            id=run.key,
            name=run.folder.name,
            config={**run.settings},
            dir=str(run.folder.parent),
            resume="allow" if resumed else None,
            reinit="finish_previous",
            settings=wandb.Settings(silent=True, console="off"),
        )

    def log(self, epoch: int, values: Values) -> None:
        """Take the metrics of an epoch; W&B ignores an epoch that it has already."""
        self._run.log({**values}, step=epoch)

    def residual_labels(self, epoch: int, labels: Labels) -> None:
        """Nothing."""

    def end(self, values: Values) -> None:
        """Take the metrics of the result."""
        self._run.summary.update({**values})
        self._run.finish()


class TensorBoard:
    """Events, in the folder ``tensorboard`` of a run."""

    def __init__(self, run: LoggedRun, resumed: int) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        # What was written of later epochs is hidden.
        self._writer: Any = SummaryWriter(str(run.folder / "tensorboard"), purge_step=resumed + 1)
        self._last = resumed

    def log(self, epoch: int, values: Values) -> None:
        """Take the metrics of an epoch."""
        self._last = epoch
        for name, value in values.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def residual_labels(self, epoch: int, labels: Labels) -> None:
        """Take the residual labels as a picture, the largest value white."""
        self._writer.add_image("residual labels", labels / max(float(labels.max()), 1e-12), epoch, dataformats="HW")
        self._writer.flush()

    def end(self, values: Values) -> None:
        """Take the metrics of the result."""
        self.log(self._last, values)
        self._writer.close()


LOGGERS: dict[str, Callable[[LoggedRun, int], Logger]] = {"mlflow": Mlflow, "wandb": Wandb, "tensorboard": TensorBoard}


def check_loggers(config: RunConfig) -> None:
    """Refuse loggers whose packages are missing, before any run."""
    for name in config.training.log:
        if importlib.util.find_spec(name) is None:
            raise UserError(f"log is {name}, which is not installed: pip install 'adaptive-labels[{name}]'")


class LoggingRecorder:
    """Passes a run's history on to another recorder, and to the loggers. One that fails stops no run."""

    def __init__(self, recorder: Recorder, names: Sequence[str], run: LoggedRun) -> None:
        self.inner, self._names, self._run = recorder, names, run
        self._loggers: dict[str, Logger] = {}

    def rewind(self, history: Sequence[Mapping[str, Any]], arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Begin with the loggers, or go on."""
        self.inner.rewind(history, arrays)
        for name in self._names:
            with self._surviving(name):
                self._loggers[name] = LOGGERS[name](self._run, len(history))

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Log every number of the record, the loss parts under `parts/`."""
        self.inner.epoch(record)
        self._each(lambda logger: logger.log(record["epoch"], _finite_numbers(record)))

    def residual_labels(self, epoch: int, matrix: Labels) -> None:
        """Log the residual labels."""
        self.inner.residual_labels(epoch, matrix)
        self._each(lambda logger: logger.residual_labels(epoch, matrix))

    def arrays(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Those of the other recorder."""
        return self.inner.arrays()

    def end(self, result: Mapping[str, Any]) -> None:
        """Log the metrics of the result."""
        self._each(lambda logger: logger.end(_finite_numbers(result["metrics"])))

    def _each(self, tell: Callable[[Logger], None]) -> None:
        for name, logger in list(self._loggers.items()):
            with self._surviving(name):
                tell(logger)

    @contextmanager
    def _surviving(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._loggers.pop(name, None)
            warn(f"{name} does not log {self._run.folder.name} any more: {first_line(error)}")


def with_loggers(recorder: Recorder, config: RunConfig, run: RunFolder) -> Recorder:
    """The recorder, with the loggers of the configuration around it if there are any."""
    check_loggers(config)
    if not config.training.log:
        return recorder
    project = Path(config.data.name).expanduser().resolve().stem
    return LoggingRecorder(recorder, config.training.log, LoggedRun(run.path, project, flatten(to_dict(config))))


def log_result(recorder: Recorder, result: Mapping[str, Any]) -> None:
    """Log how the run ended, if there are loggers around the recorder."""
    if isinstance(recorder, LoggingRecorder):
        recorder.end(result)


def _finite_numbers(record: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in flatten(record, joint="/").items()
        if name != "epoch" and isinstance(value, int | float) and math.isfinite(value)
    }

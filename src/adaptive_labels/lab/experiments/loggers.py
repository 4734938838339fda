"""Where a run's history goes: into its folder, and into MLflow, Weights & Biases or TensorBoard (`training.log`).

A logger is made when a run starts, or goes on after so many epochs; its package is imported only then.
"""

import hashlib
import importlib.util
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_labels.errors import UserError
from adaptive_labels.lab.analysis.records import flatten
from adaptive_labels.lab.config import RunConfig, to_dict
from adaptive_labels.lab.runs import RunFolder
from adaptive_labels.lab.training.progress import warn
from adaptive_labels.lab.training.recorders import Arrays, Recorder
from adaptive_labels.lab.words import first_line

Values = Mapping[str, float]
Labels = np.ndarray[Any, np.dtype[np.float32]]


class Logger:
    """Where the metrics of a run in ``folder`` go; ``settings`` are its configuration, with dotted keys."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], resumed: int) -> None:
        raise NotImplementedError

    def log(self, epoch: int, values: Values) -> None:
        """Take the metrics of an epoch."""

    def residual_labels(self, epoch: int, labels: Labels) -> None:
        """Take the residual labels (K, K)."""

    def end(self, values: Values) -> None:
        """Take the metrics of the result; nothing comes after them."""


def _key(folder: Path) -> str:
    """An id that only this folder has."""
    return hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:16]


class Mlflow(Logger):
    """A run in MLflow, at MLFLOW_TRACKING_URI or else in the folder ``mlruns`` beside the runs."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], resumed: int) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if uri is None:  # a folder is what many machines can write to; MLflow wants to be told that it is meant
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            uri = str(folder.parent.absolute() / "mlruns")
        self._client: Any = MlflowClient(uri)
        self._metric: Any = Metric
        experiment, tags = self._experiment(Path(settings["data.name"]).stem), {"alr_run": _key(folder)}
        for earlier in self._client.search_runs([experiment], f"tags.alr_run = '{_key(folder)}'"):
            if resumed:
                self._id = earlier.info.run_id
                return
            self._client.delete_run(earlier.info.run_id)
        self._id = self._client.create_run(experiment, run_name=folder.name, tags=tags).info.run_id
        self._client.log_batch(self._id, params=[Param(key, str(value)) for key, value in settings.items()])

    def _experiment(self, name: str) -> str:
        experiment = self._client.get_experiment_by_name(name)
        try:
            return str(self._client.create_experiment(name) if experiment is None else experiment.experiment_id)
        except Exception:  # another run has just made it, or nothing answers
            return str(self._client.get_experiment_by_name(name).experiment_id)

    def log(self, epoch: int, values: Values) -> None:
        now = int(time.time() * 1000)
        metrics = [self._metric(name, value, now, epoch) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def end(self, values: Values) -> None:
        self.log(0, values)
        self._client.set_terminated(self._id)


class Wandb(Logger):
    """A run in Weights & Biases, in the project WANDB_PROJECT or else ``adaptive-labels``."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], resumed: int) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "adaptive-labels"),
            id=_key(folder),
            name=folder.name,
            config={**settings},
            dir=str(folder.parent),
            resume="allow" if resumed else None,
            reinit="finish_previous",
            settings=wandb.Settings(silent=True, console="off"),
        )

    def log(self, epoch: int, values: Values) -> None:
        """Take the metrics of an epoch; W&B ignores an epoch that it has already."""
        self._run.log({**values}, step=epoch)

    def end(self, values: Values) -> None:
        self._run.summary.update({**values})
        self._run.finish()


class TensorBoard(Logger):
    """Events, in the folder ``tensorboard`` of a run."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], resumed: int) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        # What was written of later epochs is hidden.
        self._writer: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=resumed + 1)
        self._last = resumed

    def log(self, epoch: int, values: Values) -> None:
        self._last = epoch
        for name, value in values.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def residual_labels(self, epoch: int, labels: Labels) -> None:
        """Take the residual labels as a picture, the largest value white."""
        self._writer.add_image("residual labels", labels / max(float(labels.max()), 1e-12), epoch, dataformats="HW")
        self._writer.flush()

    def end(self, values: Values) -> None:
        self.log(self._last, values)
        self._writer.close()


LOGGERS: dict[str, type[Logger]] = {"mlflow": Mlflow, "wandb": Wandb, "tensorboard": TensorBoard}


def check_loggers(config: RunConfig) -> None:
    """Refuse loggers whose packages are missing, before any run."""
    for name in config.training.log:
        if importlib.util.find_spec(name) is None:
            raise UserError(f"log is {name}, which is not installed: pip install 'adaptive-labels[{name}]'")


class RunRecorder(Recorder):
    """Writes each epoch into a run's folder, and hands it on to its loggers, if any. One that fails stops no run."""

    def __init__(self, run: RunFolder, classes: Sequence[str]) -> None:
        self._run, self._classes = run, classes
        self._loggers: dict[str, Logger] = {}

    def rewind(self, history: Sequence[Mapping[str, Any]], arrays: Arrays) -> None:
        if arrays:
            self._run.write_npz("residual_labels.npz", **arrays, classes=list(self._classes))
        self._run.rewind(history)
        config = self._run.config
        for name in config.training.log:
            with self._surviving(name):
                self._loggers[name] = LOGGERS[name](self._run.path, flatten(to_dict(config)), len(history))

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Keep every number of the record; in a logger, the loss parts are under `parts/`."""
        self._run.append_history(record)
        self._each(lambda logger: logger.log(record["epoch"], _finite_numbers(record)))

    def residual_labels(self, epoch: int, matrix: Labels) -> None:
        self._run.save_residual_labels([epoch], matrix[None], self._classes)
        self._each(lambda logger: logger.residual_labels(epoch, matrix))

    def arrays(self) -> Arrays:
        labels = self._run.load_residual_labels()
        every = {} if labels is None else vars(labels)
        return {name: array for name, array in every.items() if isinstance(array, np.ndarray)}

    def end(self, result: Mapping[str, Any]) -> None:
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
            warn(f"{name} does not log {self._run.name} any more: {first_line(error)}")


def _finite_numbers(record: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in flatten(record, joint="/").items()
        if name != "epoch" and isinstance(value, int | float) and math.isfinite(value)
    }

"""Trackers of runs and of groups of runs: MLflow, Weights & Biases, TensorBoard.

A tracker of one's own is a class here, registered by name: it is made when a run starts, or goes on after so many
epochs, told of each epoch, and of the result. Its package is imported only then.
"""

import hashlib
import importlib.util
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from adaptive_labels.errors import UserError
from adaptive_labels.lab.analysis import summarise
from adaptive_labels.lab.analysis.records import flatten
from adaptive_labels.lab.config import RunConfig, to_dict
from adaptive_labels.lab.runs import RunFolder, recipe_hash
from adaptive_labels.lab.training.progress import warn
from adaptive_labels.lab.training.recorders import Recorder
from adaptive_labels.lab.words import counted, first_line

Values = Mapping[str, float]


@dataclass(frozen=True)
class Tracked:
    """What a tracker knows of a run, or of a group: the runs that differ in their seed only.

    name: for people; key: for the tracker, one per folder; project: the data set's name.
    out: the folder of the runs; settings: the configuration, with dotted keys.
    """

    name: str
    key: str
    group: str
    project: str
    out: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_group: bool = False


class Tracker(Protocol):
    """Where figures go; ``last`` is the latest epoch that it has, perhaps from before an interruption."""

    last: int

    def log(self, epoch: int, values: Values) -> None:
        """Take the figures of an epoch."""
        ...

    def end(self, values: Values) -> None:
        """Take the figures of the whole; nothing comes after them."""
        ...


class Mlflow:
    """A run in MLflow, at MLFLOW_TRACKING_URI or else in the folder ``mlruns`` beside the runs."""

    def __init__(self, run: Tracked, resumed: int) -> None:
        from mlflow.entities import Metric, Param

        self._metric: Any = Metric
        self._client, experiment = self.open(run.out, run.project)
        found = self._client.search_runs([experiment], f"tags.alr_run = '{run.key}'")
        if found and resumed:
            self._id = found[0].info.run_id
        else:
            for other in found:
                self._client.delete_run(other.info.run_id)
            tags = {"alr_run": run.key, "alr_group": "" if run.is_group else run.group}
            self._id = self._client.create_run(experiment, run_name=run.name, tags=tags).info.run_id
            self._client.log_batch(self._id, params=[Param(key, str(value)) for key, value in run.settings.items()])
        self.last = int(max((one.step for one in self._client.get_metric_history(self._id, "train_loss")), default=0))
        if run.is_group:  # shown around its runs
            for member in self._client.search_runs([experiment], f"tags.alr_group = '{run.group}'"):
                self._client.set_tag(member.info.run_id, "mlflow.parentRunId", self._id)

    @staticmethod
    def open(out: Path, project: str) -> tuple[Any, str]:
        """A client, and the id of the project's experiment, which is made if it is not there."""
        from mlflow import MlflowClient

        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if uri is None:  # a folder is what many machines can write to; MLflow wants to be told that it is meant
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            uri = str(out.absolute() / "mlruns")
        client = MlflowClient(uri)
        found = client.get_experiment_by_name(project)
        return client, client.create_experiment(project) if found is None else found.experiment_id

    def log(self, epoch: int, values: Values) -> None:
        """Take the figures of an epoch."""
        now, self.last = int(time.time() * 1000), epoch
        metrics = [self._metric(name, value, now, epoch) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def end(self, values: Values) -> None:
        """Take the figures of the whole."""
        self.log(self.last, values)
        self._client.set_terminated(self._id)


class Wandb:
    """A run in Weights & Biases, in the project WANDB_PROJECT or else ``adaptive-labels``."""

    def __init__(self, run: Tracked, resumed: int) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "adaptive-labels"),
            id=run.key,
            name=run.name,
            group=run.group,
            job_type="seeds" if run.is_group else "run",
            config={**run.settings},
            dir=str(run.out),
            resume="allow" if resumed else None,
            reinit="finish_previous",
            settings=wandb.Settings(silent=True, console="off"),
        )
        self.last = max(0, self._run.step - 1)

    def log(self, epoch: int, values: Values) -> None:
        """Take the figures of an epoch."""
        self._run.log({**values}, step=epoch)

    def end(self, values: Values) -> None:
        """Take the figures of the whole."""
        self._run.summary.update({**values})
        self._run.finish()


class TensorBoard:
    """Events, in the folder ``tensorboard`` of a run; of a group in one beside the runs."""

    def __init__(self, run: Tracked, resumed: int) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        folder = run.out / "tensorboard" / run.group if run.is_group else run.out / run.name / "tensorboard"
        # What was written of later epochs, or of fewer seeds, is hidden.
        self._writer: Any = SummaryWriter(str(folder), purge_step=resumed + 1)
        self.last = resumed

    def log(self, epoch: int, values: Values) -> None:
        """Take the figures of an epoch."""
        self.last = epoch
        for name, value in values.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def residual_labels(self, epoch: int, matrix: np.ndarray[Any, np.dtype[np.float32]]) -> None:
        """Take the class similarities as a picture, the largest value white."""
        self._writer.add_image("residual labels", matrix / max(float(matrix.max()), 1e-12), epoch, dataformats="HW")
        self._writer.flush()

    def end(self, values: Values) -> None:
        """Take the figures of the whole."""
        self.log(self.last, values)
        self._writer.close()


TRACKERS: dict[str, Callable[[Tracked, int], Tracker]] = {"mlflow": Mlflow, "wandb": Wandb, "tensorboard": TensorBoard}


class TrackingRecorder:
    """Passes a run's history on to another recorder, and tells a tracker of it. A tracker that fails stops no run."""

    def __init__(self, recorder: Recorder, tracker: str, run: Tracked) -> None:
        self.inner, self._name, self._run = recorder, tracker, run
        self._tracker: Tracker | None = None

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Tell every number of the record, the loss parts under `parts/`; not what was told before a crash."""
        self.inner.epoch(record)
        with self._surviving():
            if self._tracker is not None and record["epoch"] > self._tracker.last:
                self._tracker.log(record["epoch"], _figures(record))

    def residual_labels(self, epoch: int, matrix: np.ndarray[Any, np.dtype[np.float32]]) -> None:
        """Show them to a tracker that takes them."""
        self.inner.residual_labels(epoch, matrix)
        with self._surviving():
            if self._tracker is not None and hasattr(self._tracker, "residual_labels"):
                self._tracker.residual_labels(epoch, matrix)

    def arrays(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Those of the other recorder."""
        return self.inner.arrays()

    def rewind(self, history: Sequence[Mapping[str, Any]], arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Begin with the tracker, or go on."""
        self.inner.rewind(history, arrays)
        with self._surviving():
            self._tracker = TRACKERS[self._name](self._run, len(history))

    def end(self, values: Values) -> None:
        """Tell the result."""
        with self._surviving():
            if self._tracker is not None:
                self._tracker.end(values)

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._tracker = None
            warn(f"{self._name} is not told of {self._run.name} any more: {first_line(error)}")


def tracked(recorder: Recorder, config: RunConfig, run: RunFolder) -> Recorder:
    """The recorder, with the trackers of the configuration around it."""
    check_installed(config.training.log)
    key = hashlib.sha256(str(run.path.absolute()).encode()).hexdigest()[:16]
    settings, group = flatten(to_dict(config)), group_of(config)
    known = Tracked(run.name, key, group, _project(config), run.path.parent, settings)
    for name in sorted(config.training.log):
        recorder = TrackingRecorder(recorder, name, known)
    return recorder


def tell_result(recorder: Recorder, result: Mapping[str, Any]) -> None:
    """Tell the trackers around a recorder how the run ended."""
    while isinstance(recorder, TrackingRecorder):
        recorder.end(_figures(result["metrics"]))
        recorder = recorder.inner


def check_installed(names: Iterable[str]) -> None:
    """Refuse trackers whose packages are missing."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise UserError(f"log is {name}, which is not installed: pip install 'adaptive-labels[{name}]'")


def check_trackers(config: RunConfig, out: Path) -> None:
    """Refuse trackers that cannot be told anything, before any run; make what the runs would make at the same time."""
    check_installed(config.training.log)
    try:
        if "mlflow" in config.training.log:
            Mlflow.open(out, _project(config))
        if "wandb" in config.training.log and os.environ.get("WANDB_MODE", "online") == "online":
            import wandb

            if not wandb.login(prompt=False):
                raise ValueError("it knows no key; `wandb login` asks for one, and WANDB_MODE=offline needs none")
    except Exception as error:
        raise UserError(f"log is {', '.join(config.training.log)}: {first_line(error)}") from error


def _project(config: RunConfig) -> str:
    return Path(config.data.name).expanduser().resolve().stem


def group_of(config: RunConfig) -> str:
    """The name of the runs that differ from this one in their seed only."""
    return f"{Path(config.data.name).stem}-{config.model.name}-{config.method.name}-{recipe_hash(config)[:8]}"


def log_groups(config: RunConfig, runs: Sequence[RunFolder]) -> None:
    """Tell the trackers of a configuration the mean and the standard deviation over the seeds of each group of runs."""
    groups: dict[str, list[RunFolder]] = {}
    for run in runs if config.training.log else ():
        if run.result is not None and run.result["status"] == "finished":
            groups.setdefault(group_of(run.config), []).append(run)
    for (group, members), name in ((item, name) for item in groups.items() for name in config.training.log):
        out = members[0].path.parent
        key = hashlib.sha256(f"{out.absolute()} {group}".encode()).hexdigest()[:16]
        title = f"{members[0].config.method.name}, {counted(len(members), 'seed')}"
        try:
            tracker = TRACKERS[name](Tracked(title, key, group, _project(config), out, is_group=True), 0)
            histories = [[_figures(record) for record in run.history()] for run in members]
            for epoch in range(1, 1 + min(map(len, histories))):
                tracker.log(epoch, _mean_and_std([history[epoch - 1] for history in histories]))
            results = [_figures((run.result or {})["metrics"]) for run in members]
            tracker.end({"seeds": float(len(members)), **_mean_and_std(results)})
        except Exception as error:
            warn(f"{name} is not told of {group}: {first_line(error)}")


def _mean_and_std(of_seeds: Sequence[Values]) -> dict[str, float]:
    found = {}
    for key in of_seeds[0]:
        summary = summarise([values[key] for values in of_seeds if key in values])
        assert summary is not None  # the first has it
        found[f"{key}/mean"] = summary.mean
        if summary.std is not None:
            found[f"{key}/std"] = summary.std
    return found


def _figures(record: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of an epoch's record, or of a result."""
    return {
        name: float(value)
        for name, value in flatten(record, joint="/").items()
        if name != "epoch" and isinstance(value, int | float) and math.isfinite(value)
    }

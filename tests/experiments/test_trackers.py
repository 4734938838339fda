"""Trackers that are told of runs: MLflow with files of its own, Weights & Biases offline, TensorBoard."""

from __future__ import annotations

import statistics
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
from cli_parts import RECIPE, write_texts

import adaptive_labels
from adaptive_labels.errors import UserError
from adaptive_labels.lab.config import from_dict
from adaptive_labels.lab.experiments import trackers
from adaptive_labels.lab.experiments.trackers import TRACKERS, Tracked, TrackingRecorder, check_trackers, tracked
from adaptive_labels.lab.runs import RunFolder, run_id

SHORT = {**RECIPE, "training": {**RECIPE["training"], "epochs": 3}}


def logging(name: str, settings: dict[str, Any] = SHORT) -> dict[str, Any]:
    return {**settings, "training": {**settings["training"], "log": [name]}}


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return write_texts(tmp_path / "small.csv")


class Memory:
    """A recorder that keeps nothing but the epochs."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def epoch(self, record):
        self.epochs.append(record["epoch"])

    def residual_labels(self, epoch, matrix):
        pass

    def arrays(self):
        return {}

    def rewind(self, history, arrays):
        pass


def record(epoch: int) -> dict[str, Any]:
    return {"epoch": epoch, "train_loss": 1 / epoch, "parts": {"ce": 0.5, "gone": float("nan")}}


def recorder(tracker: str, out: Path) -> TrackingRecorder:
    return TrackingRecorder(Memory(), tracker, Tracked("a run", "key", "group", "small", out, {"training.lr": 0.1}))


def test_who_is_told_does_not_decide_which_run_it_is():
    plain = from_dict({"model": {"name": "fasttext"}})
    watched = from_dict({"model": {"name": "fasttext"}, "training": {"log": ["mlflow", "wandb"]}})
    assert run_id(watched) == run_id(plain)
    with pytest.raises(UserError, match=r"training.log is 'mlflo': allowed is .*; did you mean mlflow\?"):
        from_dict({"training": {"log": ["mlflo"]}})


@pytest.mark.parametrize("name", ["mlflow", "wandb", "tensorboard"])
def test_a_missing_package_is_named_before_any_run(texts, tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    words = rf"^log is {name}, which is not installed: pip install 'adaptive-labels\[{name}\]'$"
    with pytest.raises(UserError, match=words):
        adaptive_labels.compare(texts, "baseline", 1, out=tmp_path / "runs", settings=logging(name))
    assert not list(tmp_path.glob("runs/*"))


def test_a_tracker_that_fails_stops_no_run(tmp_path, monkeypatch, capsys):
    class Failing:
        last = 0

        def __init__(self, run, resumed):
            pass

        def log(self, epoch, values):
            raise OSError("the server is gone\nand more")

    monkeypatch.setitem(TRACKERS, "mlflow", Failing)
    one = recorder("mlflow", tmp_path)
    one.rewind([], {})
    one.epoch(record(1))
    one.epoch(record(2))
    one.end({"test/top1": 0.5})
    assert one.inner.epochs == [1, 2]
    assert capsys.readouterr().err == "alr: mlflow is not told of a run any more: the server is gone\n"


@pytest.mark.slow
class TestMlflow:
    @pytest.fixture(autouse=True)
    def _installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
        monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")

    def runs(self, out: Path) -> tuple[Any, list[Any]]:
        from mlflow import MlflowClient

        client = MlflowClient(str(out / "mlruns"))
        return client, client.search_runs([client.get_experiment_by_name("small").experiment_id])

    def test_runs_and_the_mean_over_their_seeds(self, texts, tmp_path):
        out = tmp_path / "runs"
        found = adaptive_labels.compare(texts, "baseline,alr", 2, out=out, settings=logging("mlflow"))
        client, runs = self.runs(out)
        by_name = {run.info.run_name: run for run in runs}
        assert {run.info.status for run in runs} == {"FINISHED"}
        for run in found:
            told = by_name[run.name]
            history = client.get_metric_history(told.info.run_id, "validation_accuracy")
            assert [(one.step, one.value) for one in sorted(history, key=lambda one: one.step)] == [
                (epoch["epoch"], pytest.approx(epoch["validation_accuracy"])) for epoch in run.history()
            ]
            assert told.data.metrics["test/top1"] == pytest.approx(run.result["metrics"]["test"]["top1"])
            assert told.data.params["training.epochs"] == "3"
            assert told.data.params["method.name"] == run.config.method.name
        for method in ("baseline", "alr"):
            seeds = [run.result["metrics"]["test"]["nll"] for run in found if run.config.method.name == method]
            group = by_name[f"{method}, 2 seeds"]
            assert group.data.metrics["test/nll/mean"] == pytest.approx(statistics.fmean(seeds))
            assert group.data.metrics["test/nll/std"] == pytest.approx(statistics.stdev(seeds))
            assert group.data.metrics["seeds"] == 2
            last = [run.history()[-1]["train_loss"] for run in found if run.config.method.name == method]
            assert group.data.metrics["train_loss/mean"] == pytest.approx(statistics.fmean(last))
            inside = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == group.info.run_id]
            assert sorted(run.info.run_name for run in inside) == sorted(
                run.name for run in found if run.config.method.name == method
            )
        # One more seed: the group is told anew, in the place of the old one.
        adaptive_labels.compare(texts, "alr", 3, out=out, settings=logging("mlflow"))
        names = sorted(run.info.run_name for run in self.runs(out)[1])
        assert [name for name in names if "seeds" in name] == ["alr, 3 seeds", "baseline, 2 seeds"]
        assert len(names) == 5 + 2

    def test_a_run_that_goes_on_tells_no_epoch_twice(self, tmp_path):
        first, second = recorder("mlflow", tmp_path), recorder("mlflow", tmp_path)
        first.rewind([], {})
        for epoch in (1, 2, 3):
            first.epoch(record(epoch))
        second.rewind([record(1), record(2)], {})  # its checkpoint was older
        for epoch in (3, 4):
            second.epoch(record(epoch))
        second.end({"test/top1": 0.5})
        assert second.inner.epochs == [3, 4]
        client, (run,) = self.runs(tmp_path)
        assert [one.step for one in client.get_metric_history(run.info.run_id, "train_loss")] == [1, 2, 3, 4]
        assert run.data.metrics["parts/ce"] == 0.5
        assert "parts/gone" not in run.data.metrics
        anew = recorder("mlflow", tmp_path)
        anew.rewind([], {})  # a run that starts again from nothing takes the place of the old one
        assert [run.data.metrics for run in self.runs(tmp_path)[1]] == [{}]

    def test_a_server_that_does_not_answer_is_said_before_any_run(self, texts, tmp_path, monkeypatch):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        with pytest.raises(UserError, match=r"^log is mlflow: .*127.0.0.1.*9"):
            check_trackers(from_dict({"data": {"name": str(texts)}, **logging("mlflow")}), tmp_path)


@pytest.mark.slow
def test_weights_and_biases_offline(texts, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="the extra `wandb` is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    out = tmp_path / "runs"
    adaptive_labels.compare(texts, "alr", 2, out=out, settings=logging("wandb"))
    wandb.teardown()  # its own process writes the files when it likes, and at the latest now
    files = [path.read_bytes() for path in out.glob("wandb/offline-run-*/*.wandb")]
    assert len(files) == 3  # two runs, and their mean
    for content in files:
        assert b"small-fasttext-alr-" in content  # the group
    assert sum(b"alr, 2 seeds" in content and b"validation_accuracy/std" in content for content in files) == 1
    assert sum(b"parts/update" in content for content in files) == 3


@pytest.mark.slow
def test_tensorboard_has_the_mean_too(texts, tmp_path):
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = tmp_path / "runs"
    runs = adaptive_labels.compare(texts, "alr", 2, out=out, settings=logging("tensorboard"))
    (group,) = (out / "tensorboard").iterdir()
    events = EventAccumulator(str(group)).Reload()
    last = [run.history()[-1]["train_loss"] for run in runs]
    assert events.Scalars("train_loss/mean")[-1].value == pytest.approx(statistics.fmean(last))
    for run in runs:
        events = EventAccumulator(str(run.path / "tensorboard")).Reload()
        losses = [(event.step, event.value) for event in events.Scalars("train_loss")]
        assert losses == [(epoch["epoch"], pytest.approx(epoch["train_loss"])) for epoch in run.history()]
        assert "parts/update" in events.Tags()["scalars"]
        assert [event.step for event in events.Images("residual labels")] == [1, 2, 3]
        assert events.Scalars("test/top1")[-1].value == pytest.approx(run.result["metrics"]["test"]["top1"])


@pytest.mark.slow
def test_a_run_that_goes_on_hides_later_epochs_of_tensorboard(tmp_path):
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first, second = recorder("tensorboard", tmp_path), recorder("tensorboard", tmp_path)
    first.rewind([], {})
    for epoch in (1, 2, 3):
        first.epoch({**record(epoch), "train_loss": 9.0})
    second.rewind([record(1)], {})  # its checkpoint was older
    for epoch in (2, 3):
        second.epoch(record(epoch))
    second.end({"test/top1": 0.5})
    events = EventAccumulator(str(tmp_path / "a run" / "tensorboard")).Reload()
    told = [(event.step, event.value) for event in events.Scalars("train_loss")]
    assert told == [(1, 9.0), (2, 0.5), (3, pytest.approx(1 / 3))]


def test_a_missing_tensorboard_is_a_sentence(tmp_path, monkeypatch):
    config = from_dict({"model": {"name": "fasttext"}, "training": {"log": ["tensorboard"]}})
    run = RunFolder.create(tmp_path / "run", config)
    monkeypatch.setitem(sys.modules, "tensorboard", ModuleType("tensorboard"))
    sys.modules["tensorboard"].__spec__ = ModuleSpec("tensorboard", None)
    assert tracked(Memory(), config, run)._name == "tensorboard"
    monkeypatch.delitem(sys.modules, "tensorboard")
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda name: None)
    words = r"^log is tensorboard, which is not installed: pip install 'adaptive-labels\[tensorboard\]'"
    with pytest.raises(UserError, match=words):
        tracked(Memory(), config, run)


def test_every_spelling_of_a_folder_is_one_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [trackers._project(from_dict({"data": {"name": name}})) for name in (".", str(tmp_path), "towns")]
    assert names == [tmp_path.name, tmp_path.name, "towns"]

"""Loggers of runs: MLflow with files of its own, Weights & Biases offline, TensorBoard."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
from cli_parts import RECIPE, write_texts

import adaptive_labels
from adaptive_labels.errors import UserError
from adaptive_labels.lab.config import from_dict
from adaptive_labels.lab.experiments.loggers import LOGGERS, RunRecorder
from adaptive_labels.lab.runs import RunFolder


def logging(*names: str) -> dict[str, Any]:
    return {**RECIPE, "training": {**RECIPE["training"], "epochs": 3, "log": list(names)}}


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return write_texts(tmp_path / "small.csv")


def record(epoch: int) -> dict[str, Any]:
    return {"epoch": epoch, "train_loss": 1 / epoch, "parts": {"ce": 0.5, "gone": float("nan")}}


def recorder(out: Path, *names: str) -> RunRecorder:
    config = from_dict({"data": {"name": "small"}, "training": {"log": list(names)}})
    return RunRecorder(RunFolder.create(out / "a run", config), ["a", "b"])


def test_an_unknown_logger_is_a_sentence():
    with pytest.raises(UserError, match=r"training.log is 'mlflo': allowed is .*; did you mean mlflow\?"):
        from_dict({"training": {"log": ["mlflo"]}})


@pytest.mark.parametrize("name", LOGGERS)
def test_a_missing_package_is_named_before_any_run(texts, tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    words = rf"^log is {name}, which is not installed: pip install 'adaptive-labels\[{name}\]'$"
    with pytest.raises(UserError, match=words):
        adaptive_labels.compare(texts, "baseline", 1, out=tmp_path / "runs", settings=logging(name))
    assert not list(tmp_path.glob("runs/*"))


def test_a_logger_that_fails_stops_neither_the_run_nor_the_others(tmp_path, monkeypatch, capsys):
    logged = []

    class Failing:
        def __init__(self, folder, settings, resumed):
            pass

        def log(self, epoch, values):
            raise OSError("the server is gone\nand more")

    class Working(Failing):
        def log(self, epoch, values):
            logged.append((epoch, values))

        def end(self, values):
            logged.append(values)

    monkeypatch.setitem(LOGGERS, "mlflow", Failing)
    monkeypatch.setitem(LOGGERS, "wandb", Working)
    one = recorder(tmp_path, "mlflow", "wandb")
    one.rewind([], {})
    one.epoch(record(1))
    one.epoch(record(2))
    one.end({"metrics": {"test": {"top1": 0.5}}})
    assert logged == [
        (1, {"train_loss": 1.0, "parts/ce": 0.5}),
        (2, {"train_loss": 0.5, "parts/ce": 0.5}),
        {"test/top1": 0.5},
    ]
    assert capsys.readouterr().err == "alr: mlflow does not log a run any more: the server is gone\n"


@pytest.mark.slow
def test_mlflow_has_each_run_once(texts, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    out = tmp_path / "runs"

    def runs():
        client = mlflow.MlflowClient(str(out / "mlruns"))
        return client, client.search_runs([client.get_experiment_by_name("small").experiment_id])

    (run,) = adaptive_labels.compare(texts, "alr", 1, out=out, settings=logging("mlflow"))
    client, (found,) = runs()
    assert (found.info.run_name, found.info.status) == (run.name, "FINISHED")
    history = client.get_metric_history(found.info.run_id, "validation_accuracy")
    assert sorted((one.step, one.value) for one in history) == [
        (epoch["epoch"], pytest.approx(epoch["validation_accuracy"])) for epoch in run.history()
    ]
    assert found.data.metrics["test/top1"] == pytest.approx(run.result["metrics"]["test"]["top1"])
    assert found.data.params["method.name"] == "alr"
    first, second = recorder(out, "mlflow"), recorder(out, "mlflow")
    first.rewind([], {})
    first.epoch(record(1))
    second.rewind([record(1)], {})  # it goes on
    second.epoch(record(2))
    (going_on,) = (run for run in runs()[1] if run.info.run_name == "a run")
    assert going_on.data.metrics["train_loss"] == 0.5
    recorder(out, "mlflow").rewind([], {})  # a run that starts again from nothing takes the place of the old one
    assert [run.data.metrics for run in runs()[1] if run.info.run_name == "a run"] == [{}]


@pytest.mark.slow
def test_weights_and_biases_offline(texts, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="the extra `wandb` is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    out = tmp_path / "runs"
    adaptive_labels.compare(texts, "alr", 1, out=out, settings=logging("wandb"))
    wandb.teardown()  # its own process writes the files when it likes, and at the latest now
    (content,) = (path.read_bytes() for path in out.glob("wandb/offline-run-*/*.wandb"))
    assert b"small-fasttext-alr-" in content
    assert b"validation_accuracy" in content
    assert b"test/top1" in content


@pytest.mark.slow
def test_tensorboard_hides_what_is_trained_again(texts, tmp_path):
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (run,) = adaptive_labels.compare(texts, "alr", 1, out=tmp_path / "runs", settings=logging("tensorboard"))
    events = EventAccumulator(str(run.path / "tensorboard")).Reload()
    losses = [(event.step, event.value) for event in events.Scalars("train_loss")]
    assert losses == [(epoch["epoch"], pytest.approx(epoch["train_loss"])) for epoch in run.history()]
    assert [event.step for event in events.Images("residual labels")] == [1, 2, 3]
    assert events.Scalars("test/top1")[-1].value == pytest.approx(run.result["metrics"]["test"]["top1"])
    first, second = recorder(tmp_path, "tensorboard"), recorder(tmp_path, "tensorboard")
    first.rewind([], {})
    for epoch in (1, 2, 3):
        first.epoch({**record(epoch), "train_loss": 9.0})
    second.rewind([record(1)], {})  # its checkpoint was older
    second.epoch(record(2))
    events = EventAccumulator(str(tmp_path / "a run" / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train_loss")] == [(1, 9.0), (2, 0.5)]

"""`alr train`: the folder it leaves, what makes a run another run, and what it prints."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest
from cli_parts import QUICK, WORDS, files, metrics, results, wait_for

from adaptive_labels import load
from adaptive_labels.lab.data import inject_noise, load_dataset

LINES = ["Data: small.csv, 3 classes of texts; 151 train, 17 validation, 42 test.", "Recipe: fasttext: 2 epochs, batch"]


def only(folder):
    (run,) = folder.iterdir()
    return run


def test_a_run_is_a_folder_with_all_its_files_and_the_same_command_does_nothing_again(alr, texts, tmp_path):
    command = ["train", texts, "--epochs", 2, *QUICK]
    ended = alr(*command)
    assert (ended.status, ended.err) == (0, "")
    for line in LINES:
        assert line in ended.out
    run = only(tmp_path / "runs")
    assert {path.name for path in run.iterdir()} == {
        "config.json",
        "encoder.json",
        "environment.json",
        "examples.json",
        "history.jsonl",
        "model.safetensors",
        "predictions.npz",
        "residual_labels.npz",
        "result.json",
    }
    result = json.loads((run / "result.json").read_text())
    assert (result["method"], result["model"], result["seed"], result["epochs"]) == ("alr", "fasttext", 0, 2)
    network = 512 * 16 + 3 * 16 + 3
    assert result["parameters"] == {"network": network, "criterion": 6, "training": network + 6}
    assert {"top1", "nll", "brier", "ece"} <= set(result["metrics"]["test"])
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in history] == [1, 2]
    assert json.loads((run / "environment.json").read_text())["command"].startswith("alr train ")
    before, again = files(run), alr(*command)
    assert (again.status, again.err) == (0, "")
    assert "This run is finished already; nothing was trained." in again.out
    assert again.out.splitlines()[-3:] == ended.out.splitlines()[-3:]
    assert files(run) == before


@pytest.mark.parametrize(
    "change",
    [
        ["--class-weights", "balanced"],
        ["--set", "method.options.attraction=-2"],
        ["--label-noise", 0.3],
    ],
)
def test_a_changed_setting_is_a_new_run(alr, texts, tmp_path, change):
    folders = {alr("train", texts, "--epochs", 1, *more, "--dry-run", "--json").json["folder"] for more in ([], change)}
    assert len(folders) == 2


def test_settings_reach_the_criterion(alr, texts, tmp_path):
    balanced = ["--class-weights", "balanced", "--set", "method.options.attraction=-2"]
    assert alr("train", texts, "--epochs", 2, "--set", "lr=0.1", *QUICK, *balanced).status == 0
    config = json.loads((only(tmp_path / "runs") / "config.json").read_text())
    assert config["method"]["options"] == {"attraction": -2}
    assert (config["training"]["class_weights"], config["training"]["lr"]) == ("balanced", 0.1)
    assert alr("train", texts, "--epochs", 2, "--set", "lr=0.1", *QUICK).status == 0
    first, second = metrics(tmp_path / "runs").values()
    assert first["test"]["nll"] != second["test"]["nll"]


def test_set_overrules_an_option(alr, texts):
    dry = alr("train", texts, "--set", "seed=4", "--set", "method.name=slr", "--dry-run", "--json").json
    assert (dry["config"]["seed"], dry["config"]["method"]["name"]) == (4, "slr")


def test_dry_run_writes_nothing(alr, texts, tmp_path):
    ended = alr("train", texts, "--dry-run")
    assert ended.status == 0
    assert ended.out.splitlines()[-1].startswith("Would train alr (seed 0) into runs/small-linear-alr-s0-")
    assert list(tmp_path.iterdir()) == []


def test_json_is_all_that_is_printed(alr, texts):
    ended = alr("train", texts, "--epochs", 1, *QUICK, "--json")
    assert ended.err == ""
    assert ended.json["status"] == "finished"
    assert ended.json["folder"].startswith("runs/small-fasttext-alr-s0-")
    assert alr("train", texts, "--epochs", 1, *QUICK, "--json").json == ended.json


@pytest.mark.parametrize(
    ("epochs", "batch", "reason"),
    [(1, 256, "the validation loss ended at "), (3, 32, "the loss became NaN at epoch ")],
    ids=["finite but hopeless", "not finite"],
)
def test_divergence_is_recorded(alr, texts, tmp_path, epochs, batch, reason):
    wild = ["--epochs", epochs, "--set", "lr=1e9", *QUICK, "--set", f"batch_size={batch}"]
    ended = alr("train", texts, *wild)
    assert ended.status == 1
    assert "Traceback" not in ended.err
    assert ended.err.startswith(f"alr: the run diverged: {reason}")
    assert len(ended.err.splitlines()) == 1
    assert "try a lower learning rate" in ended.err
    (result,) = results(tmp_path / "runs").values()
    assert (result["status"], result["metrics"]) == ("diverged", {})
    again = alr("train", texts, *wild)
    assert (again.status, again.err) == (1, ended.err)
    assert alr("train", texts, *wild, "--json").json["status"] == "diverged"
    assert alr("train", texts, "--epochs", epochs, *QUICK).status == 0
    assert f"Left out: alr, seed 0: diverged: {reason}" in alr("table", "runs").out


def test_label_noise_is_told_apart(alr, texts, tmp_path):
    ended = alr("train", texts, "--epochs", 6, "--set", "lr=0.1", "--label-noise", 0.3, *QUICK)
    assert "45 of 151 training labels were changed on purpose" in ended.out
    (result,) = results(tmp_path / "runs").values()
    noise = result["metrics"]["train"]
    assert set(noise) == {"top1", "nll", "wrong_labels", "memorised", "recovered"}
    given = load_dataset(str(texts)).train
    noisy = inject_noise(load_dataset(str(texts)), 0.3, seed=0).train
    wrong = [i for i in range(len(given)) if given.labels[i] != noisy.labels[i]]
    classes = sorted(WORDS)
    predicted = load(only(tmp_path / "runs")).predict([given.inputs[i] for i in wrong], top=1)
    named = [classes.index(ranking[0][0]) for ranking in predicted]
    assert noise["wrong_labels"] == len(wrong) == 45
    assert noise["memorised"] == sum(k == noisy.labels[i] for k, i in zip(named, wrong, strict=True)) / 45
    assert noise["recovered"] == sum(k == given.labels[i] for k, i in zip(named, wrong, strict=True)) / 45
    assert noise["recovered"] > noise["memorised"]  # the words say what the true label was
    assert (
        f"{noise['memorised']:.1%} were memorised, {noise['recovered']:.1%} predicted as they were before" in ended.out
    )


def test_embedded_images_by_name(alr, tmp_path):
    recipe = ["--epochs", 3, "--model", "preact-resnet18-w4", "--set", "batch_size=128"]
    ended = alr("train", "digits", "--method", "baseline", *recipe)
    assert (ended.status, ended.err) == (0, "")
    (result,) = results(tmp_path / "runs").values()
    assert result["metrics"]["test"]["top5"] > result["metrics"]["test"]["top1"] > 0.2


def test_embedded_texts_by_name(alr, tmp_path):
    ended = alr("train", "towns", "--epochs", 1, "--method", "baseline", *QUICK)
    assert (ended.status, ended.err) == (0, "")
    assert "Town names are from GeoNames" in ended.out


# ------------------------------------------------------------------------------------------------------ interruptions


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_goes_on_and_ends_as_if_nothing_had_been(alr, start_alr, texts, tmp_path, blow):
    command = ["train", texts, "--epochs", 60, "--set", "model.options.buckets=4096", *QUICK[2:]]
    process = start_alr(*command, "--out", "stopped", "--set", "checkpoint_seconds=0")
    wait_for(lambda: list((tmp_path / "stopped").glob("*/checkpoint/epoch-*.json")), process)
    process.send_signal(blow)
    _, err = process.communicate(timeout=30)
    assert results(tmp_path / "stopped") == {}
    if blow == signal.SIGINT:
        assert process.returncode == 130
        assert err.startswith("alr: stopped in epoch ")
        assert "is kept: the same command goes on from there" in err
        assert len(err.splitlines()) == 1
    found = {json.loads(path.read_text())["epoch"]: path for path in (tmp_path / "stopped").rglob("epoch-*.json")}
    epoch, kept = max(found.items())
    again = alr(*command, "--out", "stopped")
    assert again.status == 0
    assert f"epoch {epoch + 1}/60" in again.out
    assert f"epoch {epoch}/60" not in again.out
    alr(*command, "--out", "whole")
    assert metrics(tmp_path / "stopped") == metrics(tmp_path / "whole")
    assert not kept.exists()


@pytest.mark.parametrize(
    "blow",
    [
        signal.SIGTERM,
        signal.SIGINT,
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
        pytest.param(signal.SIGUSR1, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_the_step_and_keeps_it_even_in_the_first_epoch(alr, start_alr, texts, tmp_path, blow):
    if signal.getsignal(blow) == signal.SIG_IGN:
        pytest.skip("ignored here, as under nohup, and so by the command")
    command = ["train", texts, "--epochs", 1, *QUICK, "--set", "batch_size=2"]
    process = start_alr(*command, "--out", "stopped", "--set", "checkpoint_seconds=0")
    wait_for(lambda: list((tmp_path / "stopped").glob("*/checkpoint/epoch-0-step-*.json")), process)
    process.send_signal(blow)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + blow
    kept = max(int(p.stem.rpartition("-")[2]) for p in (tmp_path / "stopped").glob("*/checkpoint/epoch-0-step-*.json"))
    sentence = (
        f"stopped in epoch 1; what was learnt up to step {kept} of epoch 1 is kept: the same command goes on from there"
    )
    assert err == f"alr: {sentence}\n"
    again = alr(*command, "--out", "stopped")
    assert (again.status, again.err) == (0, "")
    alr(*command, "--out", "whole")
    assert metrics(tmp_path / "stopped") == metrics(tmp_path / "whole")
    assert {path.name for path in only(tmp_path / "stopped").iterdir()} == {
        path.name for path in only(tmp_path / "whole").iterdir()
    }


def test_s_starts_from_the_residual_labels_of_an_earlier_run(alr, texts, compared):
    before = next(path for path in compared.iterdir() if "-alr-s0-" in path.name) / "residual_labels.npz"
    frozen = ["--set", f"method.options.initial_labels={before}", "--set", "method.options.update=frozen"]
    ended = alr("train", texts, "--method", "alr", "--epochs", 1, *QUICK, *frozen)
    assert ended.status == 0, ended.err
    (run,) = Path("runs").iterdir()
    given, kept = (np.load(path)["labels"][-1] for path in (before, run / "residual_labels.npz"))
    assert np.allclose(given, kept, atol=1e-5)


def test_the_rate_of_s_grows_with_the_classes_where_sgd_trains(alr, texts, images):
    dry = ["--method", "alr", "--dry-run", "--json"]
    planned = [alr("train", *data, *dry).json["config"] for data in ([texts, "--model", "fasttext"], [images])]
    of_texts, of_images = (config["training"] for config in planned)
    assert (of_texts["optimizer"], of_texts["residual_lr"]) == ("adamw", 1.0)
    classes = sum(path.is_dir() for path in Path(images).iterdir())
    assert (of_images["optimizer"], of_images["residual_lr"]) == ("sgd", float(classes))
    given = alr("train", images, "--method", "alr", "--dry-run", "--json", "--set", "residual_lr=2").json["config"]
    assert given["training"]["residual_lr"] == 2.0

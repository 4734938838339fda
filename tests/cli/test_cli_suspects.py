"""`alr suspects`: training examples whose label looks wrong."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess

import numpy as np
import pytest
from cli_parts import QUICK, files, write_images, write_texts

from adaptive_labels.lab.analysis import average_precision, label_scores, read_suspects
from adaptive_labels.lab.runs import RunFolder, list_runs


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """The texts and a run on them with a tenth of the labels made wrong. Tests leave both as they are."""
    from adaptive_labels import compare

    folder = tmp_path_factory.mktemp("noisy")
    data = write_texts(folder / "small.csv", count=600)
    settings = {
        "data": {"label_noise": 0.1},
        "model": {"options": {"buckets": 512, "dim": 16, "hidden": 0, "dropout": 0.5}},
        "training": {"epochs": 8, "batch_size": 32, "schedule": "one-cycle", "weight_decay": 0.1, "threads": 1},
    }
    (run,) = compare(data, ["alr"], 1, out=folder / "runs", settings=settings)
    return data, run.path


def test_suspects_as_text(alr, noisy):
    _, run = noisy
    before = files(run)
    ended = alr("suspects", run, "--top", 5)
    assert (ended.status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].split() == ["score", "label", "suggested", "p", "where", "made", "wrong", "text"]
    assert len(lines) == 8
    scores = [float(line.split()[0]) for line in lines[1:6]]
    assert scores == sorted(scores, reverse=True)
    assert all(" small.csv:" in line for line in lines[1:6])
    assert lines[6].startswith("The 5 most suspicious of 432 training examples, by the score residual (")
    assert lines[7].startswith("43 labels were made wrong on purpose; ")
    assert files(run) == before


def test_sources_labels_and_figures_are_those_of_the_data(alr, noisy):
    data, run = noisy
    rows = list(csv.DictReader(io.StringIO(data.read_text())))
    found = alr("suspects", run, "--top", 43, "--format", "json").json
    assert (found["examples"], found["wrong_labels"], found["ranked_by"]) == (432, 43, "residual")
    for suspect in found["suspects"]:
        row = rows[int(suspect["source"].rpartition(":")[2]) - 2]  # line 1 is the header
        assert suspect["text"] == row["text"]
        assert suspect["true_label"] == row["label"]
        assert suspect["suggested"] != suspect["label"]
        assert suspect["png"] is None
    wrong = [suspect["label"] != suspect["true_label"] for suspect in found["suspects"]]
    assert np.mean(wrong) > 0.5  # a tenth by chance
    right = [
        suspect["suggested"] == suspect["true_label"]
        for suspect, flag in zip(found["suspects"], wrong, strict=True)
        if flag
    ]
    assert np.mean(right) > 0.7  # a half by chance


def test_the_ranking_is_that_of_the_scores(alr, noisy):
    """Computed again from the network's logits and the stored residual labels, by each score."""
    from adaptive_labels.lab.config import from_dict
    from adaptive_labels.lab.experiments.build import load_data
    from adaptive_labels.lab.experiments.prediction import Predictor
    from adaptive_labels.lab.training.evaluation import predict_logits

    _, run = noisy
    train = load_data(from_dict(RunFolder(run).config).data).train
    predictor = Predictor.load(run)
    logits = predict_logits(predictor.model, predictor.encoder.encode(train.inputs)).numpy()
    labels = train.labels.numpy()
    expected = label_scores(logits, labels, RunFolder(run).load_residual_labels().matrix())
    for name, values in expected.items():
        found = alr("suspects", run, "--score", name, "--format", "json", "--top", 10).json
        np.testing.assert_allclose([s["score"] for s in found["suspects"]], np.sort(values)[::-1][:10], rtol=1e-5)
        assert [values[s["index"]] for s in found["suspects"]] == pytest.approx([s["score"] for s in found["suspects"]])
        wrong = labels != train.true_labels.numpy()
        assert found["average_precision"][name] == pytest.approx(average_precision(values, wrong), abs=1e-6)


def test_files_by_their_names(alr, noisy, tmp_path):
    _, run = noisy
    printed = alr("suspects", run, "--format", "json").out
    assert alr("suspects", run, "-o", "suspects.json").out == "Suspects: suspects.json\n"
    assert (tmp_path / "suspects.json").read_text() == printed
    stored = read_suspects(tmp_path / "suspects.json")
    assert (stored.run, len(stored.suspects)) == (run.name, 20)
    alr("suspects", run, "-o", "suspects.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "suspects.csv").read_text())))
    assert [row["source"] for row in rows] == [suspect.source for suspect in stored.suspects]
    assert "png" not in rows[0]
    alr("suspects", run, "-o", "suspects.txt", "--format", "csv")
    assert (tmp_path / "suspects.txt").read_text() == (tmp_path / "suspects.csv").read_text()


def test_images_have_pictures_and_files(alr, tmp_path):
    write_images(tmp_path / "colours")
    options = ["--model", "preact-resnet18-w4", "--epochs", 1, "--method", "baseline", "--set", "threads=1"]
    alr("train", "colours", *options)
    (run,) = list_runs("runs")
    found = alr("suspects", run.path, "--top", 3, "--format", "json").json
    assert found["average_precision"] is found["wrong_labels"] is None
    for suspect in found["suspects"]:
        assert (tmp_path / "colours" / suspect["source"]).is_file()
        assert suspect["png"].startswith("iVBORw0KGgo")
        assert suspect["text"] is suspect["true_label"] is None
    lines = alr("suspects", run.path, "--top", 3).out.splitlines()
    assert lines[0].split() == ["score", "label", "suggested", "p", "where"]
    assert len(lines) == 5


def test_data_that_has_changed_or_gone(alr, noisy, tmp_path):
    _, original = noisy
    data = write_texts(tmp_path / "mine.csv")
    alr("train", "mine.csv", "--method", "alr", "--epochs", 1, *QUICK)
    (run,) = list_runs("runs")
    data.rename(tmp_path / "moved.csv")
    gone = alr("suspects", run.path)
    assert (gone.status, gone.out) == (2, "")
    assert gone.err.startswith(f"alr: the training data of {run.path} cannot be read again: '")
    assert "mine.csv' is no data set's name, and no such path exists" in gone.err
    assert gone.err.endswith("If it has moved, say where with --data.\n")
    assert alr("suspects", run.path, "--data", "moved.csv", "--top", 1).status == 0
    write_texts(tmp_path / "mine.csv", seed=1)
    changed = alr("suspects", run.path)
    assert changed.status == 2
    assert changed.err.startswith("alr: ")
    assert f"mine.csv is not the data that {run.path} was trained on" in changed.err
    assert alr("suspects", original, "--data", "moved.csv").status == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--score", "age"], "alr: score is 'age'; it must be one of residual, margin, loss\n"),
        (["--format", "xml"], "alr: format is 'xml'; it must be one of text, json, csv.\n"),
        (["--top", "0"], "alr: invalid value for '--top': 0 is below 1; see `alr suspects --help`\n"),
        (["-o", "nowhere/suspects.json"], "alr: Cannot write nowhere/suspects.json: No such file or directory.\n"),
    ],
)
def test_bad_arguments(alr, noisy, arguments, message):
    _, run = noisy
    ended = alr("suspects", run, *arguments)
    assert (ended.status, ended.out, ended.err) == (2, "", message)


def test_nothing_is_written_into_the_run(alr, noisy, tmp_path):
    _, run = noisy
    before = files(run)
    ended = alr("suspects", run, "-o", run / "suspects.json")
    assert ended.status == 2
    assert ended.err.endswith("in the run's own folder; finished runs never change\n")
    assert files(run) == before
    unfinished = shutil.copytree(run, tmp_path / "half")
    (unfinished / "result.json").unlink()
    assert alr("suspects", "half").err == "alr: half is not finished; run its command again to go on\n"


def test_as_a_process_of_its_own(start_alr, noisy):
    """The figures go to standard output and nothing else does, so that they can be piped."""
    _, run = noisy
    process: subprocess.Popen[str] = start_alr("suspects", run, "--format", "json", "--top", 2)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert len(json.loads(out)["suspects"]) == 2

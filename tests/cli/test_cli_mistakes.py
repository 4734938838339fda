"""`alr mistakes`: every example that a run predicted wrong."""

from __future__ import annotations

import csv
import io
import json

import pytest
from cli_parts import files, write_images, write_texts

from adaptive_labels.lab.runs import RunFolder, list_runs


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Texts and a run on them. Tests leave both as they are."""
    from adaptive_labels import compare

    folder = tmp_path_factory.mktemp("mistakes")
    data = write_texts(folder / "small.csv")
    settings = {
        "model": {"options": {"buckets": 512, "dim": 16, "hidden": 0, "dropout": 0.5}},
        "training": {"epochs": 3, "batch_size": 32, "schedule": "one-cycle", "weight_decay": 0.1, "threads": 1},
    }
    (run,) = compare(data, ["baseline"], 1, out=folder / "runs", settings=settings)
    return data, run.path


@pytest.mark.parametrize("split", ["test", "validation"])
def test_every_mistake_has_its_line_and_probability(alr, trained, split):
    data, run = trained
    before = files(run)
    found = alr("mistakes", run, "--split", split, "--format", "json").json
    with data.open(newline="") as file:
        rows = list(csv.reader(file))
    accuracy = json.loads((run / "result.json").read_text())["metrics"][split]["top1"]
    stored = RunFolder(run).load_predictions()
    count = len(stored.test_labels if split == "test" else stored.validation_labels)
    assert len(found) == round((1 - accuracy) * count) > 0
    for mistake in found:
        assert [mistake["text"], mistake["label"]] == rows[int(mistake["source"].rpartition(":")[2]) - 1]
        assert mistake["predicted"] != mistake["label"]
        assert mistake["split"] == split
        assert 0 < mistake["label_probability"] < mistake["probability"] <= 1
    sure = [mistake["probability"] for mistake in found]
    assert sure == sorted(sure, reverse=True)
    assert [mistake["rank"] for mistake in found] == list(range(1, len(found) + 1))
    assert files(run) == before


def test_text_and_csv_have_the_same(alr, trained, tmp_path):
    _, run = trained
    found = alr("mistakes", run, "--format", "json").json
    head, *lines = alr("mistakes", run).out.splitlines()
    assert head.split() == ["p", "label", "predicted", "where", "text"]
    assert [line.split()[3] for line in lines] == [mistake["source"] for mistake in found]
    assert alr("mistakes", run, "--format", "csv", "-o", "mistakes.csv").out == "Mistakes: mistakes.csv\n"
    rows = list(csv.DictReader(io.StringIO((tmp_path / "mistakes.csv").read_text())))
    assert [row["source"] for row in rows] == [mistake["source"] for mistake in found]


def test_images_are_named_by_their_file(alr, tmp_path):
    write_images(tmp_path / "colours")
    options = ["--model", "preact-resnet18-w4", "--epochs", 1, "--method", "baseline", "--set", "threads=1"]
    assert alr("train", "colours", *options, "--set", "lr=1e-6").status == 0
    (run,) = list_runs("runs")
    found = alr("mistakes", run.path, "--format", "json").json
    assert found
    assert all((tmp_path / "colours" / mistake["source"]).is_file() and mistake["text"] is None for mistake in found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "xml"], "alr: format is 'xml'; it must be one of text, json, csv.\n"),
        (["--split", "train"], "alr: split is 'train'; it must be test or validation\n"),
    ],
)
def test_bad_arguments(alr, trained, arguments, message):
    ended = alr("mistakes", trained[1], *arguments)
    assert (ended.status, ended.out, ended.err) == (2, "", message)

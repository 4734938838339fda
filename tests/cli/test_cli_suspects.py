"""`alr suspects`: examples whose label looks wrong."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from cli_parts import QUICK, files, write_images, write_texts

from adaptive_labels.lab.analysis.suspects import Suspects
from adaptive_labels.lab.cli.suspects import sentences
from adaptive_labels.lab.experiments import out_of_fold, suspects as experiment
from adaptive_labels.lab.runs import list_runs

WRONG = 20


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No pretrained encoder, so that the tests are the same everywhere, and few epochs."""
    monkeypatch.setattr(experiment, "is_offered", lambda *packages: False)
    monkeypatch.setattr(out_of_fold, "EPOCHS_OF_FEW", 5)
    monkeypatch.setattr(out_of_fold, "EPOCHS_OF_ALL", 5)


@pytest.fixture
def mine(tmp_path):
    """A table of texts in which the labels of the first rows are wrong, and the first row is there twice."""
    path = write_texts(tmp_path / "mine.csv", count=300)
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    turned = {"food": "music", "music": "sport", "sport": "food"}
    rows = [*([text, turned[label]] for text, label in rows[:WRONG]), *rows[WRONG:], rows[0]]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def test_wrong_labels_in_all_splits_are_found_without_a_run(alr, mine, tmp_path):
    ended = alr("suspects", mine, "--top", "all", "--format", "json")
    assert ended.status == 0, ended.err
    assert "7 of 7 trainings" in ended.err
    found = ended.json
    assert found["examples"] == 301
    assert found["estimated_wrong"] == len(found["suspects"])
    assert WRONG <= found["estimated_wrong"] < 5 * WRONG  # a word of another class is in most texts
    lines = [int(suspect["source"].rpartition(":")[2]) for suspect in found["suspects"]]
    assert np.mean([line <= WRONG + 1 for line in lines[2:12]]) > 0.3  # 7% by chance
    assert {suspect["split"] for suspect in found["suspects"]} == {"train", "validation", "test"}
    twice = {suspect["source"].rpartition(":")[2] for suspect in found["suspects"] if suspect["conflict"]}
    assert twice == {"2", "302"}
    assert [suspect["conflict"] for suspect in found["suspects"][:3]] == [True, True, False]
    rest = found["suspects"][2:]
    assert [s["score"] for s in rest] == sorted(s["score"] for s in rest)
    assert [s["probability_wrong"] for s in rest] == sorted((s["probability_wrong"] for s in rest), reverse=True)
    assert [s["rank"] for s in found["suspects"]] == list(range(1, len(lines) + 1))
    with mine.open(newline="") as file:
        rows = list(csv.reader(file))
    for suspect, line in zip(found["suspects"], lines, strict=True):
        assert [suspect["text"], suspect["label"]] == rows[line - 1]
    assert not (tmp_path / "runs").exists()


def test_the_text_says_how_many_and_lists_the_first(alr, mine):
    ended = alr("suspects", mine, "--top", 5, "--label-noise", "0.1")
    first, second, third, blank, head, *lines = ended.out.splitlines()
    assert first.startswith("About ")
    assert "of these 301 labels are wrong; the first " in first
    assert second.startswith("2 of them come first: equal inputs")
    assert third.startswith("22 labels were made wrong on purpose; average precision in finding them: ")
    assert (blank, head.split()) == ("", ["wrong", "label", "suggested", "where", "made", "wrong", "twice", "text"])
    assert len(lines) == 5
    assert all("mine.csv:" in line for line in lines)


def test_files_by_their_names_and_a_page(alr, mine, tmp_path):
    ended = alr("suspects", mine, "-o", "found.json", "--report", "found.html")
    assert ended.out.splitlines()[-2:] == ["Suspects: found.json", "Suspects: found.html"]
    found = json.loads((tmp_path / "found.json").read_text())
    assert len(found["suspects"]) == found["estimated_wrong"]
    alr("suspects", mine, "-o", "found.csv", "--top", 7)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "found.csv").read_text())))
    assert [row["source"] for row in rows] == [suspect["source"] for suspect in found["suspects"][:7]]
    assert rows[0]["correct_label"] == ""
    page = (tmp_path / "found.html").read_text()
    first = found["suspects"][0]
    assert f"<b>{first['label']}</b> → {first['suggested']}?" in page
    assert first["text"] in page
    assert "<script" not in page


def test_images_have_pictures_and_files(alr, tmp_path):
    write_images(tmp_path / "colours")
    found = alr("suspects", "colours", "--top", 3, "--format", "json", "--folds", 3).json
    assert found["examples"] == 60
    for suspect in found["suspects"]:
        assert (tmp_path / "colours" / suspect["source"]).is_file()
        assert suspect["png"].startswith("iVBORw0KGgo")
        assert suspect["text"] is suspect["true_label"] is None


def test_a_run_is_judged_by_its_data(alr, mine, tmp_path):
    ended = alr("train", mine, "--method", "alr", "--epochs", 1, *QUICK)
    assert ended.status == 0, ended.err
    (run,) = list_runs("runs")
    before = files(run.path)
    of_run = alr("suspects", run.path, "--format", "json").json
    of_data = alr("suspects", mine, "--format", "json").json
    assert of_run["suspects"] == of_data["suspects"]
    inside = alr("suspects", run.path, "-o", run.path / "found.json")
    assert inside.err.endswith("in the run's own folder; finished runs never change\n")
    assert files(run.path) == before
    write_texts(mine, seed=1)
    changed = alr("suspects", run.path)
    assert (changed.status, changed.err) == (
        2,
        f"alr: {mine} is not the data that {run.path} was trained on: its content has changed\n",
    )
    mine.unlink()
    assert f"the training data of {run.path} cannot be read again" in alr("suspects", run.path).err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "xml"], "alr: format is 'xml'; it must be one of text, json, csv.\n"),
        (["--top", "0"], "alr: top is 0; it must be at least 1, or all\n"),
        (["--top", "many"], "alr: invalid value: 'many' is not a whole number"),
        (["--folds", "1"], "alr: folds is 1; it must be at least 2\n"),
        (["-o", "nowhere/found.json"], "alr: Cannot write nowhere/found.json: No such file or directory.\n"),
    ],
)
def test_bad_arguments(alr, mine, arguments, message):
    ended = alr("suspects", mine, *arguments)
    assert ended.status == 2
    assert message in ended.err


def test_compare_answers_whether_cleaning_pays(alr, mine, tmp_path):
    """The same comparison as it is, without suspects and relabelled; the test split is the same."""
    assert alr("suspects", mine, "-o", "found.csv", "--top", 30).status == 0
    options = ["--methods", "baseline,alr", "--seeds", 2, "--workers", 1, "--epochs", 2, *QUICK]
    ended = alr("compare", mine, *options, "--drop-suspects", "found.csv", "--relabel", "found.csv")
    assert ended.status == 0, ended.err
    *_, dropped, blank, relabelled = ended.out.splitlines()
    assert dropped.startswith("Leaving out the suspects ")
    assert (blank, relabelled.startswith("Relabelling the suspects ")) == ("", True)
    for answer in (dropped, relabelled):
        assert " On the same test split: baseline " in answer
        assert "; alr " in answer
    runs = list_runs("runs")
    assert len(runs) == 2 * 2 * 3
    labels = {tuple(run.load_predictions().test_labels) for run in runs}
    assert len(labels) == 1
    assert "of training and validation left out, by " in ended.out
    assert "of training and validation relabelled, by " in ended.out
    assert (tmp_path / "runs" / "report.html").is_file()
    wrong = alr("compare", mine, *options, "--out", "other", "--drop-suspects", "none.csv")
    assert (wrong.status, "none.csv" in wrong.err) == (2, True)
    assert not (tmp_path / "other").exists()  # said before anything is trained


def test_where_no_label_is_likely_wrong_the_text_says_none():
    first, *more = sentences(Suspects("mine", 200, 3, (), 0, 0, ()))
    assert first == "About 3 of these 200 labels are wrong; none is wrong with a probability of 60% or more."
    assert more == []

"""`alr reproduce`, the real command: one network at the scale smoke, continued, drawn; and what cannot be done."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from cli_parts import COMMAND, SOURCE, Alr, files

CELLS = ["reproduce", "cifar", "--networks", "preact-resnet18", "--only", "baseline,alr", "--workers", "1"]


def process(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*COMMAND, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_a_table_is_filled_once_and_drawn_from_what_is_there(alr: Alr, tmp_path: Path) -> None:
    done = alr(*CELLS, "--json")
    assert done.status == 0, done.err
    (column, other) = done.json["columns"]
    ours = {cell["method"]: cell["ours"] for cell in column["cells"]}
    assert ours["baseline"]["n"] == ours["alr"]["n"] == 1
    assert ours["slr"] is ours["alr-s"] is None  # not asked for: empty, beside the paper's
    assert all(cell["ours"] is None and cell["paper"] for cell in other["cells"])
    lines = (tmp_path / "runs/records/digits-preact-resnet18-smoke.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    baseline = next(cell for cell in column["cells"] if cell["method"] == "baseline")
    assert baseline["top1"]["0"] == records[0]["metrics"]["test"]["top1"]
    assert baseline["difference_points"] == pytest.approx(100 * baseline["top1"]["0"] - 95.28, abs=1e-3)

    before = files(tmp_path)
    again = alr(*CELLS)
    assert again.status == 0, again.err
    assert "2 runs, 2 recorded already" in again.out
    assert "Scale: smoke" in again.out
    assert files(tmp_path) == before

    drawn = alr("reproduce", "figure")  # of the run that is there: nothing is trained
    assert drawn.status == 0, drawn.err
    assert "validation accuracy" not in drawn.out
    assert "Consistency: " in drawn.out
    assert (tmp_path / "runs/figure-digits-preact-resnet18-smoke.svg").exists()


def test_other_data_stands_in_for_a_table_s(alr: Alr, tmp_path: Path) -> None:
    rows = [f"{1 + i % 4},word{i % 4} is the news of day {i},some text of {i} words" for i in range(80)]
    for name in ("train", "test"):
        (tmp_path / f"my_news/{name}.csv").parent.mkdir(exist_ok=True)
        (tmp_path / f"my_news/{name}.csv").write_text("\n".join(rows), encoding="utf-8")
    cell = ["text", "--scale", "short", "--networks", "fasttext", "--data", "ag_news", "--only", "baseline"]
    done = alr("reproduce", *cell, "--seeds", "1", "--workers", "1", "--from", "ag_news=my_news", "--json")
    assert done.status == 0, done.err
    columns = {column["recipe"]: column for column in done.json["columns"]}
    shown = columns["ag_news-fasttext-short@my_news"]
    assert shown["how"].startswith("my_news; fasttext: 4 epochs")
    assert shown["cells"][0]["ours"]["n"] == 1
    assert columns["ag_news-fasttext-short"]["cells"][0]["ours"] is None  # that is what only AG News itself can fill
    assert columns["yelp_full-fasttext-short"]["cells"][0]["ours"] is None
    record = json.loads((tmp_path / "runs/records/ag_news-fasttext-short.jsonl").read_text(encoding="utf-8"))
    assert record["task"] == "ag_news-fasttext-short@my_news"

    # The folder itself has the same name by any path to it.
    os.chdir("my_news")
    again = alr("reproduce", *cell, "--seeds", "1", "--from", "ag_news=.", "--out", "../runs")
    os.chdir("..")
    assert "ag_news-fasttext-short@my_news: 1 run, 1 recorded already." in again.out

    # Other data under the same name would be taken for the same column.
    (tmp_path / "my_news/test.csv").write_text("\n".join(rows[:40]), encoding="utf-8")
    ended = alr("reproduce", *cell, "--seeds", "2", "--workers", "1", "--from", "ag_news=my_news")
    assert ended.status == 2
    assert "ag_news-fasttext-short@my_news has records of other data under this name" in ended.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("cifar", "--scale", "short", "--data", "cifar10"), "alr data prepare cifar10 --data-dir DIR"),
        (("figure", "--scale", "short"), "The data set cifar10 is neither as cifar-10-batches-py/ nor as"),
        (("figure", "--scale", "short", "--data", "mnist"), "data is 'mnist'; at the scale short there is"),
        (("dml", "--scale", "huge"), "scale is 'huge'; it must be smoke, short, cpu or paper"),
        (("dml", "--only", "alx"), "only: there is no 'alx' here"),
        (("text", "--from", "ag=x"), "--from: 'ag=x' is not NAME=PATH with one of towns for the name"),
        (("text", "--scale", "short", "--from", "ag_news"), "'ag_news' is not NAME=PATH with one of ag_news, yahoo_"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(alr: Alr, arguments: tuple[str, ...], sentence: str) -> None:
    ended = alr("reproduce", *arguments)
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert sentence in ended.err


def test_recipes_are_listed(alr: Alr) -> None:
    found = {entry["name"]: entry["description"] for entry in alr("list", "recipes", "--json").json}
    assert "reproduce cifar --scale paper: CIFAR-100, ResNet18" in found["cifar100-preact-resnet18-paper"]


@pytest.mark.slow
@pytest.mark.parametrize("table", ["cifar", "imagenet", "text", "dml"])
def test_every_cell_of_the_paper_runs_at_the_scale_smoke(table: str, tmp_path: Path) -> None:
    done = process(tmp_path, "reproduce", table, "--json")
    assert done.returncode == 0, done.stderr
    for column in json.loads(done.stdout)["columns"]:
        assert all(cell["ours"] is not None for cell in column["cells"]), column["heading"]

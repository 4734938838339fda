"""A CSV of numbers and categories, from the comparison to predictions."""

from __future__ import annotations

import csv
import io
import json
import random
import sys
from pathlib import Path

import pytest
from cli_parts import Alr, results

QUICK = ["--set", "training.epochs=15", "--set", "training.threads=1"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    draw = random.Random(0)
    path = tmp_path / "sizes.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["height", "weight", "shape", "class"])
        for number in range(240):
            height, weight = draw.uniform(0, 3), draw.uniform(0, 3)
            size = int(height + weight) // 2
            writer.writerow(["" if number % 11 == 0 else f"{height:.3f}", f"{weight:.3f}", draw.choice("ox"), size])
    return path


def test_rows_are_compared_reported_predicted_and_suspected(
    alr: Alr, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ["--model", "mlp", "--workers", 1]
    ended = alr("compare", table, "--methods", "baseline,alr", "--seeds", 2, *one, *QUICK)
    assert ended.status == 0, ended.err
    assert "3 classes of rows" in ended.out
    assert "each row is 2 numbers ('height', 'weight') and 1 category ('shape')." in ended.out
    assert "mlp: 15 epochs" in ended.out
    assert all(result["metrics"]["test"]["top1"] > 0.7 for result in results(tmp_path / "runs").values())
    assert "height " in (tmp_path / "runs" / "report.html").read_text()  # rows that were mistaken are shown
    run = next(path.parent for path in (tmp_path / "runs").rglob("result.json") if "alr" in path.parent.name)
    new = tmp_path / "new.csv"
    new.write_text("shape,weight,height\no,0.1,0.1\nx,2.9,2.9\no,,\n")
    predicted = alr("predict", run, new, "-o", "out.csv")
    assert predicted.status == 0, predicted.err
    with (tmp_path / "out.csv").open() as file:
        found = list(csv.DictReader(file))
    assert [row["shape"] for row in found] == ["o", "x", "o"]
    assert [row["prediction"] for row in found[:2]] == ["0", "2"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((new.read_text()).encode())))
    told = [json.loads(line) for line in alr("predict", run, "-", "--json").out.splitlines()]
    assert [one["input"] for one in told] == ["standard input:2", "standard input:3", "standard input:4"]
    assert [one["classes"][0]["class"] for one in told[:2]] == ["0", "2"]
    assert "sizes.csv:" in alr("suspects", run, "--top", 3).out
    assert "is no table; this classifier reads its rows, with the columns 'height'" in alr("predict", run, "x").err
    new.write_text("shape,weight\no,1\n")
    assert "has no column 'height'" in alr("predict", run, new).err


def test_rows_in_python_are_dicts(alr: Alr, table: Path, tmp_path: Path) -> None:
    from adaptive_labels import load

    assert alr("train", table, "--method", "slr", *QUICK).status == 0
    (run,) = (path.parent for path in (tmp_path / "runs").rglob("result.json"))
    predictor = load(run)
    ((best, *_),) = predictor.predict({"height": 2.9, "weight": 2.9, "shape": "o"})
    assert best[0] == "2"
    assert len(predictor.predict([{"height": 1}, {"weight": None}])) == 2


def test_a_network_for_texts_is_refused_for_rows(alr: Alr, table: Path) -> None:
    ended = alr("train", table, "--model", "fasttext")
    assert (ended.status, ended.err) == (2, "alr: model: 'fasttext' reads texts, but sizes.csv holds rows\n")

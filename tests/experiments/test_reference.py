"""The reference of a comparison: a plain classifier on the same splits, kept beside the runs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import adaptive_labels
from adaptive_labels.lab.analysis import format_table, read_run_records
from adaptive_labels.lab.config import from_dict
from adaptive_labels.lab.experiments import build, reference
from adaptive_labels.lab.experiments.comparison import make_plan
from adaptive_labels.lab.experiments.resolve import resolve_for
from adaptive_labels.lab.machine import TimeBudget
from adaptive_labels.lab.report import write_report
from adaptive_labels.lab.runs import list_runs, read_reference

WORDS = {"food": "bread soup rice", "music": "drum flute song", "sport": "ball goal race"}
# Far too little for the network to learn anything, so that the reference must be ahead.
UNTRAINED: dict[str, Any] = {
    "training": {"epochs": 1, "threads": 1, "batch_size": 64, "lr": 1e-7},
    "model": {"options": {"buckets": 128, "dim": 8}},
}


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.csv"
    pairs = [(word, label) for label, words in WORDS.items() for word in words.split()]
    rows = [f"{word} {number},{label}" for number in range(20) for word, label in pairs]
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


def found_in(out: Path) -> dict[str, Any]:
    (path,) = out.glob("reference-*.json")
    found = read_reference(path)
    assert found is not None
    return found


def test_a_reference_that_is_ahead_is_said_first_and_stands_in_every_form(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    compared = adaptive_labels.compare(texts, ["baseline", "alr"], 2, out=out, settings=UNTRAINED)
    assert found_in(out)["test"]["top1"] == 1.0
    assert "A plain classifier (TF-IDF + logistic regression) is " in compared.verdict
    assert "TF-IDF + logistic regression" in compared.table()
    rows = [(row["method"], row["status"]) for row in json.loads(compared.table("json"))]
    assert rows == [("baseline", "finished"), ("alr", "finished"), ("TF-IDF + logistic regression", "reference")]
    assert "TF-IDF + logistic regression,reference" in compared.table("csv")
    page = write_report(compared, tmp_path / "report.html").read_text()
    assert "A plain classifier (TF-IDF + logistic regression) is " in page
    assert "TF-IDF + logistic regression" in page


def test_names_are_read_in_pieces(tmp_path: Path) -> None:
    # No word occurs twice, so that only the endings tell the classes apart.
    parts = [a + b for a in "lmnprst" for b in "aeiou"]
    rows = [f"{a}{b}{end},{end}" for a in parts for b in parts[::4] for end in ("burg", "ville", "ton")]
    rows += ["Common burg,burg", "Common burg,ville"] * 3  # a word that does
    path = tmp_path / "names.csv"
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    adaptive_labels.compare(path, ["baseline"], 1, out=tmp_path / "runs", settings=UNTRAINED)
    assert found_in(tmp_path / "runs")["test"]["top1"] > 0.9


def test_it_is_fitted_once_and_can_be_left_out(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    left_out = adaptive_labels.compare(texts, ["baseline"], 1, out=out, reference=False, settings=UNTRAINED)
    assert not list(out.glob("reference-*"))
    assert "plain classifier" not in left_out.verdict
    adaptive_labels.compare(texts, ["baseline"], 1, out=out, settings=UNTRAINED)
    (path,) = out.glob("reference-*.json")
    before = path.stat().st_mtime_ns, path.read_bytes()
    adaptive_labels.compare(texts, ["baseline", "slr"], 2, out=out, settings=UNTRAINED)
    assert (path.stat().st_mtime_ns, path.read_bytes()) == before
    again = adaptive_labels.compare(texts, ["baseline"], 1, out=out, reference=False, settings=UNTRAINED)
    assert "TF-IDF" not in str(again)  # though it is there
    path.write_text(path.read_text().replace('"penalty"', '"penalties"'))
    assert read_reference(path) is None  # damaged: it is not shown, and made again
    adaptive_labels.compare(texts, ["baseline"], 1, out=out, settings=UNTRAINED)
    assert "penalty" in found_in(out)


def test_images_are_read_as_small_pictures(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for channel, name in enumerate(("red", "green", "blue")):
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(20):
            pixels = draw.integers(0, 120, (24, 20, 3), dtype=np.uint8)
            pixels[..., channel] += 80
            Image.fromarray(pixels).save(tmp_path / "data" / name / f"{number}.png")
    config = from_dict({"data": {"name": str(tmp_path / "data"), "image_size": 20}})
    dataset = build.load_data(config.data)
    config, _ = resolve_for(config, dataset)
    assert reference.ensure_reference(config, dataset, tmp_path) is None
    found = found_in(tmp_path)
    assert found["name"] == "logistic regression"
    assert found["test"]["top1"] == 1.0
    assert found["parameters"]["network"] == (16 * 16 * 3 + 1) * 3


def test_large_data_is_cut_and_said_to_be(texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "SPARSE", 120)
    config = from_dict({"data": {"name": str(texts)}})
    dataset = build.load_data(config.data)
    config, _ = resolve_for(config, dataset)
    reference.ensure_reference(config, dataset, tmp_path)
    found = found_in(tmp_path)
    assert found["examples"] < len(dataset.train)
    assert found["notes"][-1].startswith(f"It has seen {found['examples']} of {len(dataset.train)} training examples")


def test_a_class_without_training_examples_gets_no_probability() -> None:
    features = np.eye(4, dtype=np.float32)
    _, logits = next(reference._candidates((features,) * 3, np.array([0, 0, 2, 2]), 3, (1.0,)))
    assert torch.tensor(logits(features)).softmax(1)[:, 1].max() < 1e-20


def test_a_probability_that_rounds_to_zero_is_no_warning() -> None:
    near = np.array([[-1.0], [1.0]] * 3, dtype=np.float32)
    _, logits = next(reference._candidates((near,) * 3, np.array([0, 1] * 3), 2, (1.0,)))
    assert logits(near * 1e6).min() == -99.0


def test_text_tables_without_a_word_twice_are_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "words.csv"
    rows = [f"{letter * 3}{number:03d},{letter}" for letter in "ab" for number in range(30)]
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    out = tmp_path / "runs"
    adaptive_labels.compare(path, ["baseline"], 1, out=out, settings=UNTRAINED)
    assert found_in(out)["test"]["top1"] == 1.0
    assert "reference" in format_table(read_run_records(list_runs(out)))


def test_a_fit_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.linear_model import LogisticRegression

    fits: list[int] = []
    real = LogisticRegression.fit
    monkeypatch.setattr(
        LogisticRegression, "fit", lambda self, *given: fits.append(self.max_iter) or real(self, *given)
    )
    draw = np.random.default_rng(0)
    features, labels = draw.normal(size=(200, 50)), draw.integers(0, 5, 200)
    given = (features,) * 3, labels, 5, (1e3, 1e4)
    assert len(list(reference._candidates(*given, until=0.0, strict=True))) == 1
    assert fits == [reference.ITERATIONS]
    assert len(list(reference._candidates(*given))) == 2


def test_without_time_there_is_no_reference_and_it_says_so(texts: Path, tmp_path: Path) -> None:
    used = TimeBudget(60.0, time.time() - 61)
    assert reference.seconds_for(used) == 0
    assert reference.seconds_for(TimeBudget(60.0, time.time())) == pytest.approx(6.0)
    plan = make_plan(from_dict({"data": {"name": str(texts)}}), ["baseline"], [0], tmp_path, estimate=False)
    said = reference.ensure_reference(plan.own[0].config, plan.dataset, tmp_path, reference.seconds_for(used))
    assert said == "There is no reference row: the time budget has no room for it."

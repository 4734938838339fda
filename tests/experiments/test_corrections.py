"""Training data without its suspects, or with corrected labels."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from adaptive_labels.lab.analysis.cleaning import does_cleaning_pay
from adaptive_labels.lab.analysis.records import RunRecord
from adaptive_labels.lab.data import DataError, Dataset, load_dataset
from adaptive_labels.lab.experiments.corrections import correct

COLUMNS = ["split", "index", "label", "suggested", "correct_label"]


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    rows = [[f"text number {i} of many", "ab"[i % 2]] for i in range(40)]
    with (tmp_path / "mine.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text", "label"], *rows])
    return load_dataset(str(tmp_path / "mine.csv"))


def write(path: Path, rows: list[list[object]]) -> str:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    return str(path)


def suspects(dataset: Dataset, *entries: tuple[str, int, str]) -> list[list[object]]:
    """Rows of a file: a split, an index, and what a person has filled in; the suggestion is the other class."""
    labels = {name: [dataset.classes[k] for k in examples.labels] for name, examples in dataset.splits()}
    other = {"a": "b", "b": "a"}
    return [[split, i, labels[split][i], other[labels[split][i]], filled] for split, i, filled in entries]


def test_suspects_are_left_out_of_training_and_validation_but_not_of_test(dataset: Dataset, tmp_path: Path) -> None:
    path = write(tmp_path / "s.csv", suspects(dataset, ("train", 0, ""), ("train", 3, ""), ("test", 1, "")))
    cleaned = correct(dataset, path, None)
    assert cleaned.train.inputs == [t for i, t in enumerate(dataset.train.inputs) if i not in (0, 3)]  # type: ignore[arg-type]
    assert list(cleaned.train.sources or []) == [
        s for i, s in enumerate(dataset.train.sources or []) if i not in (0, 3)
    ]
    assert cleaned.test is dataset.test
    assert cleaned.notes[-1].startswith("2 examples of training and validation left out, by ")
    assert cleaned.notes[-1].endswith("; 1 of the test split stay as they are.")
    assert cleaned.fingerprint != dataset.fingerprint
    assert correct(dataset, path, None).fingerprint == cleaned.fingerprint


def test_labels_are_corrected_by_the_person_before_the_suggestion(dataset: Dataset, tmp_path: Path) -> None:
    first, second = (dataset.classes[int(dataset.train.labels[i])] for i in (0, 1))
    rows = suspects(dataset, ("train", 0, ""), ("train", 1, second), ("validation", 0, ""))
    cleaned = correct(dataset, None, write(tmp_path / "s.csv", rows))
    changed = (cleaned.train.labels != dataset.train.labels).nonzero().flatten().tolist()
    assert changed == [0]  # a person has confirmed the second
    assert dataset.classes[int(cleaned.train.labels[0])] != first
    assert (cleaned.validation.labels != dataset.validation.labels).sum() == 1
    assert torch.equal(cleaned.test.labels, dataset.test.labels)
    assert len(correct(dataset, write(tmp_path / "s.csv", rows), None).train) == len(dataset.train) - 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["train", 999, "a", "b", ""], r"s\.csv, row 2: .*mine\.csv has no train example 999"),
        (["other", 0, "a", "b", ""], "has no other example 0"),
        (["train", 0, "c", "b", ""], r"is labelled '[ab]', not 'c'; the file is of other data"),
    ],
)
def test_files_of_other_data_are_refused(dataset: Dataset, tmp_path: Path, row: list[object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        correct(dataset, write(tmp_path / "s.csv", [row]), None)


def test_unknown_classes_and_empty_training_are_refused(dataset: Dataset, tmp_path: Path) -> None:
    path = write(tmp_path / "s.csv", suspects(dataset, ("train", 0, "c")))
    with pytest.raises(DataError, match=r"s\.csv, row 2: 'c' is no class of"):
        correct(dataset, None, path)
    everything = suspects(dataset, *(("train", i, "") for i in range(len(dataset.train))))
    with pytest.raises(DataError, match=r"s\.csv leaves no training example"):
        correct(dataset, write(tmp_path / "s.csv", everything), None)


def records(**methods: list[float]) -> list[RunRecord]:
    return [
        RunRecord(None, "d", "m", name, name, seed, 1, {}, {}, "finished", None, {"test_top1": value})  # type: ignore[arg-type]
        for name, values in methods.items()
        for seed, value in enumerate(values)
    ]


def test_the_answer_says_whether_it_pays() -> None:
    before = records(alr=[0.70, 0.71, 0.70], baseline=[0.60, 0.61, 0.62])
    better = records(alr=[0.72, 0.732, 0.721], baseline=[0.65, 0.661, 0.672])
    said = does_cleaning_pay("Leaving out", before, better)
    assert said.startswith("Leaving out pays. On the same test split: alr 70.3 → 72.4% (+2.1 points, p < 0.001)")
    assert "baseline 61.0 → 66.1% (+5.1 points, p < 0.001" in said
    assert does_cleaning_pay("Leaving out", better, before).startswith("Leaving out does harm.")
    noise = records(alr=[0.70, 0.69, 0.72])
    assert "makes no difference that these seeds can show" in does_cleaning_pay("It", before, noise)
    mixed = records(alr=[0.72, 0.732, 0.721], baseline=[0.5, 0.512, 0.521])
    assert "It pays for some methods and harms others." in does_cleaning_pay("It", before, mixed)
    assert does_cleaning_pay("It", before, []) == "It cannot be judged: no method has finished on both."
    assert "one seed: no test possible" in does_cleaning_pay("It", records(alr=[0.7]), records(alr=[0.8]))

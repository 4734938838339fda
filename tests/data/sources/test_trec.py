"""TREC's questions: lines with a coarse and a fine label before the text."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from adaptive_labels.lab.data import DataError, load_dataset

TRAIN = """DESC:manner How did serfdom develop in and then leave Russia ?
ENTY:cremat What films featured the character : Popeye ?
ENTY:other What does the word "LASER" stand for ?
NUM:date When was Ozzy born ?
NUM:other What is the score ?
DESC:def What is a café ?

ENTY:other  What is Hitler 's dog
NUM:date When did it rain ?
DESC:def What is rain ?
"""
TEST = "NUM:date When is noon ?\nENTY:cremat What film is this ?\n"


def write(folder: Path, train: str = TRAIN, test: str = TEST) -> Path:
    folder.mkdir(parents=True)
    (folder / "train_5500.label").write_bytes(train.encode("latin-1"))
    (folder / "TREC_10.label").write_bytes(test.encode("latin-1"))
    return folder


def test_the_splits_are_found_and_the_coarse_label_is_taken(tmp_path):
    dataset = load_dataset(str(write(tmp_path / "trec")))
    assert dataset.classes == ("DESC", "ENTY", "NUM")
    assert dataset.test.inputs == ["When is noon ?", "What film is this ?"]
    assert dataset.test.labels.tolist() == [2, 1]
    assert list(dataset.test.sources) == ["TREC_10.label:1", "TREC_10.label:2"]
    texts = [*dataset.train.inputs, *dataset.validation.inputs]
    assert len(texts) == 9
    assert "What films featured the character : Popeye ?" in texts
    assert "What is a café ?" in texts
    assert "What is Hitler 's dog" in texts
    assert dataset.notes[0] == "Text is read from column 'text', the label from column 'coarse' (guessed)."
    assert not any("read as" in note for note in dataset.notes)


def test_fine_labels_keep_the_coarse_one(tmp_path):
    train = TRAIN + TRAIN.replace(" ?", " really ?")
    dataset = load_dataset(str(write(tmp_path / "trec", train)), label_column="fine")
    assert dataset.classes == (
        "DESC:def", "DESC:manner", "ENTY:cremat", "ENTY:other", "NUM:date", "NUM:other",
    )  # fmt: skip
    assert dataset.test.labels.tolist() == [4, 2]


def test_a_fine_label_of_test_that_train_lacks_is_refused(tmp_path):
    train = TRAIN + TRAIN.replace(" ?", " really ?")
    folder = write(tmp_path / "trec", train, TEST + "HUM:ind Who ?\n")
    with pytest.raises(DataError) as caught:
        load_dataset(str(folder), label_column="fine")
    assert str(caught.value) == (
        f"The label 'HUM:ind' at {folder}/TREC_10.label line 3 (1 in the file) never occurs in train_5500.label."
    )


def test_one_file_alone_gzipped_and_in_utf_8(tmp_path):
    (tmp_path / "mine.label.gz").write_bytes(gzip.compress(TRAIN.replace("Ozzy", "Łódź").encode()))
    dataset = load_dataset(str(tmp_path / "mine.label.gz"))
    texts = [text for _, split in dataset.splits() for text in split.inputs]
    assert "When was Łódź born ?" in texts
    assert "What is a café ?" in texts


def test_a_line_without_labels_is_named(tmp_path):
    folder = write(tmp_path / "trec", TRAIN + "What is this ?\n")
    with pytest.raises(DataError) as caught:
        load_dataset(str(folder))
    assert str(caught.value) == (
        f"{folder}/train_5500.label line 11 does not begin with a coarse and a fine label, as in 'NUM:dist How far is "
        "it ?'."
    )


def test_two_train_files_are_too_many(tmp_path):
    folder = write(tmp_path / "trec")
    (folder / "train_1000.label").write_text(TRAIN, encoding="utf-8")
    with pytest.raises(DataError, match=r"more than one train split \(train_1000.label, train_5500.label\)"):
        load_dataset(str(folder))

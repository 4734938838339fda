"""`ag_news`, `yahoo_answers` and `yelp_full` from small files in their format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from adaptive_labels.lab.data import DataError, load_dataset
from adaptive_labels.lab.data.cache import CACHE
from adaptive_labels.lab.data.dataset import fingerprint
from adaptive_labels.lab.data.sources.zhang import AG_NEWS, YAHOO_ANSWERS, YELP_FULL, read_stored
from adaptive_labels.lab.data.splits import assemble
from adaptive_labels.lab.data.stored_texts import StoredTexts
from zhang_files import make_zhang, write_archive, write_folder

ALL = [AG_NEWS, YAHOO_ANSWERS, YELP_FULL]
NAMES = [texts.name for texts in ALL]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def read(path: Path, text: str, columns: int = 2, line_ends: str = "escaped"):
    path.write_bytes(text.encode())
    return read_stored(path, columns, line_ends)[0]


def test_rows_as_they_are_written(tmp_path):
    rows = read(
        tmp_path / "x.csv",
        '"2","A ""title""","one\\ntwo \\""three\\"""\n'
        '"1","","  only the second  "\r\n'
        '10,plain,"a, b"\n'
        '\n"3","",""\n"1","über\nzwei","好"\n"1","last","one"',
    )
    assert list(rows.inputs) == [
        'A "title" one\ntwo "three"',
        "only the second",
        "plain a, b",
        "",
        "über\nzwei 好",
        "last one",
    ]
    assert rows.labels.tolist() == [1, 0, 9, 2, 0, 0]
    assert list(rows.sources) == ["x.csv:1", "x.csv:2", "x.csv:3", "x.csv:5", "x.csv:6", "x.csv:8"]
    assert rows.inputs.lengths.tolist() == [len(text) for text in rows.inputs]


@pytest.mark.parametrize("official", ALL, ids=NAMES)
@pytest.mark.parametrize("form", ["folder", "here", "tar.gz", "tgz", "tar", "archive itself"])
def test_every_form_gives_the_same_data_set(official, form, tmp_path):
    texts, files = make_zhang(official)
    plain = tmp_path / "plain"
    write_folder(texts, files, plain)
    root = tmp_path / "other"
    if form in ("folder", "here"):
        folder = write_folder(texts, files, root)
        root = folder if form == "here" else root
    else:
        suffix = "tar.gz" if form == "archive itself" else form
        archive = write_archive(texts, files, root / f"{texts.folder}.{suffix}")
        root = archive if form == "archive itself" else root
    expected, found = assemble(texts.read(plain)), assemble(texts.read(root))
    assert found.fingerprint == expected.fingerprint
    assert found.classes == official.classes
    assert isinstance(found.train.inputs, StoredTexts)
    assert len(found.train) + len(found.validation) == 12 * len(official.classes)
    for index in range(len(found.test)):
        label = int(found.test.labels[index])
        assert f"word{label + 1}" in found.test.inputs[index]
        assert found.test.sources[index] == f"test.csv:{index + 1}"
    # Each training example kept its label and its line through the split.
    for text, label, source in zip(found.train.inputs, found.train.labels.tolist(), found.train.sources, strict=True):
        assert f"word{label + 1} " in text
        assert int(source.removeprefix("train.csv:")) % len(official.classes) == (label + 1) % len(official.classes)


def test_the_split_and_fingerprint_are_those_of_the_same_texts_in_a_list(tmp_path):
    texts, files = make_zhang(YAHOO_ANSWERS)
    write_folder(texts, files, tmp_path / "data")
    stored = assemble(texts.read(tmp_path / "data"), split_seed=3, train_fraction=0.5)
    columns = {"text_column": "2,3,4", "label_column": "1"}
    listed = load_dataset(str(tmp_path / "data" / texts.folder), split_seed=3, train_fraction=0.5, **columns)
    assert list(stored.train.inputs) == listed.train.inputs
    assert list(stored.validation.inputs) == listed.validation.inputs
    assert stored.train.labels.tolist() == listed.train.labels.tolist()
    splits = [(name, replace(examples, inputs=list(examples.inputs))) for name, examples in stored.splits()]
    assert stored.fingerprint == fingerprint(stored.classes, splits)


def test_a_file_that_is_not_the_published_one_is_refused_and_not_kept(tmp_path, cache):
    texts, files = make_zhang(YELP_FULL)
    short = {**files, "train.csv": files["train.csv"].splitlines(keepends=True)}
    short["train.csv"] = b"".join(short["train.csv"][:-2])
    write_folder(texts, short, tmp_path)
    with pytest.raises(DataError) as caught:
        assemble(texts.read(tmp_path))
    assert str(caught.value) == (
        f"{tmp_path}/yelp_review_full_csv/train.csv is not the published file of yelp_full: its classes have 12, 12, "
        "12, 11, 11 rows where 12 each are expected. A folder of your own is read without this check if you give its "
        "path instead of the name."
    )
    assert list((cache / "texts").iterdir()) == []
    assert len(load_dataset(str(tmp_path / texts.folder)).classes) == 5
    (tmp_path / texts.folder / "train.csv").write_bytes(files["train.csv"] + b'"6","a text"\n')
    with pytest.raises(
        DataError, match=r"train.csv line 61 has the class number 6; yelp_full has 5 classes\. A folder"
    ):
        assemble(texts.read(tmp_path))


def test_a_changed_file_with_the_right_counts_is_known_by_its_sum(tmp_path):
    texts, files = make_zhang(AG_NEWS)
    for form, change in {"same": b"word1", "changed": b"ward1"}.items():
        content = files["test.csv"].replace(b"word1", change)
        write_archive(texts, {**files, "test.csv": content}, tmp_path / form / "ag_news_csv.tar.gz")
    assert "by their MD5." in assemble(texts.read(tmp_path / "same")).notes[0]
    with pytest.raises(
        DataError, match=r"ag_news_csv.tar.gz/test.csv is not the published file of ag_news: the MD5 of"
    ):
        assemble(texts.read(tmp_path / "changed"))


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(DataError) as caught:
        assemble(YAHOO_ANSWERS.read(tmp_path))
    assert str(caught.value) == (
        "The data set yahoo_answers is neither as yahoo_answers_csv/ (train.csv and test.csv) nor as "
        f"yahoo_answers_csv.tar.gz in {tmp_path}; name the folder that has it with --data-dir, or have it fetched from "
        "https://s3.amazonaws.com/fast-ai-nlp/yahoo_answers_csv.tgz by `alr data prepare yahoo_answers --data-dir DIR`."
    )
    write_archive(YAHOO_ANSWERS, {"train.csv": b'"1","a","b","c"\n'}, tmp_path / "yahoo_answers_csv.tgz")
    one = replace(YAHOO_ANSWERS, classes=("only",), per_class={"train": 1, "test": 1})
    with pytest.raises(DataError, match=r"The archive .*yahoo_answers_csv.tgz has no test.csv\."):
        assemble(one.read(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'"1","a"\n"2","b","c"\n', r"x.csv line 2 has 3 fields where line 1 has 2\."),
        (b'"1","a"\n"0","b"\n', r"x.csv line 2 begins with '0' where a class number from 1 is needed\."),
        (b'"label","text"\n', r"x.csv line 1 begins with 'label' where"),
        (b'"1","\xff\xfe"\n', r"x.csv is not UTF-8 text \(invalid start byte, after line 1\)\."),
        (b'"1","a","b"\n', r"x.csv line 1 has 3 columns; a class number and 1 of text are needed\."),
        (b"", r"x.csv is empty\."),
    ],
)
def test_files_that_cannot_be_read(content, message, tmp_path):
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_stored(tmp_path / "x.csv", 1, "escaped")


def test_a_broken_archive_is_said_to_be_so(tmp_path):
    texts, files = make_zhang(YELP_FULL)
    archive = write_archive(texts, files, tmp_path / "yelp_review_full_csv.tar.gz")
    archive.write_bytes(archive.read_bytes()[:-300])
    with pytest.raises(DataError, match=r"yelp_review_full_csv.tar.gz/(train|test).csv cannot be read: "):
        assemble(texts.read(tmp_path))


def test_stored_texts_are_a_sequence_like_a_list(tmp_path):
    lines = [f"text {'é' * (number % 7)} {number}" for number in range(10_000)]
    rows = read(tmp_path / "x.csv", "".join(f'"1","{line}"\n' for line in lines), columns=1)
    texts = rows.inputs
    assert list(texts) == lines
    assert (texts[0], texts[-1], texts[np.int64(5)]) == (lines[0], lines[-1], lines[5])
    with pytest.raises(IndexError):
        texts[10_000]
    order = torch.from_numpy(np.random.default_rng(0).permutation(10_000)[:6_000])
    some = texts[order.numpy()]
    expected = [lines[i] for i in order.tolist()]
    assert list(some) == expected
    assert list(some[10:20]) == expected[10:20]
    assert list(some[np.array([3, 3, 1])]) == [expected[3], expected[3], expected[1]]
    assert some.sizes.tolist() == [len(text.encode()) for text in expected]
    assert len({texts.identity(), some.identity(), some[1:].identity()}) == 3
    assert some.identity() == texts[order.clone().numpy()].identity()


def test_a_file_in_the_cache_that_is_too_short_is_named(tmp_path):
    texts = read(tmp_path / "x.csv", '"1","one text"\n', columns=1).inputs
    texts.file.write_bytes(b"one")
    with pytest.raises(OSError, match=r"texts.bin ends before byte 8; delete its folder to have it made again"):
        list(texts)

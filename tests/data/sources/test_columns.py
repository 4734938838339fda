"""Tables without texts: which columns are numbers, categories or neither, and how they become features."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch

from adaptive_labels.lab.data import (
    DataError,
    TableRows,
    encode_split,
    encoder_from_dict,
    encoder_to_dict,
    load_dataset,
)
from adaptive_labels.lab.data.columns import find_label, reads_as_text
from adaptive_labels.lab.data.encoders.columns import ColumnEncoder
from adaptive_labels.lab.data.frames import read_table


def write_people(path: Path, count: int = 120) -> Path:
    """A table of people: a row number, an id, two numbers, two categories, a constant, and whether they buy."""
    draw = random.Random(0)
    lines = ["nr,customer,age,income,colour,city,country,bought"]
    for number in range(count):
        age, income = draw.randint(18, 80), round(draw.gauss(5e4, 2e4), 2)
        cells = [age if number % 7 else "", income if number % 9 else "?", draw.choice(["red", "blue"])]
        bought = "yes" if age > 45 else "no"
        lines.append(f"{number + 1},C{draw.random()},{cells[0]},{cells[1]},{cells[2]},{draw.choice('ABC')},DE,{bought}")
    path.write_text("\n".join(lines) + "\n")
    return path


def write(path: Path, header: str, rows: Iterable[str]) -> str:
    path.write_text("\n".join([header, *rows]) + "\n")
    return str(path)


def test_numbers_and_categories_are_read_and_what_is_not_is_said(tmp_path: Path) -> None:
    people = str(write_people(tmp_path / "people.csv"))
    with pytest.raises(DataError) as caught:
        load_dataset(people)
    assert str(caught.value) == (
        f"Several columns of {people} could be the label: 'colour' (2 classes), 'city' (3 classes), 'bought' "
        "(2 classes); give label_column."
    )
    assert caught.value.option == ["--label-column", "bought"]  # type: ignore[attr-defined]
    dataset = load_dataset(people, label_column="bought")
    assert (dataset.kind, dataset.classes) == ("row", ("no", "yes"))
    rows = dataset.train.inputs
    assert isinstance(rows, TableRows)
    assert rows.names == ("age", "income", "colour", "city")
    assert rows.numeric == (True, True, False, False)
    assert dataset.notes[:4] == (
        "The label is read from column 'bought'.",
        "No text is read: each row is 2 numbers ('age', 'income') and 2 categories ('colour', 'city').",
        "Not read: 'nr', 'customer', 'country' (names, codes, the number of the row or one value; --text-column reads "
        "one as text).",
        "Missing values: 18 of 'age', 14 of 'income'; numbers become the mean of the training rows, categories one of "
        "their own.",
    )
    moved = tmp_path / "people.csv"
    moved.write_text(moved.read_text().replace("blue", "green"))
    assert load_dataset(people, label_column="bought").fingerprint != dataset.fingerprint


@pytest.mark.parametrize(
    ("header", "row", "label"),
    [
        ("label,size,shop", "{a},{n},{c}", "label"),  # by its name
        ("size,Category,shop", "{n},{a},{c}", "Category"),
        ("text,stars,nr", "what a day {n} it was,{c},{n}", "stars"),  # the only one that repeats
        ("size,verdict", "{n}.37,{a}", "verdict"),  # measured numbers are no classes
        ("label,target,shop", "{a},{c},{n}", "'label' (2 classes), 'target' (3 classes); give"),  # two by their names
        ("name,age,colour,bought", "Ann Lee{n},{n},{c},{a}", "'colour' (3 classes), 'bought' (2 classes); give"),
        ("rooms,area,quality,sold", "{c},{n}.5,{b},{a}", "'rooms' (3 classes), 'quality' (5 classes), 'sold' (2 cl"),
        ("id,subject,body,language,priority", "{n},not {n} working,it is {n} days late,{b},{c}", "'priority' (3 cl"),
        ("one,other", "{n},x{n}", "No column of"),
    ],
)
def test_the_label_is_found_by_name_or_as_the_only_candidate_and_never_guessed(
    tmp_path: Path, header: str, row: str, label: str
) -> None:
    rows = [row.format(n=n, a="xy"[n % 2], c=n % 3, b=n % 5) for n in range(120)]
    path = write(tmp_path / "table.csv", header, rows)
    if label in header.split(","):
        assert find_label(read_table(Path(path)), ()) == label
    else:
        with pytest.raises(DataError, match=re.escape(label)):
            load_dataset(path)


@pytest.mark.parametrize(
    ("cell", "reads"),
    [
        ("not a bad film {n}", True),
        ("GREAT FILM, LOVED IT {n}", True),
        ("これは良い映画でした{n}", True),
        ("Это был хороший фильм {n}", True),
        ("The Race Is On: Team {n} sets a date for launch", True),
        ("Ann-Marie Lee{n}", False),
        ("Braund, Mr. Owen Harris {n}", False),
        ("a{n}@example.com", False),
        ("AB-{n}-17 X9", False),
        ("{n}.5", False),
        ("good", False),
        ("not bad at all", False),  # the same words everywhere: a category
    ],
)
def test_texts_are_told_from_names_codes_numbers_and_categories(cell: str, reads: bool) -> None:
    assert reads_as_text([cell.format(n=n) for n in range(60)]) is reads


def test_all_texts_are_read_and_what_is_not_is_said(tmp_path: Path) -> None:
    rows = [f"{n / 7:.3f},is it {'good' if n % 2 else 'bad'} {n},it was so for me {n},{n % 2}" for n in range(40)]
    path = write(tmp_path / "reviews.csv", "price,title,remark,label", rows)
    texts = load_dataset(path)
    assert texts.kind == "text"
    assert texts.notes[:2] == (
        "Text is read from column 'title' and 'remark', the label from column 'label'.",
        "Not read: 'price' (--text-column none reads numbers and categories instead).",
    )
    rows_only = load_dataset(path, text_column="none").train.inputs
    assert isinstance(rows_only, TableRows)
    assert rows_only.names == ("price",)


def test_what_is_neither_is_text_only_where_there_is_nothing_else(tmp_path: Path) -> None:
    names = write(tmp_path / "names.csv", "word,where", (f"w{n}x,{'ab'[n % 2]}" for n in range(40)))
    assert load_dataset(names).kind == "text"
    sizes = (f"w{n}x,{n * n % 7 + n / 9},{'ab'[n % 2]}" for n in range(40))
    assert load_dataset(write(tmp_path / "names.csv", "word,size,where", sizes)).kind == "row"
    numbers = write(tmp_path / "n.csv", "text,label", (f"{n * n % 11},{'ab'[n % 2]}" for n in range(20)))
    assert load_dataset(numbers).kind == "row"  # whatever the column is called …
    assert load_dataset(numbers, text_column="text").kind == "text"  # … unless it is asked for
    codes = write(tmp_path / "c.csv", "one,two,label", (f"w{n}x,v{n}y,{'ab'[n % 2]}" for n in range(40)))
    with pytest.raises(DataError, match="has no column of text, numbers or categories besides 'label'; give text_col"):
        load_dataset(codes)


def test_features_are_standardised_and_one_hot_as_in_training() -> None:
    cells = np.array([["1", "a"], ["3", "b"], ["", "a"], ["odd", ""]], dtype=object)
    rows = TableRows(("x", "kind"), (True, False), cells)
    encoder = ColumnEncoder.fit(rows)
    assert encoder.sizes == {"in_features": 1 + 1 + 3}
    features = encoder.encode(rows).batch(torch.arange(4))
    assert features[:, 0].tolist() == [-1, 1, 0, 0]  # mean 2, standard deviation 1
    assert features[:, 1].tolist() == [0, 0, 1, 1]  # missing
    assert features[:, 2:].sum(1).tolist() == [1, 1, 1, 1]
    again = encoder_from_dict(encoder_to_dict(encoder))
    other = TableRows(("kind", "x"), (False, True), np.array([["c", "1e9"]], dtype=object))
    assert encode_row(again, other) == [10, 0, 0, 0, 0]  # an outlier is drawn in, an unknown category is none
    assert ColumnEncoder.fit(rows, max_categories=1).sizes == {"in_features": 3}


def encode_row(encoder: object, rows: TableRows) -> list[float]:
    return encoder.encode(rows).batch(torch.tensor([0]))[0].tolist()  # type: ignore[attr-defined,no-any-return]


def test_rows_in_two_splits_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    lines = [f"{n * 1.5},{n % 5},{'ab'[n % 2]}" for n in range(40)]
    (folder / "train.csv").write_text("\n".join(["x,z,label", *lines]) + "\n")
    (folder / "test.csv").write_text("\n".join(["z,label,x", "0,a,0.0", "1,b,99"]) + "\n")
    dataset = load_dataset(str(folder))
    assert "1 of 2 test rows also occurs in train." in dataset.notes
    assert dataset.test.inputs.cells[0].tolist() == ["0.0", "0"]  # type: ignore[union-attr]
    assert encode_split(ColumnEncoder.fit(dataset.train.inputs), dataset.test).batch(torch.tensor([0])).shape == (1, 2)


def test_a_file_sorted_by_class_is_judged_by_all_of_it(tmp_path: Path) -> None:
    draw = random.Random(0)
    groups = [(k, row) for k in range(2) for row in range(5_500)]
    rows = [f"{n},{draw.gauss(k, 1):.3f},{'xy'[k]},group{k}" for n, (k, _) in enumerate(groups)]
    dataset = load_dataset(write(tmp_path / "table.csv", "count,width,colour,class", rows))
    assert dataset.classes == ("group0", "group1")
    assert "each row is 1 number ('width') and 1 category ('colour')." in dataset.notes[1]
    assert dataset.notes[2].startswith("Not read: 'count' (")


@pytest.mark.parametrize("header", ["name,,,label", "name,a,a,label"])
def test_columns_of_one_name_or_none_stay_apart(tmp_path: Path, header: str) -> None:
    rows = [f"{'xy'[n % 2]},{n % 7 / 2},{100 + n % 5},{'AB'[n % 2]}" for n in range(60)]
    train = load_dataset(write(tmp_path / "table.csv", header, rows), text_column="none").train
    assert isinstance(train.inputs, TableRows)
    first = header.split(",")[1]
    assert train.inputs.names == ("name", first or "(2)", f"{first} (3)".strip())


def test_codes_are_no_numbers_and_words_among_numbers_are_missing(tmp_path: Path) -> None:
    rows = [f"{n % 3}_{n % 2},{'unknown' if n % 40 == 3 else n * n},{'AB'[n % 2]}" for n in range(120)]
    dataset = load_dataset(write(tmp_path / "table.csv", "code,width,label", rows))
    assert "No text is read: each row is 1 number ('width') and 1 category ('code')." in dataset.notes
    assert any(note.startswith("Missing values: 3 of 'width';") for note in dataset.notes)

"""Tables without texts: which columns are numbers, categories or neither, and how they become features."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from adaptive_labels.lab.data import (
    DataError,
    Dataset,
    TableRows,
    encode,
    encoder_from_dict,
    encoder_to_dict,
    load_dataset,
)
from adaptive_labels.lab.data.encoders.columns import ColumnEncoder


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


def test_a_table_without_texts_is_read_as_rows_and_every_guess_is_said(tmp_path: Path) -> None:
    dataset = load_dataset(str(write_people(tmp_path / "people.csv")))
    assert dataset.kind == "row"
    assert dataset.classes == ("no", "yes")
    rows = dataset.train.inputs
    assert isinstance(rows, TableRows)
    assert rows.names == ("age", "income", "colour", "city")
    assert rows.numeric == (True, True, False, False)
    notes = "\n".join(dataset.notes)
    assert (
        "The label is read from column 'bought' (guessed). Other columns that could be it: 'colour', 'city'." in notes
    )
    assert "each row is 2 numbers ('age', 'income') and 2 categories ('colour', 'city')." in notes
    assert "Left out 3 columns" in notes
    assert "('nr', 'customer', 'country')" in notes
    assert "Missing values: 18 of 'age', 14 of 'income'" in notes
    assert load_dataset(str(tmp_path / "people.csv")).fingerprint == dataset.fingerprint
    moved = tmp_path / "people.csv"
    moved.write_text(moved.read_text().replace("blue", "green"))
    assert load_dataset(str(moved)).fingerprint != dataset.fingerprint


def test_a_text_wins_over_numbers_and_says_so_and_none_reads_the_numbers(tmp_path: Path) -> None:
    path = tmp_path / "reviews.csv"
    draw = random.Random(1)
    lines = [f"{draw.random():.3f},it was {word} for me {n},{word}" for n in range(20) for word in ("good", "bad")]
    path.write_text("\n".join(["price,remark,verdict", *lines]) + "\n")
    texts = load_dataset(str(path))
    assert texts.kind == "text"
    assert any("Not read beside the text: 'price'; --text-column none reads" in note for note in texts.notes)
    rows = load_dataset(str(path), text_column="none").train.inputs
    assert isinstance(rows, TableRows)
    assert rows.names == ("price",)


def test_numbers_under_the_name_of_a_text_are_numbers_unless_that_column_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("\n".join(["text,label", *(f"{n * n % 11},{'ab'[n % 2]}" for n in range(20))]) + "\n")
    rows = load_dataset(str(path))
    assert rows.kind == "row"
    assert any("each row is 1 number ('text')" in note for note in rows.notes)
    assert load_dataset(str(path), text_column="text").kind == "text"


def test_single_words_are_texts_only_where_there_is_nothing_else(tmp_path: Path) -> None:
    names = tmp_path / "names.csv"
    names.write_text("\n".join(["word,where", *(f"w{n}x,{'ab'[n % 2]}" for n in range(40))]) + "\n")
    assert load_dataset(str(names)).kind == "text"
    names.write_text("\n".join(["word,size,where", *(f"w{n}x,{n * n % 7},{'ab'[n % 2]}" for n in range(40))]) + "\n")
    assert load_dataset(str(names)).kind == "row"


def test_without_a_header_the_label_is_at_an_end(tmp_path: Path) -> None:
    path = tmp_path / "iris.csv"
    path.write_text("\n".join(f"{n / 10},{n % 3},{n % 9 / 2},{'Iris-' + 'xyz'[n % 3]}" for n in range(60)) + "\n")
    dataset = load_dataset(str(path))
    assert dataset.classes == ("Iris-x", "Iris-y", "Iris-z")
    assert dataset.kind == "row"


def test_a_measured_number_is_no_label_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["rating,kind", *(f"{n * 1.7},{'ab'[n % 2]}" for n in range(60))]) + "\n")
    assert load_dataset(str(path)).classes == ("a", "b")


def test_a_table_with_nothing_but_labels_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["one,label", *(f"same,{'ab'[n % 2]}" for n in range(30))]) + "\n")
    with pytest.raises(DataError, match="has no column of numbers or categories beside 'label'"):
        load_dataset(str(path), text_column="none")


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
    (folder / "train.csv").write_text("\n".join(["x,y,label", *lines]) + "\n")
    (folder / "test.csv").write_text("\n".join(["y,label,x", "0,a,0.0", "1,b,99"]) + "\n")
    dataset = load_dataset(str(folder))
    assert "1 of 2 test rows also occurs in train." in dataset.notes
    assert dataset.test.inputs.cells[0].tolist() == ["0.0", "0"]  # type: ignore[union-attr]
    assert encode(ColumnEncoder.fit(dataset.train.inputs), dataset.test).batch(torch.tensor([0])).shape == (1, 2)


def _loaded(folder: Path, header: str, rows: list[str], **options: str) -> Dataset:
    (folder / "table.csv").write_text("\n".join([header, *rows]) + "\n")
    return load_dataset(str(folder / "table.csv"), **options)


def test_a_file_sorted_by_class_is_guessed_from_all_of_it(tmp_path: Path) -> None:
    draw = random.Random(0)
    groups = [(k, row) for k in range(2) for row in range(5_500)]
    rows = [f"{n},{draw.gauss(k, 1):.3f},{'xy'[k]},group{k}" for n, (k, _) in enumerate(groups)]
    dataset = _loaded(tmp_path, "count,width,colour,kind_of", rows)
    assert dataset.classes == ("group0", "group1")
    assert "each row is 1 number ('width') and 1 category ('colour')." in " ".join(dataset.notes)
    assert "Left out 1 column with one value, a number of the row, or too many categories ('count')." in dataset.notes


@pytest.mark.parametrize("header", ["name,,,label", "name,a,a,label"])
def test_columns_of_one_name_or_none_stay_apart(tmp_path: Path, header: str) -> None:
    rows = [f"{'xy'[n % 2]},{n % 7 / 2},{100 + n % 5},{'AB'[n % 2]}" for n in range(60)]
    train = _loaded(tmp_path, header, rows, text_column="none").train
    assert isinstance(train.inputs, TableRows)
    first = header.split(",")[1]
    assert train.inputs.names == (first, f"{first} (3)".strip())
    features = encode(ColumnEncoder.fit(train.inputs), train).batch(torch.arange(len(train)))
    assert torch.allclose(features.mean(0), torch.zeros(2), atol=1e-5)


def test_a_code_with_an_underscore_is_no_number(tmp_path: Path) -> None:
    rows = [f"{n % 3}_{n % 2},{n % 7 / 2},{'AB'[n % 2]}" for n in range(60)]
    dataset = _loaded(tmp_path, "code,width,label", rows)
    assert "No text is read: each row is 1 number ('width') and 1 category ('code')." in dataset.notes


def test_words_among_numbers_are_counted_as_missing(tmp_path: Path) -> None:
    rows = [f"{'unknown' if n % 40 == 3 else n * n},{'AB'[n % 2]}" for n in range(120)]
    dataset = _loaded(tmp_path, "width,label", rows)
    assert any(note.startswith("Missing values: 3 of 'width';") for note in dataset.notes)

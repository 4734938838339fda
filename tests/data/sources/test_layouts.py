"""The forms in which data is handed around: parts, names that end in a split, archives, marked lines, Excel, scales."""

from __future__ import annotations

import json
import re
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from adaptive_labels.lab.data import DataError, load_dataset
from adaptive_labels.lab.data.sources.excel import read_sheet

ROWS = [(f"a {'good' if n % 2 else 'bad'} film, number {n}", n % 2) for n in range(60)]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALR_CACHE", str(tmp_path / "cache"))


def write_parquet(path: Path, rows: list[tuple[str, int]], names: list[str] | None = None) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"text": [text for text, _ in rows], "label": [label for _, label in rows]})
    if names:
        info = {"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}, "text": {"_type": "Value"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(info)})
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path)


def write_csv(path: Path, rows: list[tuple[str, int]] = ROWS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["text,label", *(f'"{text}",{label}' for text, label in rows)]) + "\n")
    return path


def test_the_folder_of_hugging_face_is_read_with_all_parts_and_class_names(tmp_path: Path) -> None:
    for number in range(2):
        part = tmp_path / "films" / "data" / f"train-{number:05d}-of-00002.parquet"
        write_parquet(part, ROWS[number::2][:25], ["neg", "pos"])
    write_parquet(tmp_path / "films" / "data" / "validation-00000-of-00001.parquet", ROWS[50:55], ["neg", "pos"])
    write_parquet(tmp_path / "films" / "data" / "test-00000-of-00001.parquet", ROWS[55:], ["neg", "pos"])
    (tmp_path / "films" / "README.md").write_text("---\n---\n")
    dataset = load_dataset(str(tmp_path / "films"))
    assert dataset.classes == ("neg", "pos")
    assert [len(split) for _, split in dataset.splits()] == [50, 5, 5]
    assert dataset.train.sources[49] == "train-*.parquet:50"  # type: ignore[index]
    (tmp_path / "films" / "data" / "train-00001-of-00002.parquet").unlink()
    with pytest.raises(DataError, match="has 1 of the 2 parts of its table 'train'"):
        load_dataset(str(tmp_path / "films"))


def test_names_may_end_in_their_split(tmp_path: Path) -> None:
    write_csv(tmp_path / "data" / "films_train.csv", ROWS[:50])
    write_csv(tmp_path / "data" / "films_test.csv", ROWS[50:])
    dataset = load_dataset(str(tmp_path / "data"))
    assert len(dataset.test) == 10
    write_csv(tmp_path / "data" / "books-train.csv")
    with pytest.raises(DataError, match="more than one train split"):
        load_dataset(str(tmp_path / "data"))


@pytest.mark.parametrize("inside", ["", "films/"])
def test_an_archive_of_tables_is_read_once(tmp_path: Path, inside: str) -> None:
    path = tmp_path / "films.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(write_csv(tmp_path / "a.csv", ROWS[:50]), f"{inside}films_train.csv")
        archive.write(write_csv(tmp_path / "b.csv", ROWS[50:]), f"{inside}films_test.csv")
        archive.writestr("__MACOSX/films/._films_train.csv", b"\0")
    dataset = load_dataset(str(path))
    assert (dataset.name, len(dataset.test)) == ("films", 10)
    (unpacked,) = (tmp_path / "cache" / "unzipped").iterdir()
    before = unpacked.stat().st_mtime_ns
    assert load_dataset(str(path)).fingerprint == dataset.fingerprint
    assert unpacked.stat().st_mtime_ns == before


def test_an_archive_of_images_is_read(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for name in ("cat", "dog"):
            for number in range(6):
                Image.fromarray(draw.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(tmp_path / "one.png")
                archive.write(tmp_path / "one.png", f"photos/{name}/{number}.png")
    assert load_dataset(str(tmp_path / "photos.zip")).classes == ("cat", "dog")


def test_pictures_of_trains_are_a_class(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for name in ("bus", "train", "tram"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(6):
            pixels = draw.integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    assert load_dataset(str(tmp_path / "photos")).classes == ("bus", "train", "tram")


@pytest.mark.parametrize("content", [b"no archive", b""])
def test_an_archive_that_cannot_be_unpacked_is_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "films.zip"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"films\.zip cannot be unpacked"):
        load_dataset(str(path))


def test_names_in_an_archive_stay_inside(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "films.zip", "w") as archive:
        archive.write(write_csv(tmp_path / "a.csv"), "../../../../escaped.csv")
    load_dataset(str(tmp_path / "films.zip"))
    assert [path for path in tmp_path.rglob("escaped.csv") if "unzipped" not in path.parts] == []


@pytest.mark.parametrize(
    "names", [("train.txt", "test.txt"), ("films.train", "films.test"), ("train.ft.txt", "test.ft.txt")]
)
def test_the_marked_lines_of_fasttext_are_read(tmp_path: Path, names: tuple[str, str]) -> None:
    (tmp_path / "data").mkdir()
    lines = [f"__label__{label} {text}" for text, label in ROWS]
    lines[0] = "__label__0 __label__1 two labels"
    (tmp_path / "data" / names[0]).write_text("\n".join(lines[:50]) + "\n")
    (tmp_path / "data" / names[1]).write_text("\n".join(lines[50:]) + "\n")
    dataset = load_dataset(str(tmp_path / "data"))
    assert dataset.classes == ("0", "1")
    assert len(dataset.test) == 10
    assert any("Of 1 line of" in note and "with several labels, the first is read" in note for note in dataset.notes)
    plain = tmp_path / "notes.txt"
    plain.write_text("a text\n")
    with pytest.raises(DataError, match="its lines do not begin with __label__"):
        load_dataset(str(plain))


def test_the_first_sheet_of_an_excel_file_is_read(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["text", "label"])
    for text, label in ROWS:
        book.active.append([text, label])
    book.create_sheet("other")
    book.save(tmp_path / "films.xlsx")
    dataset = load_dataset(str(tmp_path / "films.xlsx"))
    assert dataset.classes == ("0", "1")
    assert any("the first sheet, 'Sheet', is read; 1 other sheet not." in note for note in dataset.notes)
    assert ROWS[3][0] in dataset.train.inputs + dataset.validation.inputs + dataset.test.inputs  # type: ignore[operator]


def with_a_last_row(tmp_path: Path, number: int) -> Path:
    """An Excel file whose last row has this number, after many that are not there."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["text", "label"])
    for text, label in ROWS:
        book.active.append([text, label])
    book.save(tmp_path / "films.xlsx")
    with zipfile.ZipFile(tmp_path / "films.xlsx") as old, zipfile.ZipFile(tmp_path / "huge.xlsx", "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("sheet1.xml"):
                data = re.sub(rb'<dimension ref="[^"]*"', b'<dimension ref="A1:XFD%d"' % number, data)
                last = b'<row r="%d"><c r="A%d"><v>1</v></c><c r="B%d"><v>1</v></c></row></sheetData>'
                data = data.replace(b"</sheetData>", last % (number, number, number))
            new.writestr(name, data)
    return tmp_path / "huge.xlsx"


def test_an_excel_file_with_an_impossible_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has a row after number 1,048,576, the last of a sheet"):
        read_sheet(with_a_last_row(tmp_path, 10**12))


def test_a_small_excel_file_that_claims_to_be_huge_takes_no_more(tmp_path: Path) -> None:
    huge = with_a_last_row(tmp_path, 300_000)
    tracemalloc.start()
    try:
        rows, numbers, _ = read_sheet(huge)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(rows), len(rows[0]), numbers[-1]) == (len(ROWS) + 2, 2, 300_000)
    assert peak < 50e6


def test_excel_without_its_extra_and_older_sheets_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "films.xlsx").write_bytes(b"PK")
    (tmp_path / "films.xls").write_bytes(b"\xd0\xcf")
    monkeypatch.setitem(sys.modules, "openpyxl", None)  # so that importing it fails
    with pytest.raises(DataError, match=r"adaptive-labels\[excel\]"):
        load_dataset(str(tmp_path / "films.xlsx"))
    with pytest.raises(DataError, match=r"save it as \.csv or \.xlsx"):
        load_dataset(str(tmp_path / "films.xls"))


def test_ordered_classes_go_by_their_numbers_or_by_a_list(tmp_path: Path) -> None:
    path = tmp_path / "stars.csv"
    stars = ["10 stars", "2 stars", "1.5 stars"]
    path.write_text("\n".join(["text,label", *(f"text {n} {n},{stars[n % 3]}" for n in range(60))]) + "\n")
    assert load_dataset(str(path)).classes == ("1.5 stars", "10 stars", "2 stars")
    ordered = load_dataset(str(path), ordered=True)
    assert ordered.classes == ("1.5 stars", "2 stars", "10 stars")
    plain = load_dataset(str(path))
    named = [
        {
            str(source): data.classes[k]
            for source, k in zip(data.test.sources or [], data.test.labels.tolist(), strict=True)
        }
        for data in (plain, ordered)
    ]
    assert named[0] == named[1]
    hyphens = tmp_path / "hyphens.csv"
    hyphens.write_text(path.read_text().replace("10 stars", "level-10").replace("2 stars", "level-2"))
    assert load_dataset(str(hyphens), ordered=True).classes == ("1.5 stars", "level-2", "level-10")
    for number, word in enumerate(("high", "low", "medium")):
        path.write_text(path.read_text().replace(stars[number], word))
    with pytest.raises(DataError, match=r"have no numbers to be ordered by; list their names in a file classes\.txt"):
        load_dataset(str(path), ordered=True)
    (tmp_path / "classes.txt").write_text("low\nmedium\nhigh\n")
    assert load_dataset(str(path), ordered=True).classes == ("low", "medium", "high")
    with zipfile.ZipFile(tmp_path / "elsewhere.zip", "w") as archive:
        for file in (path, tmp_path / "classes.txt"):
            archive.write(file, f"data/{file.name}")
    (tmp_path / "classes.txt").unlink()
    assert load_dataset(str(tmp_path / "elsewhere.zip"), ordered=True).classes == ("low", "medium", "high")

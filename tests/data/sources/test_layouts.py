"""The forms in which data is handed around: parts, names that end in a split, marked lines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from adaptive_labels.lab.data import DataError, load_dataset

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


def test_pictures_of_trains_are_a_class(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for name in ("bus", "train", "tram"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(6):
            pixels = draw.integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    assert load_dataset(str(tmp_path / "photos")).classes == ("bus", "train", "tram")


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

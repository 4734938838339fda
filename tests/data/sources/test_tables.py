import csv
import gzip
import io
import json
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings, strategies as st

from adaptive_labels.lab.data import DataError, Dataset, load_dataset
from adaptive_labels.lab.data.frames import read_table

ROWS = [(f"a good film number {i}", "good") for i in range(10)] + [(f"a bad film number {i}", "bad") for i in range(10)]


def write_csv(path: Path, rows, header=("text", "label"), **options) -> Path:
    with path.open("w", newline="", encoding=options.pop("encoding", "utf-8")) as file:
        writer = csv.writer(file, **options)
        if header:
            writer.writerow(header)
        writer.writerows(rows)
    return path


def pairs(dataset: Dataset) -> dict[str, str]:
    found = {}
    for _, split in dataset.splits():
        for text, label in zip(split.inputs, split.labels.tolist(), strict=True):
            found[text] = dataset.classes[label]
    return found


def error_of(path: Path, **options) -> str:
    with pytest.raises(DataError) as caught:
        load_dataset(str(path), **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".tsv.gz", ".jsonl", ".jsonl.gz", ".ndjson", ".parquet"])
def test_every_format_gives_the_same_data(tmp_path, suffix):
    rows = [*ROWS, ('a "quoted", text\twith\nbreaks', "good"), ("ein schöner Film 🎬", "good")]
    path = tmp_path / f"films{suffix}"
    buffer = io.StringIO()
    if suffix == ".parquet":
        columns = {"text": [text for text, _ in rows], "label": [label for _, label in rows]}
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    elif "json" in suffix:
        buffer.writelines(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)
    else:
        csv.writer(buffer, delimiter="\t" if "tsv" in suffix else ",").writerows([("text", "label"), *rows])
    if suffix != ".parquet":
        raw = buffer.getvalue().encode()
        path.write_bytes(gzip.compress(raw) if suffix.endswith(".gz") else raw)
    dataset = load_dataset(str(path))
    assert pairs(dataset) == dict(rows)
    assert dataset.name == path.name
    assert dataset.classes == ("bad", "good")
    assert dataset.notes[0] == "Text is read from column 'text', the label from column 'label'."


cells = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"), min_size=1).filter(str.strip)


@given(texts=st.lists(cells, min_size=8, max_size=12, unique_by=str.strip), suffix=st.sampled_from(["csv", "tsv"]))
@settings(max_examples=25, deadline=None)
def test_whatever_the_csv_module_writes_is_read_back(texts, suffix, tmp_path_factory):
    path = tmp_path_factory.mktemp("csv") / f"any.{suffix}"
    rows = [(text, "even" if i % 2 else "odd") for i, text in enumerate(texts)]
    write_csv(path, rows, delimiter="\t" if suffix == "tsv" else ",", quoting=csv.QUOTE_ALL)
    dataset = load_dataset(str(path), text_column="text")  # named, since cells that are all numbers are read as such
    assert pairs(dataset) == {text.strip(): label for text, label in rows}


def test_lines_and_sources_are_physical_even_after_fields_of_several_lines(tmp_path):
    path = tmp_path / "f.csv"
    rows = [
        ("one\nwith a break", "a"),
        ("two", "b"),
        ("three\nwith\ntwo", "a"),
        ("four", "b"),
        ("five", "a"),
        ("six", "b"),
    ]
    write_csv(path, rows, lineterminator="\n")
    dataset = load_dataset(str(path))
    sources = {}
    for _, split in dataset.splits():
        sources.update(zip(split.inputs, split.sources, strict=True))
    assert [sources[text] for text, _ in rows] == ["f.csv:2", "f.csv:4", "f.csv:5", "f.csv:8", "f.csv:9", "f.csv:10"]


def test_ragged_rows_are_named_with_their_physical_line(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text('text,label\n"two\nlines",a\n\nx,b\nthree,fields,here\ny,a\n')
    assert error_of(path) == f"{path} line 6 has 3 fields where line 1 has 2."


def test_a_quote_that_is_never_closed_is_named_with_its_line(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text('text,label\n"fine, really",a\n"open,b\nx,a\n')
    assert error_of(path) == f"{path} line 3 cannot be parsed: a quoted field that is never closed."


def test_other_encodings_than_utf_8_are_named_with_their_line(tmp_path):
    rows = [*ROWS, ("très “bien”", "good")]
    assert pairs(load_dataset(str(write_csv(tmp_path / "f.csv", rows, encoding="utf-8-sig")))) == dict(rows)
    for encoding, line in (("cp1252", 22), ("utf-16", 1)):
        path = write_csv(tmp_path / "f.csv", rows, encoding=encoding)
        assert error_of(path) == f"{path} line {line} is not UTF-8; save the file as UTF-8 (in Excel: CSV UTF-8)."


@pytest.mark.parametrize(
    ("first", "names"),
    [
        ("stadt,note,land", ["stadt", "note", "land"]),
        ("3,viel Spaß,land", ["1", "2", "3"]),  # a number is no name …
        ("0,1,label", ["0", "1", "label"]),  # … unless there is a usual one beside it, as pandas writes arrays
        (",a,a", ["(1)", "a", "a (3)"]),
    ],
)
def test_the_first_line_names_the_columns_unless_a_number_is_in_it(tmp_path, first, names):
    (tmp_path / "f.csv").write_text(f"{first}\nWien,x,Austria\n")
    table = read_table(tmp_path / "f.csv")
    assert (table.names, table.lines.tolist()) == (names, [2] if table.has_header else [1, 2])
    assert table.where(0) == f"{tmp_path / 'f.csv'} line {2 if table.has_header else 1}"


@pytest.mark.parametrize(("classes", "has_header"), [(("good", "bad"), False), (("a", "b"), True)])
def test_the_first_line_is_a_row_where_its_column_has_its_value_again(tmp_path, classes, has_header):
    rows = [f"sentence {i},{classes[i % 2]}" for i in range(8)]
    (tmp_path / "f.csv").write_text("\n".join(["a sentence,good", *rows]))
    table = read_table(tmp_path / "f.csv")
    assert (table.has_header, len(table)) == (has_header, 8 + (not has_header))


def test_columns_are_given_by_name_or_number(tmp_path):
    rows = [(f"t{i}", f"u{i}", "ab"[i % 2], "cd"[i // 10]) for i in range(20)]
    named = str(write_csv(tmp_path / "f.csv", rows, header=("text", "more", "label", "other")))
    dataset = load_dataset(named, text_column="more", label_column="other")
    assert pairs(dataset)["u3"] == "c"
    assert dataset.notes[0] == "Text is read from column 'more', the label from column 'other'."
    assert pairs(load_dataset(named, text_column="text, more"))["t3 u3"] == "b"
    numbered = str(write_csv(tmp_path / "g.csv", [(i, *row) for i, row in enumerate(rows)], header=None))
    assert pairs(load_dataset(numbered, text_column="3", label_column="5"))["u3"] == "c"


def test_a_missing_column_lists_those_there_are(tmp_path):
    path = write_csv(tmp_path / "f.csv", ROWS)
    assert error_of(path, label_column="topic") == (
        f"{path} has no column 'topic' (label_column); it has the columns 'text', 'label'."
    )
    bare = write_csv(tmp_path / "g.csv", [(1, *row) for row in ROWS], header=None)
    assert error_of(bare, text_column="4") == (
        f"{bare} has no column '4' (text_column); it has no header line and 3 columns, numbered from 1."
    )
    assert "cannot be both" in error_of(path, text_column="label", label_column="label")
    unclear = write_csv(tmp_path / "h.csv", [(f"x{i}", f"y{i}", f"z{i}") for i in range(9)], header=("p", "q", "r"))
    assert error_of(unclear) == (
        f"No column of {unclear} repeats its values as classes do; give label_column "
        "(it has the columns 'p', 'q', 'r')."
    )


def test_no_header_line_several_text_columns_and_classes_txt(tmp_path):
    """The form of the news and review benchmarks: label from 1, title, description; the title empty in train."""
    write_csv(tmp_path / "train.csv", [(1 + i % 3, "", f"the body of text {i}") for i in range(30)], header=None)
    write_csv(tmp_path / "test.csv", [(2, "A title", "and its body"), (3, "Another", "one")], header=None)
    (tmp_path / "classes.txt").write_text("World\nSports\nSci/Tech\n")
    dataset = load_dataset(str(tmp_path))
    assert dataset.classes == ("World", "Sports", "Sci/Tech")
    assert dataset.test.inputs == ["A title and its body", "Another one"]
    assert dataset.test.labels.tolist() == [1, 2]
    assert pairs(dataset)["the body of text 4"] == "Sports"
    assert dataset.notes[:2] == (
        "train.csv has no header line: text is read from column '2' and '3', the label from column '1', "
        "counted from 1.",
        "Class names are those in classes.txt, for labels from 1.",
    )


@pytest.mark.parametrize(
    ("labels", "names", "classes"),
    [
        ((0, 1, 2), "a b c", ("a", "b", "c")),
        ((1, 2, 3), "a b", ("1", "2", "3")),
        ((1, 2), "a b c", ("1", "2")),
        ((2, 10, 1), "", ("1", "2", "10")),
    ],
)
def test_classes_txt_is_used_only_if_it_fits(tmp_path, labels, names, classes):
    write_csv(tmp_path / "train.csv", [(f"t {i}", labels[i % len(labels)]) for i in range(18)])
    (tmp_path / "classes.txt").write_text("\n".join(names.split()))
    dataset = load_dataset(str(tmp_path))
    assert dataset.classes == classes
    assert any("classes.txt was not used" in note for note in dataset.notes) == (classes[0].isdecimal())


def test_whole_numbers_written_as_floats_are_one_class_with_the_integers(tmp_path):
    write_csv(tmp_path / "train.csv", [(f"t {i}", f"{1 + i % 5}.0") for i in range(20)], header=("text", "stars"))
    write_csv(tmp_path / "test.csv", [("good", "5")], header=("text", "stars"))
    dataset = load_dataset(str(tmp_path))
    assert dataset.classes == ("1", "2", "3", "4", "5")
    assert dataset.test.labels.tolist() == [4]


@pytest.mark.parametrize("validation", ["val", "valid", "validation", "dev", "Dev"])
def test_split_files_and_their_names(tmp_path, validation):
    write_csv(tmp_path / "train.csv", ROWS)
    write_csv(tmp_path / f"{validation}.tsv", [("held out", "bad")], delimiter="\t")
    (tmp_path / "test.jsonl").write_text('{"label": "good", "text": "tested"}\n')
    (tmp_path / "LICENSE").write_text("words")
    (tmp_path / "categories.json").write_text("[]")
    dataset = load_dataset(str(tmp_path))
    assert dataset.train.inputs == [text for text, _ in ROWS]
    assert dataset.validation.inputs == ["held out"]
    assert dataset.test.inputs == ["tested"]
    assert dataset.notes == ("Text is read from column 'text', the label from column 'label'.",)


def test_names_may_end_in_their_split(tmp_path: Path) -> None:
    write_csv(tmp_path / "films_train.csv", ROWS)
    write_csv(tmp_path / "films_test.csv", ROWS[5:15])
    assert len(load_dataset(str(tmp_path)).test) == 10
    write_csv(tmp_path / "books-train.csv", ROWS)
    assert "more than one table of its train split (books-train.csv, films_train.csv)" in error_of(tmp_path)


def test_empty_texts_are_counted_and_left_out(tmp_path):
    path = write_csv(tmp_path / "f.csv", [*ROWS, ("  ", "good"), ("", "bad")])
    dataset = load_dataset(str(path))
    assert len(pairs(dataset)) == len(ROWS)
    assert "Left out 2 empty texts of f.csv." in dataset.notes


def test_a_label_that_train_never_saw_is_named_with_its_line(tmp_path):
    write_csv(tmp_path / "train.csv", ROWS)
    test = write_csv(tmp_path / "test.csv", [("x", "good"), ("y", "so-so"), ("z", "so-so")])
    assert error_of(tmp_path) == f"The label 'so-so' at {test} line 3 (2 in the file) never occurs in train.csv."


def test_an_empty_label_is_named_with_its_line(tmp_path):
    path = write_csv(tmp_path / "f.csv", [*ROWS, ("no label", " ")])
    hint = "--drop-unlabelled leaves such rows out."
    assert error_of(path) == f"The label column 'label' is empty at {path} line 22; {hint}"
    write_csv(path, [*ROWS, ("no label", " "), ("none", "")])
    assert error_of(path) == f"The label column 'label' is empty at {path} line 22 and 1 other place; {hint}"
    dataset = load_dataset(str(path), drop_unlabelled=True)
    assert pairs(dataset) == dict(ROWS)
    assert "Left out 2 rows of f.csv without a label." in dataset.notes


def test_rare_classes_are_left_out_on_request(tmp_path):
    path = write_csv(tmp_path / "f.csv", [*ROWS, ("alone", "rare"), ("two", "both"), ("three", "both")])
    assert "--min-per-class 3 leaves rarer classes out." in error_of(path)
    dataset = load_dataset(str(path), min_per_class=3)
    assert pairs(dataset) == dict(ROWS)
    assert dataset.classes == load_dataset(str(write_csv(tmp_path / "g.csv", ROWS))).classes
    note = "Left out 2 classes with fewer than 3 training examples ('both', 'rare'): 3 texts in all."
    assert note in dataset.notes
    assert dataset.fingerprint == load_dataset(str(tmp_path / "g.csv"), min_per_class=3).fingerprint


def test_rare_classes_leave_the_test_split_too(tmp_path):
    write_csv(tmp_path / "train.csv", [*ROWS, ("alone", "rare"), ("two", "rare")])
    write_csv(tmp_path / "test.csv", [("x", "good"), ("y", "rare")])
    dataset = load_dataset(str(tmp_path), min_per_class=5)
    assert [dataset.classes[label] for label in dataset.test.labels] == ["good"]
    assert error_of(tmp_path, min_per_class=11).startswith("Without classes with fewer than 11 training examples (min")


def test_labels_that_differ_in_case_or_spaces_are_pointed_out(tmp_path):
    odd = [(f"odd {i}", label) for i in range(3) for label in ("Good", "g ood")]
    dataset = load_dataset(str(write_csv(tmp_path / "f.csv", [*ROWS, *odd])))
    (note,) = [note for note in dataset.notes if "case or spaces" in note]
    assert note.endswith("Are they the same?")
    assert all(name in note for name in ("'good'", "'Good'", "'g ood'"))


def test_bad_tables_each_with_a_sentence(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text("text,label\n")
    assert error_of(path) == f"{path} has a header line and no rows."
    path.write_text(" \n")
    assert error_of(path) == f"{path} is empty."
    path.write_text("text\nx\ny\n")
    assert error_of(path) == (
        f"{path} has one column only (it begins with 'text'); a text and a label column are needed, separated by "
        "commas (in .tsv by tabs)."
    )
    path.write_bytes(b"text,label\nx,\0\n")
    assert error_of(path) == f"{path} holds NUL characters at line 2: it is no text file."
    write_csv(path, [(f"t{i}", "same") for i in range(5)])
    assert error_of(path) == "f.csv has one class only ('same'); a classifier needs at least two."
    write_csv(path, [*ROWS, ("alone", "rare")])
    assert error_of(path).startswith("The class 'rare' has one example only (f.csv:22);")
    (tmp_path / "f.docx").write_bytes(b"x")
    assert "is no table that can be read; its name must end in .csv, .tsv" in error_of(tmp_path / "f.docx")


def test_json_values_that_are_no_strings(tmp_path):
    path = tmp_path / "f.jsonl"
    path.write_text(
        "".join(json.dumps({"text": f"t {i}\u2028", "label": bool(i % 2)}, ensure_ascii=False) + "\n" for i in range(8))
    )
    assert load_dataset(str(path)).classes == ("false", "true")


def test_bad_folders_each_with_a_sentence(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    assert error_of(folder) == f"The folder {folder} is empty."
    (folder / "readme.txt").write_text("x")
    assert "holds neither a table (.csv, .tsv" in error_of(folder)
    write_csv(folder / "a.csv", ROWS)
    assert load_dataset(str(folder)).name == "data"  # the only table there is
    write_csv(folder / "b.csv", ROWS)
    assert error_of(folder) == f"{folder} has no table named train.*, only a.csv, b.csv."
    write_csv(folder / "train.csv", ROWS)
    assert "Not used: a.csv, b.csv." in load_dataset(str(folder)).notes
    write_csv(folder / "train.tsv", ROWS, delimiter="\t")
    assert error_of(folder) == (
        f"{folder} has more than one table of its train split (train.csv, train.tsv); keep one of them, or join them."
    )


def test_a_test_file_without_the_label_column(tmp_path):
    write_csv(tmp_path / "train.csv", ROWS)
    test = write_csv(tmp_path / "test.csv", [("x", 1)], header=("text", "id"))
    assert error_of(tmp_path) == f"{test} has no column 'label'; it has the columns 'text', 'id'."


def test_a_path_is_looked_for_in_the_data_folder(tmp_path):
    write_csv(tmp_path / "f.csv", ROWS)
    assert load_dataset("f.csv", data_dir=tmp_path).name == "f.csv"
    assert error_of(Path("g.csv"), data_dir=tmp_path).startswith(
        f"'g.csv' is no data set's name, and no such path exists here or in {tmp_path};"
    )
    assert error_of(Path("~no-such-user/f.csv")).startswith("'~no-such-user/f.csv' is no data set's name")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "f.parquet").write_bytes(b"x")
    assert 'pip install "adaptive-labels[parquet]"' in error_of(tmp_path / "f.parquet")


FILMS = [(f"a {'good' if n % 2 else 'bad'} film, number {n}", n % 2) for n in range(60)]


def write_parquet(path: Path, rows: list[tuple[str, int]], names: list[str] | None = None) -> None:
    table = pyarrow.table({"text": [text for text, _ in rows], "label": [label for _, label in rows]})
    if names:
        info = {"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}, "text": {"_type": "Value"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(info)})
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(table, path)


def test_the_folder_of_hugging_face_is_read_with_its_class_names(tmp_path: Path) -> None:
    for split, rows in {"train": FILMS[:50], "validation": FILMS[50:55], "test": FILMS[55:]}.items():
        write_parquet(tmp_path / "films" / "data" / f"{split}-00000-of-00001.parquet", rows, ["neg", "pos"])
    (tmp_path / "films" / "README.md").write_text("---\n---\n")
    dataset = load_dataset(str(tmp_path / "films"))
    assert dataset.classes == ("neg", "pos")
    assert [len(split) for _, split in dataset.splits()] == [50, 5, 5]
    assert dataset.train.sources[49] == "train-00000-of-00001.parquet:50"  # type: ignore[index]


TREC = """DESC:manner How did serfdom develop ?
ENTY:cremat What films featured the character : Popeye ?
NUM:date When was Ozzy born ?
DESC:def What is a café ?

ENTY:other  What is Hitler 's dog
NUM:date When did it rain ?
"""


def test_trecs_lines_of_coarse_and_fine_labels(tmp_path):
    train, test = tmp_path / "train_5500.label", tmp_path / "TREC_10.label"
    train.write_bytes((TREC + TREC.replace(" ?", " really ?")).encode("latin-1"))
    test.write_bytes(b"NUM:date When is noon ?\nENTY:cremat What film is this ?\n")
    dataset = load_dataset(str(tmp_path))
    assert dataset.classes == ("DESC", "ENTY", "NUM")
    assert dataset.test.inputs == ["When is noon ?", "What film is this ?"]
    assert dataset.test.labels.tolist() == [2, 1]
    assert list(dataset.test.sources) == ["TREC_10.label:1", "TREC_10.label:2"]
    assert {"What films featured the character : Popeye ?", "What is a café ?", "What is Hitler 's dog"} <= {
        text for _, split in dataset.splits() for text in split.inputs
    }
    fine = load_dataset(str(tmp_path), label_column="fine")
    assert fine.classes == ("DESC:def", "DESC:manner", "ENTY:cremat", "ENTY:other", "NUM:date")
    assert fine.test.labels.tolist() == [4, 2]
    train.write_bytes(b"What is this ?\n")
    assert error_of(tmp_path) == (
        f"{train} line 1 does not begin with a coarse and a fine label, as in 'NUM:dist How far is it ?'."
    )

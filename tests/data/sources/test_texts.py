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
from adaptive_labels.lab.data.sources.tables import looks_like_header
from adaptive_labels.lab.data.sources.texts import read_texts_only

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
    assert dataset.notes[0] == "Text is read from column 'text', the label from column 'label' (guessed)."


cells = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"), min_size=1).filter(str.strip)


@given(texts=st.lists(cells, min_size=8, max_size=12, unique_by=str.strip), delimiter=st.sampled_from(",;\t|"))
@settings(max_examples=60, deadline=None)
def test_whatever_the_csv_module_writes_is_read_back(texts, delimiter, tmp_path_factory):
    path = tmp_path_factory.mktemp("csv") / "any.csv"
    rows = [(text, "even" if i % 2 else "odd") for i, text in enumerate(texts)]
    write_csv(path, rows, delimiter=delimiter, quoting=csv.QUOTE_ALL)
    dataset = load_dataset(str(path), text_column="text")  # named, since cells that are all numbers are read as such
    assert pairs(dataset) == {text.strip(): label for text, label in rows}


def test_lines_and_sources_are_physical_even_after_fields_of_several_lines(tmp_path):
    path = tmp_path / "f.csv"
    rows = [
        ("one\nwith a break", "a"),
        ("two", "b"),
        ("three\r\nwith\ntwo", "a"),
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
    path.write_text("text,label\nx,a\nalone\n")
    assert error_of(path) == f"{path} line 3 has 1 field where line 1 has 2."


def test_a_quote_that_is_never_closed_is_named_with_its_line(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text('text,label\n"fine, really",a\n"open,b\nx,a\n')
    assert error_of(path) == f"{path} line 3 cannot be parsed: a quoted field that is never closed."


def test_quotes_escaped_with_backslashes_and_quotes_that_are_none(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text("text,label\n" + '"say \\"yes\\", he said",a\n"say \\"no\\", I said",b\n' * 3)
    dataset = load_dataset(str(path))
    assert set(pairs(dataset)) == {'say "yes", he said', 'say "no", I said'}
    assert any("escaped with a backslash" in note for note in dataset.notes)
    tsv = tmp_path / "g.tsv"
    tsv.write_text("text\tlabel\n" + '"Yes" he said\ta\n"No\tb\n' * 3)
    dataset = load_dataset(str(tsv))
    assert set(pairs(dataset)) == {'"Yes" he said', '"No'}
    assert any("ordinary characters" in note for note in dataset.notes)


def test_a_field_longer_than_the_csv_modules_limit(tmp_path):
    before = csv.field_size_limit()
    path = write_csv(tmp_path / "f.csv", [*ROWS, ("long " * 50_000, "good")])
    assert max(map(len, pairs(load_dataset(str(path))))) == 249_999
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(
    ("encoding", "note"),
    [
        ("utf-8", None),
        ("utf-8-sig", None),
        ("utf-16", None),
        ("cp1252", "f.csv is not UTF-8 and was read as Windows-1252."),
    ],
)
def test_encodings(tmp_path, encoding, note):
    path = write_csv(tmp_path / "f.csv", [*ROWS, ("très “bien”", "good")], encoding=encoding)
    dataset = load_dataset(str(path))
    assert pairs(dataset)["très “bien”"] == "good"
    assert [n for n in dataset.notes if "read as" in n] == ([note] if note else [])


def test_latin_1_is_the_last_resort(tmp_path):
    path = tmp_path / "f.csv"
    path.write_bytes(b"text,label\n" + b"caf\xe9 \x81,a\nno,b\n" * 3)
    dataset = load_dataset(str(path))
    assert "café \x81" in pairs(dataset)
    assert "f.csv is neither UTF-8 nor Windows-1252 and was read as Latin-1." in dataset.notes


@pytest.mark.parametrize(
    ("header", "text", "label"),
    [
        ("id,Sentence,Category", ("Sentence",), "Category"),
        ("category,review,stars", ("review",), "category"),
        ("Class Index,Title,Description", ("Title", "Description"), "Class Index"),
        ("star_rating,review_id,review_text", ("review_text",), "star_rating"),
        ("text,kind,other", ("text",), "kind"),
    ],
)
def test_columns_are_guessed_by_name(tmp_path, header, text, label):
    names = header.split(",")
    rows = []
    for i in range(20):
        values = {name: f"{name} value {i}" for name in names}
        values[label] = "ab"[i % 2]
        rows.append([values[name] for name in names])
    dataset = load_dataset(str(write_csv(tmp_path / "f.csv", rows, header=names)))
    assert dataset.classes == ("a", "b")
    assert " ".join(f"{name} value 3" for name in text) in pairs(dataset)
    named = " and ".join(repr(name) for name in text)
    assert dataset.notes[0] == f"Text is read from column {named}, the label from column '{label}' (guessed)."


@pytest.mark.parametrize(
    ("lines", "has_header"),
    [
        ("Wien,Austria Graz,Austria Bonn,Germany Köln,Germany", False),
        ("stadt,land Wien,Austria Graz,Austria Bonn,Germany Köln,Germany", True),
        ("Why?,question Go,command How?,question Stop,command", False),
        ("3,4 Wien,1 Graz,1 Bonn,2 Köln,2 Linz,4", False),
        ("text,label text,a label,b text2,a label2,b", True),
        (",text,label 0,Wien,a 1,Graz,b 2,Bonn,a 3,Linz,b", True),
        ("0,1,2,label 0,7,0,a 5,1,0,b 0,1,3,a", True),  # as pandas names columns without names
        ("1,2,quality 5,1,price 3,2,quality", False),  # "quality" comes again: it is a label
        ("3,score 4,film 3,play", False),
    ],
)
def test_a_header_line_is_told_from_a_row(lines, has_header):
    rows = [line.split(",") for line in lines.split()]
    assert looks_like_header(rows[0], rows[1:]) == has_header


def test_columns_are_guessed_by_content(tmp_path):
    rows = [(i, f"some words, number {i}", ["rot", "blau", "grün"][i % 3], "x") for i in range(30)]
    dataset = load_dataset(str(write_csv(tmp_path / "f.csv", rows, header=("nr", "inhalt", "farbe", "gleich"))))
    assert dataset.classes == ("blau", "grün", "rot")
    assert pairs(dataset)["some words, number 4"] == "blau"


def test_a_number_is_not_guessed_to_be_the_text(tmp_path):
    people = [(10**8 + 7 * i, f"{'aeiou'[i % 5]}{chr(97 + i % 26)}{chr(97 + i % 19)}", "mf"[i % 2]) for i in range(300)]
    path = write_csv(tmp_path / "f.csv", people, header=("id", "firstname", "gender"))
    assert load_dataset(str(path)).notes[0].startswith("Text is read from column 'firstname', the label from")


def test_columns_are_given_by_name_or_number(tmp_path):
    rows = [(f"t{i}", f"u{i}", "ab"[i % 2], "cd"[i // 10]) for i in range(20)]
    named = str(write_csv(tmp_path / "f.csv", rows, header=("text", "more", "label", "other")))
    dataset = load_dataset(named, text_column="more", label_column="other")
    assert pairs(dataset)["u3"] == "c"
    assert dataset.notes[0] == "Text is read from column 'more', the label from column 'other'."
    assert pairs(load_dataset(named, text_column="text, more"))["t3 u3"] == "b"
    numbered = str(write_csv(tmp_path / "g.csv", rows, header=None))
    assert pairs(load_dataset(numbered, text_column="2", label_column="4"))["u3"] == "c"
    assert "(label guessed)" in load_dataset(named, text_column="more").notes[0]


def test_a_missing_column_lists_those_there_are(tmp_path):
    path = write_csv(tmp_path / "f.csv", ROWS)
    assert error_of(path, label_column="topic") == (
        f"{path} has no column 'topic' (label_column); it has the columns 'text', 'label'."
    )
    bare = write_csv(tmp_path / "g.csv", ROWS, header=None)
    assert error_of(bare, text_column="3") == (
        f"{bare} has no column '3' (text_column); it has no header line and 2 columns, numbered from 1."
    )
    assert "cannot be both" in error_of(path, text_column="label", label_column="label")
    unclear = write_csv(tmp_path / "h.csv", [(f"x{i}", f"y{i}", f"z{i}") for i in range(9)], header=("p", "q", "r"))
    assert error_of(unclear) == (
        f"The label column of {unclear} cannot be guessed; give label_column (it has the columns 'p', 'q', 'r')."
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
        "counted from 1 (guessed).",
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
    assert dataset.notes == ("Text is read from column 'text', the label from column 'label' (guessed).",)


def test_the_order_of_the_rows_does_not_matter(tmp_path):
    one = load_dataset(str(write_csv(tmp_path / "f.csv", ROWS)))
    other = load_dataset(str(write_csv(tmp_path / "g.csv", ROWS[::-1])))
    assert one.fingerprint == other.fingerprint


def test_a_test_file_without_the_header_that_train_has(tmp_path):
    write_csv(tmp_path / "train.csv", ROWS)
    write_csv(tmp_path / "test.csv", [("a fine film indeed", "good"), ("a fine film", "good")], header=None)
    assert load_dataset(str(tmp_path)).test.inputs == ["a fine film indeed", "a fine film"]


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


def test_a_table_without_any_label_says_so(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "a b", "label": null}\n{"text": "c d", "label": null}\n')
    with pytest.raises(DataError, match=r"No row of .*t\.jsonl has a label \(column 'label'\)\.$"):
        load_dataset(str(path), drop_unlabelled=True)


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
    assert any("('rare'): 3 texts in all." in note for note in dataset.notes)


@pytest.mark.parametrize(("least", "split"), [(11, "train"), (5, "test")])
def test_nothing_left_without_the_rare_classes_is_said(tmp_path, least, split):
    write_csv(tmp_path / "train.csv", [*ROWS, ("alone", "rare"), ("two", "rare")])
    write_csv(tmp_path / "test.csv", [("y", "rare")])
    assert error_of(tmp_path, min_per_class=least) == (
        f"Without classes with fewer than {least} training examples (min_per_class), no text in the {split} split of "
        f"{tmp_path.name} is left."
    )


def test_the_only_column_is_the_text_whatever_its_name(tmp_path):
    path = tmp_path / "f.jsonl"
    path.write_text('{"label": "how far is it"}\n{"label": "who was it"}\n')
    assert read_texts_only(path) == ["how far is it", "who was it"]


def test_labels_that_differ_in_case_or_spaces_are_pointed_out(tmp_path):
    odd = [(f"odd {i}", label) for i in range(3) for label in ("Good", "g ood")]
    dataset = load_dataset(str(write_csv(tmp_path / "f.csv", [*ROWS, *odd])))
    (note,) = [note for note in dataset.notes if "case or spaces" in note]
    assert note.endswith("Are they the same?")
    assert all(name in note for name in ("'good'", "'Good'", "'g ood'"))


def test_other_candidates_for_the_label_are_listed(tmp_path):
    rows = [(f"text {i}", "ab"[i % 2], "xyz"[i % 3]) for i in range(30)]
    guessed = load_dataset(str(write_csv(tmp_path / "f.csv", rows, header=("text", "label", "shop"))))
    assert any("Other columns that could be the label: 'shop'." in note for note in guessed.notes)
    given = load_dataset(str(tmp_path / "f.csv"), label_column="label")
    assert not any("could be the label" in note for note in given.notes)


def test_bad_tables_each_with_a_sentence(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text("text,label\n")
    assert error_of(path) == f"{path} has a header line and no rows."
    path.write_text(" \n")
    assert error_of(path) == f"{path} is empty."
    path.write_text("text\nx\ny\n")
    assert error_of(path) == f"{path} has one column only ('text'); a text and a label column are needed."
    path.write_bytes(b"text,label\nx,\0\n")
    assert error_of(path) == f"{path} holds NUL characters at line 2: it is no text file."
    write_csv(path, [(f"t{i}", "same") for i in range(5)])
    assert error_of(path) == "f.csv has one class only ('same'); a classifier needs at least two."
    write_csv(path, [*ROWS, ("alone", "rare")])
    assert error_of(path).startswith("The class 'rare' has one example only (f.csv:22);")
    write_csv(path, [("", "a"), (" ", "b")])
    assert error_of(path) == f"All texts in {path} are empty (column 'text')."
    (tmp_path / "f.csv.gz").write_bytes(b"not gzip")
    assert "cannot be read" in error_of(tmp_path / "f.csv.gz")
    (tmp_path / "f.parquet").write_bytes(b"not parquet")
    assert "is no readable Parquet file" in error_of(tmp_path / "f.parquet")
    (tmp_path / "f.docx").write_bytes(b"x")
    assert "is no table that can be read; its name must end in .csv, .tsv" in error_of(tmp_path / "f.docx")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "x", "label"', "line 3 is not valid JSON: Expecting ':' delimiter at column 22."),
        ("[1, 2]", "line 3 is not a JSON object but a list."),
        ('{"text": "x"}', "line 3; --drop-unlabelled leaves such rows out."),
        ('{"text": "x", "label": ["a", "b"]}', "line 3 holds a list, where a text or a number is needed."),
    ],
)
def test_bad_json_lines(tmp_path, line, message):
    path = tmp_path / "f.jsonl"
    path.write_text('{"text": "x", "label": 1}\n{"text": "y", "label": 2}\n' + line + "\n")
    assert error_of(path).endswith(f"{path} {message}")


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
    assert error_of(folder) == f"{folder} has more than one train split (train.csv, train.tsv); keep one of them."


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


def test_the_home_of_a_user_who_is_not_there_is_no_path(tmp_path):
    assert error_of(Path("~no-such-user/f.csv")).startswith("'~no-such-user/f.csv' is no data set's name")
    with pytest.raises(DataError, match=r"The data set cifar10 is neither .* in ~no-such-user/data;"):
        load_dataset("cifar10", data_dir="~no-such-user/data")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "f.parquet").write_bytes(b"x")
    assert 'pip install "adaptive-labels[parquet]"' in error_of(tmp_path / "f.parquet")

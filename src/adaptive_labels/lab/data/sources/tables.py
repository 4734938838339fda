"""A user's own table, or a folder with train.*, perhaps val.* and test.*: texts, or numbers and categories."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from adaptive_labels.lab.data.columns import (
    FeatureColumns,
    columns_of,
    feature_columns,
    features_note,
    find_label,
    find_texts,
)
from adaptive_labels.lab.data.dataset import DataError, Examples, Kind, SplitName
from adaptive_labels.lab.data.frames import Table, is_table, normalise_name, read_table
from adaptive_labels.lab.data.rows import TableRows, to_number
from adaptive_labels.lab.data.sources import register_reader
from adaptive_labels.lab.data.split_files import find_files, tables_of
from adaptive_labels.lab.data.splits import RawDataset
from adaptive_labels.lab.data.stored_texts import LineSources
from adaptive_labels.lab.files import read_text
from adaptive_labels.lab.words import listed, plural

_WHOLE_NUMBER = re.compile(r"-?\d+(\.0+)?")
NO_TEXT = "none"


@dataclass(frozen=True)
class _Rows:
    """What is read of a table's rows, empty ones left out, with their labels, as read, and the table's row of each."""

    table: Table
    inputs: list[str] | TableRows
    labels: list[str]
    rows: list[int]
    unlabelled: int  # rows that were left out because they have no label


def _can_read(path: Path) -> bool:
    return is_table(path) if path.is_file() else bool(tables_of(path))


@register_reader("table", _can_read)
def read_tables(
    path: Path, *, text_column: str | None = None, label_column: str | None = None, drop_unlabelled: bool = False
) -> RawDataset:
    """Read a table, or a folder of tables named by their split: texts, or numbers and categories where there are none.

    A ``text_column`` of none reads numbers and categories although there is a text.
    """
    notes: list[str] = []
    files: Mapping[SplitName, Path] = {"train": path} if path.is_file() else find_files(path, notes)
    splits, text_columns = _read_splits(files, text_column, label_column, notes, drop_unlabelled)
    if all(_WHOLE_NUMBER.fullmatch(label) for rows in splits.values() for label in set(rows.labels)):
        for rows in splits.values():
            rows.labels[:] = [label.partition(".")[0] for label in rows.labels]  # 4.0 is written as 4
    keys = _in_order(set(splits["train"].labels))
    class_names = _class_names(keys, files["train"].parent / "classes.txt", notes)
    examples = {name: _to_examples(rows, keys, files["train"]) for name, rows in splits.items()}
    kind: Kind = "row" if isinstance(splits["train"].inputs, TableRows) else "text"
    return RawDataset(path.resolve().name, kind, class_names, examples, notes, text_columns=text_columns)


def read_texts(path: Path, text_column: str | None = None, trained_on: Sequence[str] = ()) -> list[str]:
    """The texts of a table, one per row, empty ones included; it needs no label column.

    They are in the given columns; else in those that training read, if they are there; else in those that read as text.
    """
    table = read_table(path, known_names=[*_given_names(text_column), *trained_on])
    if text_column is not None:
        return _joined(table, _given_texts(table, text_column))
    if trained_on and set(trained_on) <= set(table.names):
        return _joined(table, trained_on)
    names = tuple(table.names) if len(table.names) == 1 else find_texts(table, None)
    if not names:
        raise DataError(f"No column of {path} reads as text; give text_column (it has {columns_of(table)}).")
    return _joined(table, names)


def read_rows(path: Path, names: Sequence[str], numeric: Sequence[bool]) -> tuple[TableRows, list[str]]:
    """The rows of a table with the columns of these names, and where each is; it needs no label column.

    Of a table without a header that has these columns and no others, they are read in their order.
    """
    table = read_table(path, known_names=names)
    in_order = not table.has_header and len(table.names) == len(names)
    columns = table.names if in_order else [_find(table, name) for name in names]
    return TableRows.of(names, numeric, map(table.texts, columns)), [f"{path.name}:{line}" for line in table.lines]


def _read_splits(
    files: Mapping[SplitName, Path],
    text_column: str | None,
    label_column: str | None,
    notes: list[str],
    drop_unlabelled: bool,
) -> tuple[dict[SplitName, _Rows], Sequence[str]]:
    """What is read of each split, and the names of the columns of text."""
    train = read_table(files["train"], known_names=[*_given_names(text_column), *_given_names(label_column)])
    if len(train.names) < 2:
        raise DataError(
            f"{train.path} has one column only ({train.names[0]!r}); a text and a label column are needed, "
            "separated by commas (in .tsv by tabs)."
        )
    texts, label = _choose_columns(train, text_column, label_column)
    features = None if texts else feature_columns(train, label)
    if features is not None and not features.names:
        raise DataError(
            f"{train.path} has no column of text, numbers or categories beside {label!r}; give text_column (it has "
            f"{columns_of(train)})."
        )
    names = texts if features is None else features.names
    notes += _columns_notes(train, texts, label, features)
    splits: dict[SplitName, _Rows] = {"train": _rows(train, names, label, drop_unlabelled, features, names)}
    for split, path in files.items():
        if split != "train":
            header = None if train.has_header else False
            table = read_table(path, header=header, known_names=train.names if train.has_header else ())
            *columns, label_there = (_same_column(name, train, table) for name in (*names, label))
            splits[split] = _rows(table, columns, label_there, drop_unlabelled, features, names)
    if features is not None:
        assert isinstance(splits["train"].inputs, TableRows)
        notes += _missing_note(splits["train"].inputs)
    for rows in splits.values():
        if rows.unlabelled:
            notes.append(f"Left out {plural(rows.unlabelled, 'row')} of {rows.table.path.name} without a label.")
        empty = len(rows.table) - len(rows.inputs) - rows.unlabelled
        thing = "empty text" if features is None else "empty row"
        notes += [f"Left out {plural(empty, thing)} of {rows.table.path.name}."] if empty else []
    return splits, texts if train.has_header else ()


def _rows(
    table: Table,
    columns: Sequence[str],
    label: str,
    drop_unlabelled: bool,
    features: FeatureColumns | None,
    names: Sequence[str],
) -> _Rows:
    """What is read of a table: texts, or the features of columns that the training table has under these names."""
    texts = _joined(table, columns)
    labels = table.texts(label)
    if "" in labels and not drop_unlabelled:
        many = labels.count("")
        others = f" and {plural(many - 1, 'other place')}" if many > 1 else ""
        raise DataError(
            f"The label column {label!r} is empty at {table.where(labels.index(''))}{others}; "
            "--drop-unlabelled leaves such rows out."
        )
    chosen = [row for row, text in enumerate(texts) if text and labels[row]]
    if not chosen and any(texts):
        raise DataError(f"No row of {table.path} has a label (column {label!r}).")
    if not chosen:
        shown = ", ".join(map(repr, columns))
        raise DataError(f"All {'texts' if features is None else 'rows'} in {table.path} are empty (column {shown}).")
    inputs: list[str] | TableRows = [texts[row] for row in chosen]
    if features is not None:
        inputs = TableRows.of(names, features.numeric, map(table.texts, columns))[np.array(chosen)]
    return _Rows(table, inputs, [labels[row] for row in chosen], chosen, labels.count(""))


def _joined(table: Table, columns: Sequence[str]) -> list[str]:
    return [" ".join(filter(None, row)) for row in zip(*map(table.texts, columns), strict=True)]


def _in_order(labels: set[str]) -> list[str]:
    if all(_WHOLE_NUMBER.fullmatch(label) for label in labels):
        return sorted(labels, key=lambda label: (float(label), label))
    return sorted(labels, key=lambda label: (label.casefold(), label))


def _class_names(keys: Sequence[str], path: Path, notes: list[str]) -> Sequence[str]:
    """The names in a classes.txt beside the table, one per line, for labels that are its line numbers from 0 or 1."""
    if not path.is_file() or not all(key.isdecimal() for key in keys):
        return keys
    names = [line.strip() for line in read_text(path, "utf-8-sig", errors="replace").splitlines() if line.strip()]
    numbers = [int(key) for key in keys]
    first, last = min(*numbers, 1), max(numbers)
    if len(set(names)) == len(names) and last - first < len(names) and (first == 0 or last == len(names)):
        notes.append(f"Class names are those in {path.name}, for labels from {first}.")
        return [names[n - first] for n in numbers]
    notes.append(f"{path.name} was not used: its {len(names):,} names do not fit the {len(keys):,} labels.")
    return keys


def _to_examples(rows: _Rows, keys: Sequence[str], train_path: Path) -> Examples:
    index = {key: i for i, key in enumerate(keys)}
    unseen = Counter(label for label in rows.labels if label not in index)
    if unseen:
        label = next(iter(unseen))
        place = rows.table.where(rows.rows[rows.labels.index(label)])
        others = f", nor {plural(len(unseen) - 1, 'other label')}" if len(unseen) > 1 else ""
        raise DataError(
            f"The label {label!r} at {place} ({unseen[label]:,} in the file) never occurs in {train_path.name}{others}."
        )
    labels = torch.tensor([index[label] for label in rows.labels], dtype=torch.int64)
    return Examples(rows.inputs, labels, sources=LineSources(rows.table.path.name, rows.table.lines[rows.rows]))


def _given_names(argument: str | None) -> list[str]:
    """The column names in an argument of the user's; several are separated by commas."""
    return [name.strip() for name in (argument or "").split(",") if name.strip()]


def _choose_columns(table: Table, text_column: str | None, label_column: str | None) -> tuple[tuple[str, ...], str]:
    """The text columns, to be joined, and the label column; no text column where there is none or none is wanted."""
    none = text_column is not None and text_column.lower() == NO_TEXT and NO_TEXT not in map(str.lower, table.names)
    texts = () if text_column is None or none else _given_texts(table, text_column)
    label = find_label(table, texts) if label_column is None else _find(table, label_column, " (label_column)")
    texts = texts or (() if none else find_texts(table, label))
    if label in texts:
        raise DataError(f"Column {label!r} of {table.path} cannot be both the text and the label.")
    return texts, label


def _columns_notes(table: Table, texts: Sequence[str], label: str, features: FeatureColumns | None) -> list[str]:
    if features is not None:
        notes = [f"The label is read from column {label!r}.", features_note(features)]
        hint = "names, codes, the number of the row or one value; --text-column reads one as text"
    else:
        names = " and ".join(map(repr, texts))
        notes = [f"Text is read from column {names}, the label from column {label!r}."]
        hint = "--text-column none reads numbers and categories instead"
    if not table.has_header:
        notes[0] = f"{table.path.name} has no header line: {notes[0][0].lower()}{notes[0][1:-1]}, counted from 1."
    others = [name for name in table.names if name not in {label, *texts, *(features.names if features else ())}]
    return [*notes, f"Not read: {listed(map(repr, others))} ({hint})."] if others else notes


def _missing_note(rows: TableRows) -> list[str]:
    """How many values are missing in which columns."""
    lacking = []
    for name, numeric, cells in zip(rows.names, rows.numeric, rows.cells.T, strict=True):
        missing = sum(math.isnan(to_number(cell)) if numeric else not cell for cell in cells)
        lacking += [f"{missing:,} of {name!r}"] if missing else []
    how = "numbers become the mean of the training rows, categories one of their own"
    return [f"Missing values: {listed(lacking, 5)}; {how}."] if lacking else []


def _same_column(name: str, model: Table, table: Table) -> str:
    """The column of ``table`` that corresponds to one of ``model``: by name, or by place if one has no header."""
    if model.has_header and table.has_header:
        return _find(table, name)
    if len(table.names) != len(model.names):
        raise DataError(f"{table.path} has {len(table.names)} columns where {model.path.name} has {len(model.names)}.")
    return table.names[model.names.index(name)]


def _given_texts(table: Table, text_column: str) -> tuple[str, ...]:
    if text_column in table.names:
        return (text_column,)
    names = _given_names(text_column)
    if not names:
        raise DataError(f"text_column {text_column!r} names no column; {table.path} has {columns_of(table)}.")
    return tuple(_find(table, name, " (text_column)") for name in names)


def _find(table: Table, name: str, argument: str = "") -> str:
    if name in table.names:
        return name
    alike = [other for other in table.names if normalise_name(other) == normalise_name(name)]
    if len(alike) == 1:
        return alike[0]
    if name.isdecimal() and 1 <= int(name) <= len(table.names):
        return table.names[int(name) - 1]
    raise DataError(f"{table.path} has no column {name!r}{argument}; it has {columns_of(table)}.")

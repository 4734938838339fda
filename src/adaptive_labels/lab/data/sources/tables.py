"""A user's own table, or a folder with train.*, perhaps val.* and test.*: texts, or numbers and categories."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from adaptive_labels.lab.data.columns import (
    Columns,
    choose_columns,
    columns_notes,
    given_names,
    same_column,
)
from adaptive_labels.lab.data.dataset import DataError, Examples, Kind, SplitName
from adaptive_labels.lab.data.frames import Table, is_table, read_table
from adaptive_labels.lab.data.rows import TableRows, to_number
from adaptive_labels.lab.data.sources import register_reader
from adaptive_labels.lab.data.split_files import find_files, tables_of
from adaptive_labels.lab.data.splits import RawDataset
from adaptive_labels.lab.data.stored_texts import LineSources
from adaptive_labels.lab.files import read_text
from adaptive_labels.lab.words import listed, plural

_WHOLE_NUMBER = re.compile(r"-?\d+(\.0+)?")


class _Split(NamedTuple):
    """What is read of one table; empty rows are left out."""

    table: Table
    inputs: list[str] | TableRows
    labels: list[str]
    rows: list[int]  # the table's row of each example


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
    train = read_table(files["train"], known_names=[*given_names(text_column), *given_names(label_column)])
    if len(train.names) < 2:
        begins = train.texts(train.names[0])[0][:40]
        raise DataError(
            f"{train.path} has one column only (it begins with {begins!r}); a text and a label column are needed, "
            "separated by commas (in .tsv by tabs)."
        )
    columns = choose_columns(train, text_column, label_column)
    splits: dict[SplitName, _Split] = {}
    left_out: list[str] = []
    for split in sorted(files, key=lambda split: split != "train"):
        names = train.names if train.has_header else ()
        header = None if train.has_header else False
        table = train if split == "train" else read_table(files[split], header=header, known_names=names)
        splits[split] = _read_split(train, table, columns, drop_unlabelled, left_out)
    inputs = splits["train"].inputs
    missing = _missing_note(inputs) if isinstance(inputs, TableRows) else []
    notes += [*columns_notes(train, columns), *missing, *left_out]
    if all(_WHOLE_NUMBER.fullmatch(label) for part in splits.values() for label in set(part.labels)):
        for part in splits.values():
            part.labels[:] = [label.partition(".")[0] for label in part.labels]  # 4.0 is written as 4
    keys = _in_order(set(splits["train"].labels))
    class_names = _class_names(keys, files["train"].parent / "classes.txt", notes)
    examples = {split: _to_examples(part, keys, files["train"]) for split, part in splits.items()}
    texts = columns.names if columns.numeric is None and train.has_header else ()
    kind: Kind = "text" if columns.numeric is None else "row"
    return RawDataset(path.resolve().name, kind, class_names, examples, notes, text_columns=texts)


def _read_split(train: Table, table: Table, columns: Columns, drop_unlabelled: bool, left_out: list[str]) -> _Split:
    """The rows of a table, by the columns chosen in train's; ``left_out`` gets notes on rows that are not read."""
    *names, label = (same_column(name, train, table) for name in (*columns.names, columns.label))
    texts, labels = joined_texts(table, names), table.texts(label)
    unlabelled = labels.count("")
    if unlabelled and not drop_unlabelled:
        others = f" and {plural(unlabelled - 1, 'other place')}" if unlabelled > 1 else ""
        raise DataError(
            f"The label column {label!r} is empty at {table.where(labels.index(''))}{others}; "
            "--drop-unlabelled leaves such rows out."
        )
    rows = [row for row, text in enumerate(texts) if text and labels[row]]
    if not rows and any(texts):
        raise DataError(f"No row of {table.path} has a label (column {label!r}).")
    if not rows:
        shown = ", ".join(map(repr, names))
        things = "texts" if columns.numeric is None else "rows"
        raise DataError(f"All {things} in {table.path} are empty (column {shown}).")
    if unlabelled:
        left_out.append(f"Left out {plural(unlabelled, 'row')} of {table.path.name} without a label.")
    if empty := len(table) - len(rows) - unlabelled:
        thing = "empty text" if columns.numeric is None else "empty row"
        left_out.append(f"Left out {plural(empty, thing)} of {table.path.name}.")
    inputs: list[str] | TableRows = [texts[row] for row in rows]
    if columns.numeric is not None:
        inputs = TableRows.of(columns.names, columns.numeric, map(table.texts, names))[np.array(rows)]
    return _Split(table, inputs, [labels[row] for row in rows], rows)


def joined_texts(table: Table, columns: Sequence[str]) -> list[str]:
    """The text of each row: the cells of these columns with spaces between."""
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


def _to_examples(part: _Split, keys: Sequence[str], train_path: Path) -> Examples:
    index = {key: i for i, key in enumerate(keys)}
    unseen = Counter(label for label in part.labels if label not in index)
    if unseen:
        label = next(iter(unseen))
        place = part.table.where(part.rows[part.labels.index(label)])
        others = f", nor {plural(len(unseen) - 1, 'other label')}" if len(unseen) > 1 else ""
        raise DataError(
            f"The label {label!r} at {place} ({unseen[label]:,} in the file) never occurs in {train_path.name}{others}."
        )
    labels = torch.tensor([index[label] for label in part.labels], dtype=torch.int64)
    return Examples(part.inputs, labels, sources=LineSources(part.table.path.name, part.table.lines[part.rows]))


def _missing_note(rows: TableRows) -> list[str]:
    """How many values are missing in which columns."""
    lacking = []
    for name, numeric, cells in zip(rows.names, rows.numeric, rows.cells.T, strict=True):
        missing = sum(math.isnan(to_number(cell)) if numeric else not cell for cell in cells)
        lacking += [f"{missing:,} of {name!r}"] if missing else []
    how = "numbers become the mean of the training rows, categories one of their own"
    return [f"Missing values: {listed(lacking, 5)}; {how}."] if lacking else []

"""A user's own texts: a table, or a folder with train.*, perhaps val.* and test.*, to a data set."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from adaptive_labels.data.dataset import DataError, Examples, SplitName, counted, find_splits
from adaptive_labels.data.readers.columns import Columns, choose_columns, given_names, same_columns
from adaptive_labels.data.readers.registry import register_reader
from adaptive_labels.data.readers.tables import Table, is_table, read_table, tables_in
from adaptive_labels.data.splits import Part, RawDataset, text_digests
from adaptive_labels.data.stored_texts import LineSources

_TREC_FILE = re.compile(r"(train|trec)_\d+\.label")  # train_5500.label and TREC_10.label, which is the test split
_WHOLE_NUMBER = re.compile(r"-?\d+(\.0+)?")


@dataclass(frozen=True)
class _Rows:
    """The non-empty texts of a table with their labels, as read, and the table's row of each."""

    table: Table
    texts: list[str]
    labels: list[str]
    kept: list[int]


def _can_read(path: Path) -> bool:
    return is_table(path) if path.is_file() else bool(tables_in(path))


@register_reader("text data", _can_read)
def read_texts(path: Path, *, text_column: str | None = None, label_column: str | None = None) -> RawDataset:
    """Read a table of texts, or a folder of tables named by their split."""
    notes: list[str] = []
    files: Mapping[SplitName, Path] = {"train": path} if path.is_file() else _find_files(path, notes)
    splits = _read_splits(files, text_column, label_column, notes)
    whole_numbers = all(_WHOLE_NUMBER.fullmatch(label) for rows in splits.values() for label in set(rows.labels))
    if whole_numbers:  # 4.0 is written as 4
        for rows in splits.values():
            rows.labels[:] = [label.partition(".")[0] for label in rows.labels]
    keys = _in_order(set(splits["train"].labels))
    class_names = _class_names(keys, files["train"].parent / "classes.txt", notes)
    parts = {name: _to_part(rows, keys, files["train"]) for name, rows in splits.items()}
    return RawDataset(path.resolve().name, "text", class_names, parts, notes)


def _find_files(folder: Path, notes: list[str]) -> dict[SplitName, Path]:
    tables = tables_in(folder)
    files = find_splits(folder, {path: _stem(path) for path in tables})
    if "train" not in files:
        if len(tables) != 1 or files:
            names = ", ".join(path.name for path in tables)
            raise DataError(f"{folder} has no table named train.*, only {names}.")
        files = {"train": tables[0]}
    unused = [path.name for path in tables if path not in files.values()]
    notes += [f"Not used: {', '.join(unused)}."] if unused else []
    return files


def _stem(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    if (trec := _TREC_FILE.fullmatch(name)) is not None:
        return {"train": "train", "trec": "test"}[trec[1]]
    return name[: name.rindex(".")]


def _read_splits(
    files: Mapping[SplitName, Path], text_column: str | None, label_column: str | None, notes: list[str]
) -> dict[SplitName, _Rows]:
    train = read_table(files["train"], known_names=given_names(text_column, label_column))
    columns = choose_columns(train, text_column, label_column)
    splits: dict[SplitName, _Rows] = {"train": _rows(train, columns)}
    notes += [columns.note, *train.notes]
    for name, file in files.items():
        if name != "train":
            header = None if train.has_header else False
            table = read_table(file, header=header, known_names=train.names if train.has_header else ())
            splits[name] = _rows(table, same_columns(columns, train, table))
            notes += table.notes
    for rows in splits.values():
        empty = len(rows.table) - len(rows.texts)
        notes += [f"Left out {counted(empty, 'empty text')} of {rows.table.path.name}."] if empty else []
    return splits


def _rows(table: Table, columns: Columns) -> _Rows:
    parts = [table.texts(i) for i in columns.text]
    joined = [" ".join(part for part in map(str.strip, row) if part) for row in zip(*parts, strict=True)]
    labels = [label.strip() for label in table.texts(columns.label)]
    if "" in labels:
        raise DataError(f"The label column {table.names[columns.label]!r} is empty at {table.where(labels.index(''))}.")
    kept = [row for row, text in enumerate(joined) if text]
    if not kept:
        names = ", ".join(repr(table.names[i]) for i in columns.text)
        raise DataError(f"All texts in {table.path} are empty (column {names}).")
    return _Rows(table, [joined[row] for row in kept], [labels[row] for row in kept], kept)


def _in_order(labels: set[str]) -> list[str]:
    if all(_WHOLE_NUMBER.fullmatch(label) for label in labels):
        return sorted(labels, key=lambda label: (float(label), label))
    return sorted(labels, key=lambda label: (label.casefold(), label))


def _class_names(keys: Sequence[str], path: Path, notes: list[str]) -> Sequence[str]:
    """The names in a classes.txt beside the table, one per line, for labels that are its line numbers from 0 or 1."""
    if not path.is_file() or not all(key.isdecimal() for key in keys):
        return keys
    names = [line.strip() for line in path.read_text("utf-8-sig", errors="replace").splitlines() if line.strip()]
    numbers = [int(key) for key in keys]
    first = min(min(numbers), 1)
    if (
        len(set(names)) == len(names)
        and max(numbers) - first < len(names)
        and (first == 0 or max(numbers) == len(names))
    ):
        notes.append(f"Class names are those in {path.name}, for labels from {first}.")
        return [names[n - first] for n in numbers]
    notes.append(f"{path.name} was not used: its {len(names):,} names do not fit the {len(keys):,} labels.")
    return keys


def _to_part(rows: _Rows, keys: Sequence[str], train_path: Path) -> Part:
    index = {key: i for i, key in enumerate(keys)}
    unseen = Counter(label for label in rows.labels if label not in index)
    if unseen:
        label = next(iter(unseen))
        place = rows.table.where(rows.kept[rows.labels.index(label)])
        others = f", nor {counted(len(unseen) - 1, 'other label')}" if len(unseen) > 1 else ""
        raise DataError(
            f"The label {label!r} at {place} ({unseen[label]:,} in the file) never occurs in {train_path.name}{others}."
        )
    labels = torch.tensor([index[label] for label in rows.labels], dtype=torch.int64)
    lines = np.array(rows.table.places)[rows.kept]
    return Part(
        Examples(rows.texts, labels, sources=LineSources(rows.table.path.name, lines)), text_digests(rows.texts)
    )

"""A user's own texts: a table, or a folder with train.*, perhaps val.* and test.*, to a data set."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from adaptive_labels.data.assemble import Part, assemble
from adaptive_labels.data.dataset import DataError, Dataset, Examples
from adaptive_labels.data.readers.columns import Columns, choose_columns, given_names, same_columns
from adaptive_labels.data.readers.split_names import find_split
from adaptive_labels.data.readers.tables import Table, is_table, read_table
from adaptive_labels.data.splits import text_digest
from adaptive_labels.data.wording import counted

_TREC_FILE = re.compile(r"(train|trec)_\d+\.label")  # train_5500.label and TREC_10.label, which is the test split
_WHOLE_NUMBER = re.compile(r"-?\d+(\.0+)?")


@dataclass(frozen=True)
class _Rows:
    """The non-empty texts of a table with their labels, as read."""

    table: Table
    texts: list[str]
    labels: list[str]
    kept: list[int]  # the table's row of each text

    def source(self, row: int) -> str:
        return f"{self.table.path.name}:{self.table.places[self.kept[row]]}"


def load_texts(
    path: Path,
    *,
    split_seed: int = 0,
    train_fraction: float = 1.0,
    text_column: str | None = None,
    label_column: str | None = None,
) -> Dataset:
    """Read a table of texts, or a folder of tables named by their split."""
    files, notes = ({"train": path}, []) if path.is_file() else _find_files(path)
    splits, read_notes = _read_splits(files, text_column, label_column)
    notes += read_notes
    labels = {name: _tidy_labels(splits, name) for name in splits}
    keys = _in_order(set(labels["train"]))
    class_names, class_notes = _class_names(keys, files["train"].parent / "classes.txt")
    notes += class_notes
    parts = {name: _to_part(rows, labels[name], keys, splits["train"].table.path) for name, rows in splits.items()}
    return assemble(
        path.resolve().name,
        "text",
        class_names,
        parts["train"],
        parts.get("validation"),
        parts.get("test"),
        notes=notes,
        split_seed=split_seed,
        train_fraction=train_fraction,
    )


def _find_files(folder: Path) -> tuple[dict[str, Path], list[str]]:
    tables = sorted(path for path in folder.iterdir() if path.is_file() and is_table(path))
    stems = {path: _stem(path) for path in tables}
    files = {}
    for split in ("train", "validation", "test"):
        found = find_split(folder, split, tables, stems)
        if found is not None:
            files[split] = found
    if "train" not in files:
        if len(tables) != 1 or files:
            names = ", ".join(path.name for path in tables)
            raise DataError(f"{folder} has no table named train.*, only {names}.")
        files = {"train": tables[0]}
    unused = [path.name for path in tables if path not in files.values()]
    return files, [f"Not used: {', '.join(unused)}."] if unused else []


def _stem(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    if (trec := _TREC_FILE.fullmatch(name)) is not None:
        return {"train": "train", "trec": "test"}[trec[1]]
    return name[: name.rindex(".")]


def _read_splits(
    files: dict[str, Path], text_column: str | None, label_column: str | None
) -> tuple[dict[str, _Rows], list[str]]:
    train = read_table(files["train"], known_names=given_names(text_column, label_column))
    columns = choose_columns(train, text_column, label_column)
    splits = {"train": _rows(train, columns)}
    notes = [columns.note, *train.notes]
    for name in ("validation", "test"):
        if name in files:
            header = None if train.has_header else False
            table = read_table(files[name], header=header, known_names=train.names if train.has_header else ())
            splits[name] = _rows(table, same_columns(columns, train, table))
            notes += table.notes
    empty = {rows.table.path.name: len(rows.table) - len(rows.texts) for rows in splits.values()}
    notes += [f"Left out {counted(count, 'empty text')} of {name}." for name, count in empty.items() if count]
    return splits, notes


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


def _tidy_labels(splits: dict[str, _Rows], name: str) -> list[str]:
    """The split's labels, with 4.0 written as 4 where all labels of all splits are whole numbers."""
    if all(_WHOLE_NUMBER.fullmatch(label) for rows in splits.values() for label in set(rows.labels)):
        return [label.partition(".")[0] for label in splits[name].labels]
    return splits[name].labels


def _in_order(labels: set[str]) -> list[str]:
    if all(_WHOLE_NUMBER.fullmatch(label) for label in labels):
        return sorted(labels, key=lambda label: (float(label), label))
    return sorted(labels, key=lambda label: (label.casefold(), label))


def _class_names(keys: Sequence[str], path: Path) -> tuple[Sequence[str], list[str]]:
    """The names in a classes.txt beside the table, a line each, for labels that are its line numbers from 0 or 1."""
    if not path.is_file() or not all(key.isdecimal() for key in keys):
        return keys, []
    names = [line.strip() for line in path.read_text("utf-8-sig", errors="replace").splitlines() if line.strip()]
    numbers = [int(key) for key in keys]
    if len(set(names)) == len(names):
        if min(numbers) == 0 and max(numbers) < len(names):
            return [names[n] for n in numbers], [f"Class names are those in {path.name}, for labels from 0."]
        if min(numbers) > 0 and max(numbers) == len(names):
            return [names[n - 1] for n in numbers], [f"Class names are those in {path.name}, for labels from 1."]
    return keys, [f"{path.name} was not used: its {len(names):,} names do not fit the {len(keys):,} labels."]


def _to_part(rows: _Rows, labels: Sequence[str], keys: Sequence[str], train_path: Path) -> Part:
    index = {key: i for i, key in enumerate(keys)}
    unseen = Counter(label for label in labels if label not in index)
    if unseen:
        label = next(label for label in labels if label in unseen)
        place = rows.table.where(rows.kept[labels.index(label)])
        others = f", nor {counted(len(unseen) - 1, 'other label')}" if len(unseen) > 1 else ""
        raise DataError(
            f"The label {label!r} at {place} ({unseen[label]:,} in the file) never occurs in {train_path.name}{others}."
        )
    examples = Examples(
        inputs=rows.texts,
        labels=torch.tensor([index[label] for label in labels], dtype=torch.int64),
        sources=[rows.source(i) for i in range(len(rows.texts))],
    )
    return Part(examples, [text_digest(text) for text in rows.texts])

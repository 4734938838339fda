"""A user's own texts: a table, or a folder with train.*, perhaps val.* and test.*, to a data set.

Which columns hold the text and the label is given by the user, or guessed by name, or guessed by content.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from adaptive_labels.lab.data.dataset import DataError, Examples, Kind, SplitName
from adaptive_labels.lab.data.rows import TableRows, holds_numbers
from adaptive_labels.lab.data.sources import register_reader
from adaptive_labels.lab.data.sources.columns import (
    FeatureColumns,
    feature_columns,
    features_note,
    is_text,
    measures,
    sampled,
)
from adaptive_labels.lab.data.sources.split_files import find_files, tables_of
from adaptive_labels.lab.data.sources.tables import (
    LABEL_NAMES,
    PART_TEXT_NAMES,
    WHOLE_TEXT_NAMES,
    Table,
    is_table,
    normalise_name,
    read_parts,
    read_table,
)
from adaptive_labels.lab.data.splits import RawDataset
from adaptive_labels.lab.data.stored_texts import LineSources
from adaptive_labels.lab.files import read_text
from adaptive_labels.lab.words import counted, few, listed

_WHOLE_NUMBER = re.compile(r"-?\d+(\.0+)?")
NO_TEXT = "none"
_FEW_CLASSES = 50


@dataclass(frozen=True)
class _Rows:
    """What is read of a table's rows, empty ones left out, with their labels, as read, and the table's row of each."""

    table: Table
    inputs: list[str] | TableRows
    labels: list[str]
    kept: list[int]
    unlabelled: int  # rows that were left out because they have no label


def _can_read(path: Path) -> bool:
    return is_table(path) if path.is_file() else bool(tables_of(path))


@register_reader("table", _can_read)
def read_texts(
    path: Path, *, text_column: str | None = None, label_column: str | None = None, drop_unlabelled: bool = False
) -> RawDataset:
    """Read a table, or a folder of tables named by their split: texts, or numbers and categories where there are none.

    A ``text_column`` of none reads numbers and categories although there is a text.
    """
    notes: list[str] = []
    files: Mapping[SplitName, Sequence[Path]] = {"train": [path]} if path.is_file() else find_files(path, notes)
    splits, text_columns = _read_splits(files, text_column, label_column, notes, drop_unlabelled)
    if all(_WHOLE_NUMBER.fullmatch(label) for rows in splits.values() for label in set(rows.labels)):
        for rows in splits.values():
            rows.labels[:] = [label.partition(".")[0] for label in rows.labels]  # 4.0 is written as 4
    keys = _in_order(set(splits["train"].labels))
    first = files["train"][0]
    class_names = _class_names(keys, first.parent / "classes.txt", notes)
    examples = {name: _to_examples(rows, keys, first) for name, rows in splits.items()}
    kind: Kind = "row" if isinstance(splits["train"].inputs, TableRows) else "text"
    return RawDataset(path.resolve().name, kind, class_names, examples, notes, text_columns=text_columns)


def read_texts_only(path: Path, text_column: str | None = None, trained_on: Sequence[str] = ()) -> list[str]:
    """The texts of a table, one per row, empty ones included; it needs no label column.

    Unless a column is given, those that training read are; or a guess if one of them is not there.
    """
    names = [*_given_names(text_column), *trained_on]
    table = read_table(path, known_names=names, least_columns=1)
    if len(table.names) == 1 and table.has_header and table.path.name.lower().removesuffix(".gz").endswith("sv"):
        # A short first text looks like a heading; of one column only a usual name or the given one is.
        usual = normalise_name(table.names[0]) in WHOLE_TEXT_NAMES + PART_TEXT_NAMES
        if not usual and table.names[0] not in names:
            table = read_table(path, header=False, least_columns=1)
    if text_column is not None:
        columns = _given_text(table, text_column)
    elif trained_on and set(trained_on) <= set(table.names):
        columns = tuple(map(table.names.index, trained_on))
    else:
        label = _by_name(table, LABEL_NAMES, range(len(table.names))) if len(table.names) > 1 else None
        columns = _guess_text(table, label) or (_longest(table, [i for i in range(len(table.names)) if i != label]),)
    return _joined(table, columns)


def read_rows(path: Path, names: Sequence[str], numeric: Sequence[bool]) -> tuple[TableRows, list[str]]:
    """The rows of a table with the columns of these names, and where each is; it needs no label column.

    Of a table without a header that has these columns and no others, they are read in their order.
    """
    table = read_table(path, known_names=names, least_columns=1)
    in_order = not table.has_header and len(table.names) == len(names)
    columns = range(len(names)) if in_order else [_find(table, name) for name in names]
    return TableRows.of(names, numeric, map(table.texts, columns)), [f"{path.name}:{place}" for place in table.places]


def _read_splits(
    files: Mapping[SplitName, Sequence[Path]],
    text_column: str | None,
    label_column: str | None,
    notes: list[str],
    drop_unlabelled: bool,
) -> tuple[dict[SplitName, _Rows], Sequence[str]]:
    """What is read of each split, and the names of the columns of text."""
    train = read_parts(files["train"], known_names=[*_given_names(text_column), *_given_names(label_column)])
    text, label = _choose_columns(train, text_column, label_column)
    found = feature_columns(train, label)
    notes += [_columns_note(train, text, label, text_column, label_column), *train.notes]
    features = None if text else found
    if features is not None and not features.columns:
        raise DataError(f"{train.path} has no column of numbers or categories beside {train.names[label]!r}.")
    columns = text if features is None else features.columns
    names = [train.names[i] for i in columns]
    splits: dict[SplitName, _Rows] = {"train": _rows(train, columns, label, drop_unlabelled, features, names)}
    for name, files_of_split in files.items():
        if name != "train":
            header = None if train.has_header else False
            table = read_parts(files_of_split, header=header, known_names=train.names if train.has_header else ())
            *own, own_label = (_same_column(i, train, table) for i in (*columns, label))
            splits[name] = _rows(table, own, own_label, drop_unlabelled, features, names)
            notes += table.notes
    if features is not None:
        assert isinstance(splits["train"].inputs, TableRows)
        notes += features_note(train, features, splits["train"].inputs)
    elif others := [train.names[i] for i in found.columns if i not in text]:
        shown = few(map(repr, others))
        notes.append(f"Not read beside the text: {shown}; --text-column none reads numbers and categories instead.")
    for rows in splits.values():
        if rows.unlabelled:
            notes.append(f"Left out {counted(rows.unlabelled, 'row')} of {rows.table.path.name} without a label.")
        empty = len(rows.table) - len(rows.inputs) - rows.unlabelled
        thing = "empty text" if features is None else "empty row"
        notes += [f"Left out {counted(empty, thing)} of {rows.table.path.name}."] if empty else []
    return splits, names if text and train.has_header else ()


def _rows(
    table: Table,
    columns: Sequence[int],
    label: int,
    drop_unlabelled: bool,
    features: FeatureColumns | None,
    names: Sequence[str],
) -> _Rows:
    """What is read of a table: texts, or the features of columns that the training table has under these names."""
    joined = _joined(table, columns)
    labels = table.texts(label)
    if "" in labels and not drop_unlabelled:
        many = labels.count("")
        others = f" and {counted(many - 1, 'other place')}" if many > 1 else ""
        raise DataError(
            f"The label column {table.names[label]!r} is empty at {table.where(labels.index(''))}{others}; "
            "--drop-unlabelled leaves such rows out."
        )
    kept = [row for row, text in enumerate(joined) if text and labels[row]]
    if not kept and any(joined):
        raise DataError(f"No row of {table.path} has a label (column {table.names[label]!r}).")
    if not kept:
        listed = ", ".join(repr(table.names[i]) for i in columns)
        raise DataError(f"All {'texts' if features is None else 'rows'} in {table.path} are empty (column {listed}).")
    inputs: list[str] | TableRows = [joined[row] for row in kept]
    if features is not None:
        inputs = TableRows.of(names, features.numeric, map(table.texts, columns))[np.array(kept)]
    return _Rows(table, inputs, [labels[row] for row in kept], kept, labels.count(""))


def _joined(table: Table, columns: Sequence[int]) -> list[str]:
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
        place = rows.table.where(rows.kept[rows.labels.index(label)])
        others = f", nor {counted(len(unseen) - 1, 'other label')}" if len(unseen) > 1 else ""
        raise DataError(
            f"The label {label!r} at {place} ({unseen[label]:,} in the file) never occurs in {train_path.name}{others}."
        )
    labels = torch.tensor([index[label] for label in rows.labels], dtype=torch.int64)
    sources = LineSources(rows.table.path.name, np.array(rows.table.places)[rows.kept])
    return Examples(rows.inputs, labels, sources=sources)


def _given_names(argument: str | None) -> list[str]:
    """The column names in an argument of the user's; several are separated by commas."""
    return [name.strip() for name in (argument or "").split(",") if name.strip()]


def _choose_columns(table: Table, text_column: str | None, label_column: str | None) -> tuple[tuple[int, ...], int]:
    """The text columns, to be joined, and the label column; each is given by name or number from 1, or guessed.

    There is no text column where the table has none, or the user wants none.
    """
    none = text_column is not None and text_column.lower() == NO_TEXT and NO_TEXT not in map(str.lower, table.names)
    text = () if text_column is None or none else _given_text(table, text_column)
    label = _guess_label(table, text) if label_column is None else _find(table, label_column, " (label_column)")
    text = text or (() if none else _guess_text(table, label))
    if label in text:
        raise DataError(f"Column {table.names[label]!r} of {table.path} cannot be both the text and the label.")
    return text, label


def _columns_note(
    table: Table, text: tuple[int, ...], label: int, text_column: str | None, label_column: str | None
) -> str:
    others = _label_candidates(table, (*text, label)) if label_column is None else []
    if not text:
        how = " (guessed)" if label_column is None else ""
        hint = f" Other columns that could be it: {', '.join(map(repr, others[:3]))}." if others else ""
        return f"The label is read from column {table.names[label]!r}{how}.{hint}"
    guessed = [what for what, given in {"text ": text_column, "label ": label_column}.items() if given is None]
    how = {0: "", 1: f" ({''.join(guessed)}guessed)", 2: " (guessed)"}[len(guessed)]
    names = " and ".join(repr(table.names[i]) for i in text)
    columns = f"read from column {names}, the label from column {table.names[label]!r}"
    hint = f" Other columns that could be the label: {', '.join(map(repr, others))}." if others else ""
    if table.has_header:
        return f"Text is {columns}{how}.{hint}"
    return f"{table.path.name} has no header line: text is {columns}, counted from 1{how}."


def _same_column(column: int, model: Table, table: Table) -> int:
    """The column of `table` that corresponds to one of `model`: by name, or by place if one has no header."""
    if model.has_header and table.has_header:
        return _find(table, model.names[column])
    if len(table.names) != len(model.names):
        raise DataError(f"{table.path} has {len(table.names)} columns where {model.path.name} has {len(model.names)}.")
    return column


def _given_text(table: Table, text_column: str) -> tuple[int, ...]:
    if text_column in table.names:
        return (table.names.index(text_column),)
    names = _given_names(text_column)
    if not names:
        raise DataError(f"text_column {text_column!r} names no column; {table.path} has {_listing(table)}.")
    return tuple(_find(table, name, " (text_column)") for name in names)


def _find(table: Table, name: str, argument: str = "") -> int:
    if name in table.names:
        return table.names.index(name)
    alike = [i for i, other in enumerate(table.names) if normalise_name(other) == normalise_name(name)]
    if len(alike) == 1:
        return alike[0]
    if name.isdecimal() and 1 <= int(name) <= len(table.names):
        return int(name) - 1
    raise DataError(f"{table.path} has no column {name!r}{argument}; it has {_listing(table)}.")


def _listing(table: Table) -> str:
    if table.has_header:
        return f"the columns {listed(map(repr, table.names))}"
    return f"no header line and {len(table.names)} columns, numbered from 1"


def _guess_label(table: Table, taken: Sequence[int]) -> int:
    free = [i for i in range(len(table.names)) if i not in taken]
    by_name = _by_name(table, LABEL_NAMES, free)
    if by_name is not None and not (len(free) > 1 and measures(table, by_name)):
        return by_name
    if not taken:
        text = _by_name(table, WHOLE_TEXT_NAMES, free)
        free = [i for i in free if i != text]
    if len(free) == 1:
        return free[0]
    counts = _few_valued(table, free)
    if not counts and by_name is not None:
        return by_name
    if not counts:
        raise DataError(
            f"The label column of {table.path} cannot be guessed; give label_column (it has {_listing(table)})."
        )
    if not taken and not any(is_text(table, i) for i in free):  # numbers and categories have the label at an end
        for end in (free[-1], free[0]):
            if end in counts and counts[end] <= _FEW_CLASSES:
                return end
    return min(counts, key=counts.__getitem__)


def _few_valued(table: Table, columns: Sequence[int]) -> dict[int, int]:
    """Of the columns with few enough different values to be labels, how many they have."""
    counts = {i: len(set(map(str, table.sample(i)))) for i in columns}
    return {i: count for i, count in counts.items() if 2 <= count <= len(table.sampled_rows) / 2}


def _label_candidates(table: Table, taken: Sequence[int]) -> list[str]:
    """Other columns that could be the label, those with the fewest values first."""
    counts = _few_valued(table, [i for i in range(len(table.names)) if i not in taken and not measures(table, i)])
    return [table.names[i] for i in sorted(counts, key=counts.__getitem__)][:5]


def _guess_text(table: Table, label: int | None) -> tuple[int, ...]:
    free = [i for i in range(len(table.names)) if i != label]
    texts = [i for i in free if is_text(table, i)]
    whole = _by_name(table, WHOLE_TEXT_NAMES, texts)
    if whole is not None:
        return (whole,)
    parts = tuple(i for i in texts if normalise_name(table.names[i]) in PART_TEXT_NAMES)
    if parts:
        return parts
    if not texts and feature_columns(table, label).columns:
        return ()
    longest = _longest(table, texts or free)
    if table.has_header:
        return (longest,)
    # Files without a header are mostly of the form label, title, body: all that reads like a text is one.
    return tuple(i for i in free if i == longest or _reads_like_text(table, i))


def _longest(table: Table, columns: Sequence[int]) -> int:
    """The column with the longest values; one of numbers only if all are."""
    values = {i: sampled(table, i) for i in columns}
    return max(columns, key=lambda i: (not holds_numbers(values[i]), sum(map(len, values[i]))))


def _by_name(table: Table, names: Sequence[str], free: Sequence[int]) -> int | None:
    """The free column with the earliest of `names`; else one whose last word is among them ('star_rating')."""
    if not table.has_header:
        return None
    normalised = {i: normalise_name(table.names[i]) for i in free}
    last_words = {i: name.rsplit("_", 1)[-1] for i, name in normalised.items()}
    for candidates in (normalised, last_words):
        for wanted in names:
            for i, name in candidates.items():
                if name == wanted:
                    return i
    return None


def _reads_like_text(table: Table, column: int) -> bool:
    """Whether the values have two words or more on average; an empty column does, as it may be filled in test."""
    words = [len(str(value).split()) for value in table.sample(column) if value is not None]
    return sum(words) >= 2 * sum(map(bool, words))

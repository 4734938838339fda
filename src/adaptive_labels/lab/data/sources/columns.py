"""The columns of a table without texts: which hold numbers, which categories, and which neither."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from adaptive_labels.lab.data.rows import TableRows, clean, holds_numbers, to_number
from adaptive_labels.lab.data.sources.tables import PART_TEXT_NAMES, WHOLE_TEXT_NAMES, Table, normalise_name
from adaptive_labels.lab.words import counted, few

MOST_CATEGORIES = 50  # distinct values of a column of categories, or a tenth of the rows if that is more
_FEW_ROWS, _FEW_NUMBERS = 20, 10
_LONG = 20  # characters on average: texts without spaces, as in Chinese, are known by their length
_INDEX_NAMES = ("id", "index", "idx", "row", "uuid", "guid", "key", "unnamed:_0", "")


class FeatureColumns(NamedTuple):
    """The columns that a network can read, whether each holds numbers, and the names of those that are left out."""

    columns: tuple[int, ...]
    numeric: tuple[bool, ...]
    left_out: tuple[str, ...]


def sampled(table: Table, column: int) -> list[str]:
    """Some values of a column as texts, missing ones empty."""
    return [clean("" if value is None else str(value)) for value in table.sample(column)]


def is_text(table: Table, column: int) -> bool:
    """Whether a column holds texts: it is named so, or its values are words, mostly different ones; never numbers."""
    values = [value for value in sampled(table, column) if value]
    if not values or holds_numbers(values):
        return False
    if table.has_header and normalise_name(table.names[column]) in WHOLE_TEXT_NAMES + PART_TEXT_NAMES:
        return True
    distinct, characters = len(set(values)), sum(map(len, values))
    letters = sum(character.isalpha() for value in values for character in value)
    words = sum(len(value.split()) for value in values)
    differ = distinct > MOST_CATEGORIES or distinct >= len(values) / 2
    return differ and letters >= characters / 2 and (words >= 2 * len(values) or characters >= _LONG * len(values))


def measures(table: Table, column: int) -> bool:
    """Whether a column holds measured numbers, which are no labels: more than a few different ones, or fractions."""
    values = list(filter(None, sampled(table, column)))
    if not holds_numbers(values) or len(values) < _FEW_ROWS:
        return False
    numbers = set(map(to_number, values))
    return len(numbers) > MOST_CATEGORIES or (len(numbers) > _FEW_NUMBERS and any(n % 1 for n in numbers))


def feature_columns(table: Table, label: int | None) -> FeatureColumns:
    """Tell the columns of numbers and of categories from those with neither, such as a row's number."""
    columns, numeric, left_out = [], [], []
    for column, name in enumerate(table.names):
        if column == label:
            continue
        values = sampled(table, column)
        distinct, numbers = len(set(filter(None, values))), holds_numbers(values)
        few = distinct <= min(max(MOST_CATEGORIES, len(values) / 10), len(values) / 2)
        usable = few and not is_text(table, column)
        if distinct < 2 or not (numbers or usable) or (numbers and _is_index(name, values, table.sampled_rows)):
            left_out.append(name)
        else:
            columns.append(column)
            numeric.append(numbers)
    return FeatureColumns(tuple(columns), tuple(numeric), tuple(left_out))


def _is_index(name: str, values: Sequence[str], rows: range) -> bool:
    """Whether a column only counts the rows: all values differ, and it is named so or rises by one."""
    if len(set(values)) < len(values):
        return False
    if normalise_name(name) in _INDEX_NAMES or normalise_name(name).endswith("_id"):
        return True
    numbers = list(map(to_number, values))
    return len(values) > 2 and numbers[0] in (0, 1) and numbers == [numbers[0] + row for row in rows]


def features_note(table: Table, found: FeatureColumns, rows: TableRows) -> list[str]:
    """What is read of each row, what is left out, and how many values are missing."""
    kinds = []
    for wanted, thing, things in ((True, "number", "numbers"), (False, "category", "categories")):
        names = [table.names[i] for i, numeric in zip(found.columns, found.numeric, strict=True) if numeric is wanted]
        if names:
            kinds.append(f"{counted(len(names), thing, things)} ({few(map(repr, names))})")
    notes = [f"No text is read: each row is {' and '.join(kinds)}."]
    if found.left_out:
        notes.append(
            f"Left out {counted(len(found.left_out), 'column')} with one value, a number of the row, or too many "
            f"categories ({few(map(repr, found.left_out))})."
        )
    lacking = []
    for name, numeric, cells in zip(rows.names, rows.numeric, rows.cells.T, strict=True):
        missing = sum(math.isnan(to_number(cell)) if numeric else not cell for cell in cells)
        lacking += [f"{missing:,} of {name!r}"] if missing else []
    if lacking:
        more = f" and of {counted(len(lacking) - 5, 'other column')}" if len(lacking) > 5 else ""
        notes.append(
            f"Missing values: {', '.join(lacking[:5])}{more}; numbers become the mean of the training rows, "
            "categories one of their own."
        )
    return notes

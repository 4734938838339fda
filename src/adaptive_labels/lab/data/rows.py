"""Rows of a table whose columns hold numbers and categories instead of texts.

Shapes: N rows, C columns.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# How tables write that there is no value.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "nil", "?", "-", ".", "#n/a"})
_NUMBERS = 0.95  # share of a column's values that are numbers, for it to be one of numbers; the rest is missing


@dataclass(frozen=True, eq=False)
class TableRows:
    """N rows as the file writes them; a missing value is empty."""

    names: tuple[str, ...]  # of the columns, C
    numeric: tuple[bool, ...]  # whether each column holds numbers; else it holds categories
    cells: NDArray[np.object_]  # (N, C) of texts

    @classmethod
    def of(cls, names: Sequence[str], numeric: Sequence[bool], columns: Iterable[Sequence[str]]) -> "TableRows":
        cells = np.array([[clean(cell) for cell in column] for column in columns], dtype=object).T
        return cls(tuple(names), tuple(numeric), cells)

    @classmethod
    def of_records(cls, names: Sequence[str], numeric: Sequence[bool], records: Sequence[Mapping[str, Any]]) -> Any:
        """Return rows made of a dict for each; a value that is not there is missing."""
        texts = [["" if record.get(name) is None else str(record[name]) for record in records] for name in names]
        return cls.of(names, numeric, texts)

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, indices: NDArray[np.int64]) -> "TableRows":
        return TableRows(self.names, self.numeric, self.cells[indices])

    def shown(self, index: int) -> str:
        """One row in words: "height 1.7, colour red"; missing values are left out."""
        return ", ".join(f"{name} {cell}" for name, cell in zip(self.names, self.cells[index], strict=True) if cell)


def clean(cell: str) -> str:
    """A value without spaces around it; empty if it says that there is none."""
    text = cell.strip()
    return "" if text.casefold() in MISSING else text


def to_number(text: str) -> float:
    """A value as a number; NaN if it is none.

    >>> to_number("1e3"), to_number("red"), to_number("2_1")
    (1000.0, nan, nan)
    """
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) and "_" not in text else math.nan  # in Python, 2_1 is 21


def holds_numbers(values: Iterable[str]) -> bool:
    given = [value for value in values if value]
    return bool(given) and sum(not math.isnan(to_number(value)) for value in given) >= _NUMBERS * len(given)

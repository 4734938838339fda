"""Which columns of a table hold the text and the label: as given, or guessed by name, or guessed by content."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adaptive_labels.data.dataset import DataError

if TYPE_CHECKING:
    from adaptive_labels.data.readers.tables import Table

_SAMPLED_ROWS = 5_000
LABEL_NAMES = (
    "label_text", "label_name", "label", "labels", "category", "class", "intent", "stars", "target", "sentiment",
    "topic", "rating", "genre", "class_name", "class_index", "class_label", "tag", "emotion", "language", "score", "y",
    "coarse",
)  # fmt: skip
# A column of one of these names is the whole text …
WHOLE_TEXT_NAMES = (
    "text", "sentence", "review", "question", "utterance", "comment", "tweet", "message", "query", "document",
    "review_text", "full_text", "input", "name",
)  # fmt: skip
# … and columns of these names are parts of it, to be joined.
PART_TEXT_NAMES = (
    "title", "headline", "subject", "question_title", "summary", "description", "content", "body", "abstract",
    "question_content", "best_answer", "article",
)  # fmt: skip
_LABELS = frozenset(LABEL_NAMES)
_KNOWN = frozenset((*LABEL_NAMES, *WHOLE_TEXT_NAMES, *PART_TEXT_NAMES))
_NUMBER = re.compile(r"[-+]?\d*\.?\d+(e[-+]?\d+)?", re.IGNORECASE)
_COMPARED_ROWS = 2_000


def normalise_name(name: str) -> str:
    """A column name in lower case with underscores: 'Class Index' → 'class_index'."""
    return re.sub(r"[\s\-.]+", "_", name.strip().casefold())


def is_number(text: str) -> bool:
    """Whether the text is a plain number."""
    return _NUMBER.fullmatch(text.strip()) is not None


def looks_like_header(first: Sequence[str], rest: Sequence[Sequence[str]], known_names: Sequence[str] = ()) -> bool:
    """Whether the first row names the columns.

    It does if it has one of `known_names`, or both a usual text and a usual label name; it does not if a cell is a
    number or comes again in its own column (as a label would); else it does if it has a usual column name, or if all
    its cells are as short as names are.
    """
    cells = [cell.strip() for cell in first]
    usual = {normalise_name(cell) for cell in cells} & _KNOWN
    if any(name in cells for name in known_names) or (usual - _LABELS and usual & _LABELS):
        return True
    named = [cell for cell in cells if cell]
    if len(set(named)) < len(named) or any(is_number(cell) for cell in named):
        return False
    for i, cell in enumerate(cells):
        if cell and any(row[i].strip() == cell for row in rest[:_COMPARED_ROWS]):
            return False
    return bool(usual) or all(
        0 < len(cell) <= 30 and len(cell.split()) <= 3 and cell[-1] not in ".?!" for cell in cells
    )


@dataclass(frozen=True)
class Columns:
    """Column positions in a table: the text columns, to be joined in this order, and the label column."""

    text: tuple[int, ...]
    label: int
    note: str


def given_names(*arguments: str | None) -> list[str]:
    """The column names in the user's arguments; several in one are separated by commas."""
    return [name.strip() for argument in arguments if argument for name in argument.split(",") if name.strip()]


def choose_columns(table: Table, text_column: str | None, label_column: str | None) -> Columns:
    """Find the text and label columns of a table.

    A column is given by its name, or by its number counted from 1; `text_column` may give several, separated by commas.
    """
    text = _given_text(table, text_column)
    label = None if label_column is None else _find(table, label_column, "label_column")
    if label is None:
        label = _guess_label(table, taken=text or ())
    if text is None:
        text = _guess_text(table, label)
    if label in text:
        raise DataError(f"Column {table.names[label]!r} of {table.path} cannot be both the text and the label.")
    guessed = {(True, True): "", (False, False): " (guessed)", (True, False): " (label guessed)"}
    how = guessed.get((text_column is not None, label_column is not None), " (text guessed)")
    names = " and ".join(repr(table.names[i]) for i in text)
    if table.has_header:
        note = f"Text is read from column {names}, the label from column {table.names[label]!r}{how}."
    else:
        note = (
            f"{table.path.name} has no header line: text is read from column {names}, "
            f"the label from column {table.names[label]!r}, counted from 1{how}."
        )
    return Columns(text, label, note)


def same_columns(columns: Columns, model: Table, table: Table) -> Columns:
    """The columns of `table` that correspond to those chosen in `model`: by name, or by place if one has no header."""
    if model.has_header and table.has_header:
        text = tuple(_find(table, model.names[i], "") for i in columns.text)
        return Columns(text, _find(table, model.names[columns.label], ""), columns.note)
    if len(table.names) != len(model.names):
        raise DataError(f"{table.path} has {len(table.names)} columns where {model.path.name} has {len(model.names)}.")
    return columns


def _given_text(table: Table, text_column: str | None) -> tuple[int, ...] | None:
    if text_column is None:
        return None
    if text_column in table.names:
        return (table.names.index(text_column),)
    names = given_names(text_column)
    if not names:
        raise DataError(f"text_column {text_column!r} names no column; {table.path} has {_listing(table)}.")
    return tuple(_find(table, name, "text_column") for name in names)


def _find(table: Table, name: str, argument: str) -> int:
    if name in table.names:
        return table.names.index(name)
    alike = [i for i, other in enumerate(table.names) if normalise_name(other) == normalise_name(name)]
    if len(alike) == 1:
        return alike[0]
    if name.isdecimal() and 1 <= int(name) <= len(table.names):
        return int(name) - 1
    asked = f" ({argument})" if argument else ""
    raise DataError(f"{table.path} has no column {name!r}{asked}; it has {_listing(table)}.")


def _listing(table: Table) -> str:
    names = ", ".join(repr(name) for name in table.names)
    return (
        f"the columns {names}"
        if table.has_header
        else f"no header line and {len(table.names)} columns, numbered from 1"
    )


def _guess_label(table: Table, taken: Sequence[int]) -> int:
    free = [i for i in range(len(table.names)) if i not in taken]
    by_name = _by_name(table, LABEL_NAMES, free)
    if by_name is not None:
        return by_name
    if not taken:
        text = _by_name(table, WHOLE_TEXT_NAMES, free)
        free = [i for i in free if i != text]
    if len(free) == 1:
        return free[0]
    counts = {i: len(set(map(str, table.columns[i][:_SAMPLED_ROWS]))) for i in free}
    rows = min(len(table), _SAMPLED_ROWS)
    candidates = [i for i in free if 2 <= counts[i] <= rows / 2]
    if not candidates:
        raise DataError(
            f"The label column of {table.path} cannot be guessed; give label_column (it has {_listing(table)})."
        )
    return min(candidates, key=lambda i: counts[i])


def _guess_text(table: Table, label: int) -> tuple[int, ...]:
    free = [i for i in range(len(table.names)) if i != label]
    whole = _by_name(table, WHOLE_TEXT_NAMES, free)
    if whole is not None:
        return (whole,)
    parts = tuple(i for i in free if normalise_name(table.names[i]) in PART_TEXT_NAMES)
    if parts:
        return parts
    longest = max(free, key=lambda i: _mean_length(table.columns[i]))
    if table.has_header:
        return (longest,)
    # Files without a header are mostly of the form label, title, body: all that reads like a text is one.
    return tuple(i for i in free if i == longest or _reads_like_text(table.columns[i]))


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


def _mean_length(column: Sequence[object]) -> float:
    sample = column[:_SAMPLED_ROWS]
    return sum(len(value) for value in sample if isinstance(value, str)) / len(sample)


def _reads_like_text(column: Sequence[object]) -> bool:
    """Whether the values have two words or more on average; an empty column does, as it may be filled in test."""
    values = [value for value in column[:_SAMPLED_ROWS] if isinstance(value, str) and value.strip()]
    return not values or sum(len(value.split()) for value in values) >= 2 * len(values)

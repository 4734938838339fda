"""Which column of a table is the label, which are texts, and which hold numbers or categories.

Nothing is guessed among several candidates for the label: the user says which one it is.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from adaptive_labels.lab.data.dataset import DataError
from adaptive_labels.lab.data.frames import LABEL_NAMES, Table, normalise_name
from adaptive_labels.lab.data.rows import clean, holds_numbers, to_number
from adaptive_labels.lab.words import joined, listed, plural

NO_TEXT = "none"
MOST_CATEGORIES = 50  # distinct values of a column of categories, or a tenth of the rows if that is more
_MOST_FRACTIONS = 10  # distinct values of a label that is written with fractions
_SAMPLED_ROWS = 5_000
_INDEX_NAMES = ("id", "index", "idx", "row", "uuid", "guid", "key", "unnamed:_0", "")
# A word of a sentence: letters, perhaps with hyphens or apostrophes, and with punctuation around them.
_WORD = re.compile(r"[^\w]*([^\W\d_]+(?:['’-][^\W\d_]+)*)[^\w]*")
_UNSPACED = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")  # Thai, kana and ideographs, not cut into words
_LEAST_WORDS = 1.5


class LabelError(DataError):
    """Several columns could be the label; `option` is what to add to the command."""

    def __init__(self, words: str, option: Sequence[str]) -> None:
        super().__init__(words)
        self.option = option


class Columns(NamedTuple):
    label: str
    names: tuple[str, ...]  # of texts, to be joined; or of numbers and categories
    numeric: tuple[bool, ...] | None  # whether each of those holds numbers; None for texts


def choose_columns(table: Table, text_column: str | None, label_column: str | None) -> Columns:
    """What is given, or what the rules above find: texts, else numbers and categories."""
    no_text = text_column is not None and text_column.lower() == NO_TEXT and NO_TEXT not in map(str.lower, table.names)
    texts = () if text_column is None or no_text else given_texts(table, text_column)
    label = find_label(table, texts) if label_column is None else find_column(table, label_column, " (label_column)")
    texts = texts or (() if no_text else find_texts(table, label))
    if label in texts:
        raise DataError(f"Column {label!r} of {table.path} cannot be both the text and the label.")
    if texts:
        return Columns(label, texts, None)
    numeric = feature_columns(table, label)
    if not numeric:
        raise DataError(
            f"{table.path} has no column of text, numbers or categories besides {label!r}; give text_column (it has "
            f"{columns_of(table)})."
        )
    return Columns(label, tuple(numeric), tuple(numeric.values()))


def given_names(argument: str | None) -> list[str]:
    """The column names in an argument of the user's; several are separated by commas."""
    return [name.strip() for name in (argument or "").split(",") if name.strip()]


def given_texts(table: Table, text_column: str) -> tuple[str, ...]:
    if text_column in table.names:
        return (text_column,)
    names = given_names(text_column)
    if not names:
        raise DataError(f"text_column {text_column!r} names no column; {table.path} has {columns_of(table)}.")
    return tuple(find_column(table, name, " (text_column)") for name in names)


def find_column(table: Table, name: str, argument: str = "") -> str:
    """The column of a name, spelt as it is or alike, or of a number from 1."""
    if name in table.names:
        return name
    alike = [other for other in table.names if normalise_name(other) == normalise_name(name)]
    if len(alike) == 1:
        return alike[0]
    if name.isdecimal() and 1 <= int(name) <= len(table.names):
        return table.names[int(name) - 1]
    raise DataError(f"{table.path} has no column {name!r}{argument}; it has {columns_of(table)}.")


def same_column(name: str, model: Table, table: Table) -> str:
    """The column of ``table`` that corresponds to one of ``model``: by name, or by place if one has no header."""
    if model.has_header and table.has_header:
        return find_column(table, name)
    if len(table.names) != len(model.names):
        raise DataError(f"{table.path} has {len(table.names)} columns where {model.path.name} has {len(model.names)}.")
    return table.names[model.names.index(name)]


def find_label(table: Table, texts: Sequence[str]) -> str:
    """The column that is called as labels are, if there is one; else the only one whose values repeat as classes do."""
    free = [name for name in table.names if name not in texts]
    named = [name for name in free if normalise_name(name) in LABEL_NAMES]
    if len(named) == 1:
        return named[0]
    candidates = {name: count for name in free if (count := _classes(table, name))}
    if len(candidates) == 1:
        return next(iter(candidates))
    if not candidates:
        raise DataError(
            f"No column of {table.path} repeats its values as classes do; give label_column "
            f"(it has {columns_of(table)})."
        )
    shown = listed(f"{name!r} ({plural(count, 'class', 'classes')})" for name, count in candidates.items())
    raise LabelError(
        f"Several columns of {table.path} could be the label: {shown}; give label_column.",
        ["--label-column", list(candidates)[-1]],
    )


def find_texts(table: Table, label: str | None) -> tuple[str, ...]:
    """The columns that read as text; also the only one beside the label, if it holds neither numbers nor categories."""
    free = [name for name in table.names if name != label]
    texts = {name for name in free if reads_as_text(_sample(table, name))}
    if texts:  # an empty column may be filled in another split
        return tuple(name for name in free if name in texts or not any(_sample(table, name)))
    return tuple(free) if len(free) == 1 and not feature_columns(table, label) else ()


def feature_columns(table: Table, label: str | None) -> dict[str, bool]:
    """The columns of numbers (true) and of categories; one value, codes or the row's number are neither."""
    columns = {}
    for name in table.names:
        values = _sample(table, name)
        distinct, numbers = len(set(filter(None, values))), holds_numbers(values)
        few = distinct <= min(max(MOST_CATEGORIES, len(values) / 10), len(values) / 2)
        usable = not _is_index(name, values, _sampled_rows(table)) if numbers else few and not reads_as_text(values)
        if name != label and distinct >= 2 and usable:
            columns[name] = numbers
    return columns


def text_columns_of(table: Table, text_column: str | None = None, trained_on: Sequence[str] = ()) -> Sequence[str]:
    """The columns that hold the texts of a table without a label.

    They are the given ones; else those that training read, if they are there; else those that read as text.
    """
    if text_column is not None:
        return given_texts(table, text_column)
    if trained_on and set(trained_on) <= set(table.names):
        return trained_on
    names = tuple(table.names) if len(table.names) == 1 else find_texts(table, None)
    if not names:
        raise DataError(f"No column of {table.path} reads as text; give text_column (it has {columns_of(table)}).")
    return names


def row_columns_of(table: Table, names: Sequence[str]) -> Sequence[str]:
    """The columns of a table without a label that training knew by these names.

    Of a table without a header that has so many columns and no others, they are read in their order.
    """
    in_order = not table.has_header and len(table.names) == len(names)
    return table.names if in_order else [find_column(table, name) for name in names]


def reads_as_text(values: Sequence[str]) -> bool:
    """Whether values are words in a sentence or phrase, mostly different ones; not numbers, codes or names.

    Names and codes begin with capital letters or hold digits; of words in sentences most do not.

    >>> reads_as_text(["a good film", "not for me"]), reads_as_text(["Smith, Mr. John", "Lee, Mrs. Ann"])
    (True, False)
    """
    given = [value for value in values if value]
    distinct = len(set(given))
    if not given or not (distinct > MOST_CATEGORIES or distinct >= len(given) / 2):
        return False
    capitals = sum(letter.isupper() for value in given for letter in value)
    shouted = capitals > 0.8 * sum(letter.isalpha() for value in given for letter in value)
    words = 0.0
    for value in given:
        for token in value.split():
            if unspaced := len(_UNSPACED.findall(token)):
                words += unspaced / 2
            elif (word := _WORD.fullmatch(token)) is not None:
                words += shouted or not word[1][0].isupper()
    return words >= _LEAST_WORDS * len(given)


def _classes(table: Table, name: str) -> int:
    """How many classes a column has whose values repeat as labels do; 0 if it is none such."""
    values = [value for value in map(_shown, table.frame[name].tolist()) if value]
    distinct = set(values)
    if not 2 <= len(distinct) <= len(values) / 2:
        return 0
    if holds_numbers(values):  # measured ones are no labels
        numbers = set(map(to_number, distinct))
        most = _MOST_FRACTIONS if any(number % 1 for number in numbers) else MOST_CATEGORIES
        return len(distinct) if len(numbers) <= most else 0
    return 0 if reads_as_text(values[:_SAMPLED_ROWS]) else len(distinct)


def _sampled_rows(table: Table) -> range:
    return range(0, len(table), -(-len(table) // _SAMPLED_ROWS))  # all over the table: many files are sorted by class


def _sample(table: Table, name: str) -> list[str]:
    """Some values of a column as texts, missing ones empty."""
    return list(map(_shown, table.frame[name].iloc[_sampled_rows(table)].tolist()))


def _shown(value: object) -> str:
    return clean("" if value is None else str(value))


def _is_index(name: str, values: Sequence[str], rows: range) -> bool:
    """Whether a column only counts the rows: all values differ, and it is named so or rises by one."""
    if len(set(values)) < len(values):
        return False
    if normalise_name(name) in _INDEX_NAMES or normalise_name(name).endswith("_id"):
        return True
    numbers = list(map(to_number, values))
    return len(values) > 2 and numbers[0] in (0, 1) and numbers == [numbers[0] + row for row in rows]


def columns_of(table: Table) -> str:
    if table.has_header:
        return f"the columns {listed(map(repr, table.names))}"
    return f"no header line and {len(table.names)} columns, numbered from 1"


def columns_notes(table: Table, columns: Columns) -> list[str]:
    names = " and ".join(map(repr, columns.names))
    notes = [f"Text is read from column {names}, the label from column {columns.label!r}."]
    hint = "--text-column none reads numbers and categories instead"
    if columns.numeric is not None:
        kinds = []
        for wanted, thing, things in ((True, "number", "numbers"), (False, "category", "categories")):
            some = [name for name, numeric in zip(columns.names, columns.numeric, strict=True) if numeric is wanted]
            kinds += [f"{plural(len(some), thing, things)} ({listed(map(repr, some), 5)})"] if some else []
        notes = [f"The label is read from column {columns.label!r}.", f"No text is read: each row is {joined(kinds)}."]
        hint = "names, codes, the number of the row or one value; --text-column reads one as text"
    if not table.has_header:
        notes[0] = f"{table.path.name} has no header line: {notes[0][0].lower()}{notes[0][1:-1]}, counted from 1."
    others = [name for name in table.names if name not in (columns.label, *columns.names)]
    return [*notes, f"Not read: {listed(map(repr, others))} ({hint})."] if others else notes

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


class FeatureColumns(NamedTuple):
    """The columns that hold numbers or categories, and whether each holds numbers."""

    names: tuple[str, ...]
    numeric: tuple[bool, ...]


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
    return tuple(free) if len(free) == 1 and not feature_columns(table, label).names else ()


def feature_columns(table: Table, label: str | None) -> FeatureColumns:
    """The columns of numbers and of categories; one value, codes or the row's number are neither."""
    names, numeric = [], []
    for name in table.names:
        values = _sample(table, name)
        distinct, numbers = len(set(filter(None, values))), holds_numbers(values)
        few = distinct <= min(max(MOST_CATEGORIES, len(values) / 10), len(values) / 2)
        usable = not _is_index(name, values, _sampled_rows(table)) if numbers else few and not reads_as_text(values)
        if name != label and distinct >= 2 and usable:
            names.append(name)
            numeric.append(numbers)
    return FeatureColumns(tuple(names), tuple(numeric))


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


def features_note(columns: FeatureColumns) -> str:
    """What is read of each row."""
    kinds = []
    for wanted, thing, things in ((True, "number", "numbers"), (False, "category", "categories")):
        names = [name for name, numeric in zip(columns.names, columns.numeric, strict=True) if numeric is wanted]
        if names:
            kinds.append(f"{plural(len(names), thing, things)} ({listed(map(repr, names), 5)})")
    return f"No text is read: each row is {joined(kinds)}."

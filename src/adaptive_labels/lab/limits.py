"""The largest sizes of files that are accepted, in one table; each is checked where a file is opened."""

import os
from typing import NamedTuple

from adaptive_labels.errors import UserError


class LimitError(UserError):
    """A file that holds more than a limit; the message names the limit and how to raise it."""


class Limit(NamedTuple):
    """A number of some unit that must not be exceeded, unless the environment variable says another."""

    variable: str
    default: int
    unit: str


FILE_LIMITS = {
    "pixels": Limit("ALR_MAX_PIXELS", 178_956_970, "pixels"),  # of one image: what Pillow refuses, too
    "field": Limit("ALR_MAX_FIELD", 10_000_000, "characters in one field"),
    "columns": Limit("ALR_MAX_COLUMNS", 10_000, "columns"),
    "file": Limit("ALR_MAX_FILE", 4 * 2**30, "bytes"),  # of a file that is read as a whole, decompressed
    "archive": Limit("ALR_MAX_ARCHIVE", 64 * 2**30, "bytes of members"),  # of one that is read piece by piece
    "members": Limit("ALR_MAX_MEMBERS", 100_000, "members"),
    "nesting": Limit("ALR_MAX_NESTING", 100, "levels of nesting"),
}


def limit_of(name: str) -> int:
    """What a limit of the table is now."""
    limit = FILE_LIMITS[name]
    given = os.environ.get(limit.variable) or str(limit.default)
    if not given.isdecimal() or int(given) < 1:
        raise UserError(f"{limit.variable} is {given!r}: allowed is a whole number of at least 1")
    return int(given)


def exceeded(name: str, what: object) -> LimitError:
    """The error for something that holds more than a limit."""
    limit = FILE_LIMITS[name]
    raised = f"the environment variable {limit.variable} raises this limit"
    return LimitError(f"{what} has more than {limit_of(name):,} {limit.unit}; {raised}.")


def check_limit(name: str, count: int, what: object) -> None:
    """Refuse something that holds more than a limit."""
    if count > limit_of(name):
        raise exceeded(name, what)

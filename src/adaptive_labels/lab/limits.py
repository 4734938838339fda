"""The largest sizes of files that are accepted, and the environment variable that raises each limit."""

import os
from typing import NamedTuple

from adaptive_labels.errors import UserError


class LimitError(UserError):
    """A file that holds more than a limit; the sentence names the limit and how to raise it."""


class Limit(NamedTuple):
    """A number that must not be exceeded, in units, unless the environment variable says another."""

    variable: str
    default: int
    unit: str


PIXELS = Limit("ALR_MAX_PIXELS", 178_956_970, "pixels")  # of one image: what Pillow refuses, too
FIELD = Limit("ALR_MAX_FIELD", 10_000_000, "characters in one field")
COLUMNS = Limit("ALR_MAX_COLUMNS", 10_000, "columns")
FILE = Limit("ALR_MAX_FILE", 4 * 2**30, "bytes")  # of a file that is read as a whole, decompressed
ARCHIVE = Limit("ALR_MAX_ARCHIVE", 64 * 2**30, "bytes of members")  # of an archive that is read piece by piece
MEMBERS = Limit("ALR_MAX_MEMBERS", 100_000, "members")
NESTING = Limit("ALR_MAX_NESTING", 100, "levels of nesting")


def value(limit: Limit) -> int:
    """What a limit is now."""
    given = os.environ.get(limit.variable) or str(limit.default)
    if not given.isdecimal() or int(given) < 1:
        raise UserError(f"{limit.variable} is {given!r}: allowed is a whole number of at least 1")
    return int(given)


def exceeded(limit: Limit, what: object) -> LimitError:
    """The sentence on something that holds more than a limit."""
    return LimitError(
        f"{what} has more than {value(limit):,} {limit.unit}; "
        f"the environment variable {limit.variable} raises this limit."
    )


def check(limit: Limit, found: int, what: object) -> None:
    """Refuse something that holds more than a limit."""
    if found > value(limit):
        raise exceeded(limit, what)

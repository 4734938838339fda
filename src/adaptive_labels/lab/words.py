"""Parts of sentences: a number with its noun, a list of names, a shortened text."""

from collections.abc import Iterable

_LONGEST_NAME = 80


def plural(count: int, thing: str, things: str | None = None) -> str:
    """The number with its noun: '1 file', '1,203 files'."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def joined(names: list[str]) -> str:
    """All names: "a", "a and b", "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def listed(names: Iterable[str], most: int = 20) -> str:
    """The first names, each cut if it is long, and how many more there are.

    >>> listed((str(number) for number in range(30)), most=3)
    '0, 1, 2 and 27 more'
    """
    every = list(names)
    shown = ", ".join(shorten(name, _LONGEST_NAME + 1) for name in every[:most])
    return shown + (f" and {len(every) - most:,} more" if len(every) > most else "")


def shorten(text: str, longest: int = 20) -> str:
    """A text of at most so many characters, the last of them "…" if it was cut."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def first_line(error: Exception) -> str:
    """The first line of what an error says, or its kind if it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)

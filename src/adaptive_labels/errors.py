"""The error class for mistakes that the user can correct; its message is one sentence."""

import difflib
import numbers
import signal
from collections.abc import Iterable, Mapping


class UserError(ValueError):
    """A mistake in what the user gave: a name, a value, a file. Its message is one sentence that says what to do.

    Commands print the sentence and end with status 2; every other exception keeps its traceback.
    """


class Stopped(KeyboardInterrupt):
    """A signal asked the process to stop; the message says what is kept."""

    def __init__(self, words: str = "", number: int = signal.SIGINT) -> None:
        super().__init__(words)
        self.number = number


def check_positive(**sizes: int) -> None:
    """Refuse sizes below 1, and such as are no whole numbers, by their names."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} is {size}; it must be at least 1")
        if not isinstance(size, numbers.Integral):
            raise ValueError(f"{name} is {size}; it must be a whole number")


def check_switches(options: Mapping[str, object], defaults: Mapping[str, object]) -> None:
    """Refuse texts and the like for options that are true or false by default: "no" would count as true."""
    for name, value in options.items():
        if isinstance(defaults[name], bool) and value not in (True, False):
            raise UserError(f"option {name!r} is {value!r}; it must be true or false")


def did_you_mean(given: object, known: Iterable[str], prefix: str = "") -> str:
    """The end of a sentence that suggests the known name nearest to the given one; empty if none is near.

    >>> did_you_mean("arl", ["alr", "dml"])
    '; did you mean alr?'
    """
    close = difflib.get_close_matches(str(given), list(known), n=1, cutoff=0.5)
    return f"; did you mean {prefix}{close[0]}?" if close else ""

"""The names of the data sets, and the readers of the user's own files. A new one is a file in this folder."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from adaptive_labels.data.splits import RawDataset

Read = TypeVar("Read", bound=Callable[..., RawDataset])
Fetch = Callable[[Path, Callable[[int, int | None], None]], list[str]]


@dataclass(frozen=True)
class NamedDataset:
    """A data set that has a name.

    Args:
        description: what it is, in a line.
        read: called with `data_dir`, and with those of `load_dataset`'s options that it has an argument for.
        fetch: downloads it to a folder, where it has to be downloaded (see `archives.fetch`); nothing else ever does.
    """

    description: str
    read: Callable[..., RawDataset]
    fetch: Fetch | None = None


@dataclass(frozen=True)
class Reader:
    """A reader of the user's own files.

    Args:
        what: it reads, as it stands in messages: "image folder".
        can_read: whether a path is one for this reader.
        read: called with the path, and with those of `load_dataset`'s options that it has an argument for.
    """

    what: str
    can_read: Callable[[Path], bool]
    read: Callable[..., RawDataset]


DATASETS: dict[str, NamedDataset] = {}
"""Every data set that has a name."""

READERS: list[Reader] = []
"""The readers of paths; the first that can read a path does."""


def register_dataset(name: str, description: str, *, fetch: Fetch | None = None) -> Callable[[Read], Read]:
    """Enter a function that reads a data set under its name; see `NamedDataset`."""

    def enter(read: Read) -> Read:
        DATASETS[name] = NamedDataset(description, read, fetch)
        return read

    return enter


def register_reader(what: str, can_read: Callable[[Path], bool]) -> Callable[[Read], Read]:
    """Enter a function that reads a path; see `Reader`."""

    def enter(read: Read) -> Read:
        READERS.append(Reader(what, can_read, read))
        return read

    return enter


def options_of(read: Callable[..., RawDataset]) -> set[str]:
    """The names of a reader's arguments."""
    return set(inspect.signature(read).parameters)

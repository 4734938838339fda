"""Readers: the user's own files by path, and data sets by name. A new one is a file in this folder.

A reader is called with the folder of the data or the path, and with those options of `load_dataset` that it takes.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from adaptive_labels.lab.data.downloads import OnProgress
from adaptive_labels.lab.data.splits import RawDataset

Read = TypeVar("Read", bound=Callable[..., RawDataset])
Fetch = Callable[[Path, OnProgress], list[str]]


@dataclass(frozen=True)
class NamedDataset:
    description: str
    read: Callable[..., RawDataset]
    fetch: Fetch | None = None  # downloads it to a folder, if that can be done; nothing else ever downloads


@dataclass(frozen=True)
class Reader:
    what: str  # what it reads, for messages: "image folder"
    can_read: Callable[[Path], bool]
    read: Callable[..., RawDataset]


DATASETS: dict[str, NamedDataset] = {}
"""Every data set that has a name."""

READERS: list[Reader] = []
"""The readers of paths; the first that can read a path does."""


def register_dataset(name: str, description: str, *, fetch: Fetch | None = None) -> Callable[[Read], Read]:

    def register(read: Read) -> Read:
        DATASETS[name] = NamedDataset(description, read, fetch)
        return read

    return register


def register_reader(what: str, can_read: Callable[[Path], bool]) -> Callable[[Read], Read]:

    def register(read: Read) -> Read:
        READERS.append(Reader(what, can_read, read))
        return read

    return register


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

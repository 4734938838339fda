"""Which tables of a folder are which split, by their names.

They may be train.csv, reviews_train.csv, the parts train-00000-of-00002.parquet … of Hugging Face, mostly in data/, or
TREC's train_5500.label and TREC_10.label.
"""

import re
from pathlib import Path

from adaptive_labels.lab.data.dataset import SPLIT_SPELLINGS, DataError, SplitName, find_splits
from adaptive_labels.lab.data.sources.tables import tables_in
from adaptive_labels.lab.words import listed

_TREC_FILE = re.compile(r"(train|trec)_\d+\.label")  # train_5500.label and TREC_10.label, which is the test split
_PART = re.compile(r"(.+)-\d+-of-(\d+)")
_SPELLINGS = [spelling for spellings in SPLIT_SPELLINGS.values() for spelling in spellings]
_SPLIT_AT_END = re.compile(rf".+[_.\- ]({'|'.join(_SPELLINGS)})")


def tables_of(folder: Path) -> list[Path]:
    """The tables in a folder, or else those in its folder data/ or in the only folder that has some."""
    own = tables_in(folder)
    if own:
        return own
    inside = {path: tables_in(path) for path in sorted(folder.iterdir()) if path.is_dir()}
    having = [tables for path, tables in inside.items() if tables and (path.name == "data" or len(inside) == 1)]
    return having[0] if having else []


def find_files(folder: Path, notes: list[str]) -> dict[SplitName, list[Path]]:
    """The files of each split; several are the parts of one table."""
    tables = tables_of(folder)
    groups: dict[tuple[str, Path | int], list[Path]] = {}  # the parts of one table, or a table of its own
    for path in tables:
        name, parts = _name_and_parts(path)
        groups.setdefault((name, parts or path), []).append(path)
    for (name, parts_or_path), paths in groups.items():
        if isinstance(parts_or_path, int) and len(paths) != parts_or_path:
            raise DataError(f"{folder} has {len(paths)} of the {parts_or_path} parts of its table {name!r}.")
    parts_of = {paths[0]: paths for paths in groups.values()}  # the first part stands for all
    names = {paths[0]: name for (name, _), paths in groups.items()}
    files = find_splits(folder, names)
    if "train" not in files:
        first: dict[str, Path] = {}  # of a_train.csv and a_train.tsv
        for path, name in names.items():
            first.setdefault(name, path)
        ends = {path: _SPLIT_AT_END.fullmatch(name) for name, path in first.items()}
        by_end = find_splits(folder, {path: end[1] for path, end in ends.items() if end is not None})
        files = by_end if "train" in by_end else files
    if "train" not in files:
        if len(set(names.values())) != 1 or files:
            shown = listed(path.name for path in tables)
            raise DataError(f"{folder} has no table named train.*, only {shown}.")
        files = {"train": tables[0]}
    found = {split: parts_of[path] for split, path in files.items()}
    unused = [path.name for path in tables if not any(path in paths for paths in found.values())]
    notes += [f"Not used: {listed(unused)}."] if unused else []
    return found


def _name_and_parts(path: Path) -> tuple[str, int]:
    """A table's name in lower case without its suffix, or of cooking.train the suffix; and the number of its parts."""
    name = path.name.lower().removesuffix(".gz")
    if (trec := _TREC_FILE.fullmatch(name)) is not None:
        return {"train": "train", "trec": "test"}[trec[1]], 0
    stem, _, suffix = name.rpartition(".")
    stem = suffix if suffix in _SPELLINGS else stem.removesuffix(".ft")
    part = _PART.fullmatch(stem)
    return (stem, 0) if part is None else (part[1], int(part[2]))

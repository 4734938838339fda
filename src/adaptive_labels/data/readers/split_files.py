"""Which tables of a folder are which split, by their names.

They may be train.csv, reviews_train.csv, the parts train-00000-of-00002.parquet … of Hugging Face, mostly in data/, or
TREC's train_5500.label and TREC_10.label.
"""

import re
from pathlib import Path

from adaptive_labels.data.dataset import SPLIT_SPELLINGS, DataError, SplitName, find_splits
from adaptive_labels.data.readers.tables import tables_in
from adaptive_labels.words import listed

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
    parts: dict[str, list[Path]] = {}
    for path in tables:
        parts.setdefault(_stem(path), []).append(path)
    for name, paths in parts.items():
        if (part := _PART.fullmatch(_plain_stem(paths[0]))) is not None and len(paths) != int(part[2]):
            raise DataError(f"{folder} has {len(paths)} of the {int(part[2])} parts of its table {name!r}.")
    files = find_splits(folder, {path: name for name, paths in parts.items() for path in _separate(paths)})
    if "train" not in files:
        ends = {path: _SPLIT_AT_END.fullmatch(name) for name, paths in parts.items() for path in paths[:1]}
        by_end = find_splits(folder, {path: end[1] for path, end in ends.items() if end is not None})
        files = by_end if "train" in by_end else files
    if "train" not in files:
        if len(parts) != 1 or files:
            names = listed(path.name for path in tables)
            raise DataError(f"{folder} has no table named train.*, only {names}.")
        files = {"train": tables[0]}
    found = {split: parts[_stem(path)] if _is_part(path) else [path] for split, path in files.items()}
    unused = [path.name for path in tables if not any(path in paths for paths in found.values())]
    notes += [f"Not used: {listed(unused)}."] if unused else []
    return found


def _separate(paths: list[Path]) -> list[Path]:
    """Tables of one name: the first part stands for all parts, but train.csv and train.tsv are two tables."""
    return paths[:1] if all(map(_is_part, paths)) else paths


def _is_part(path: Path) -> bool:
    return _PART.fullmatch(_plain_stem(path)) is not None


def _stem(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    if (trec := _TREC_FILE.fullmatch(name)) is not None:
        return {"train": "train", "trec": "test"}[trec[1]]
    stem = _plain_stem(path)
    part = _PART.fullmatch(stem)
    return stem if part is None else part[1]


def _plain_stem(path: Path) -> str:
    """The name in lower case without its suffix; of fastText's cooking.train, the suffix."""
    name = path.name.lower().removesuffix(".gz")
    stem, _, suffix = name.rpartition(".")
    return suffix if suffix in _SPELLINGS else stem.removesuffix(".ft")

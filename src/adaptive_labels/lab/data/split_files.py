"""Which tables of a folder are which split, by how their names end.

They may be train.csv, reviews_train.csv, the parts train-00000-of-00002.parquet … of Hugging Face, mostly in data/, or
TREC's train_5500.label and TREC_10.label.
"""

import re
from pathlib import Path

from adaptive_labels.lab.data.dataset import SPLIT_SPELLINGS, DataError, SplitName
from adaptive_labels.lab.data.frames import is_table
from adaptive_labels.lab.words import listed

_SPLIT_OF: dict[str, SplitName] = {name: split for split, names in SPLIT_SPELLINGS.items() for name in names}
_SPELLINGS = "|".join(_SPLIT_OF)
_SPLIT_OF["trec"] = "test"  # TREC_10.label
_NAME = re.compile(rf"(?:.+[_.\- ])?({_SPELLINGS}|trec(?=_\d+\.label))(?:_\d+(?=\.label)|-\d+-of-(\d+))?\..+")


def tables_of(folder: Path) -> list[Path]:
    """The tables in a folder, or else those in its folder data/ or in the only folder that has some."""
    if own := _tables_in(folder):
        return own
    inside = {path: _tables_in(path) for path in sorted(folder.iterdir()) if path.is_dir()}
    having = [tables for path, tables in inside.items() if tables and (path.name == "data" or len(inside) == 1)]
    return having[0] if having else []


def _tables_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and is_table(path))


def find_files(folder: Path, notes: list[str]) -> dict[SplitName, list[Path]]:
    """The files of each split; several are the parts of one table."""
    tables = tables_of(folder)
    found: dict[SplitName, list[Path]] = {}
    parts_of: dict[SplitName, set[int]] = {}
    for path in tables:
        if (name := _NAME.fullmatch(path.name.lower())) is not None:
            found.setdefault(_SPLIT_OF[name[1]], []).append(path)
            parts_of.setdefault(_SPLIT_OF[name[1]], set()).add(int(name[2] or 1))
    for split, paths in found.items():
        parts = parts_of[split]
        if len(paths) == 1 and parts == {1}:
            continue
        if len(parts) != 1 or parts == {1}:
            shown = ", ".join(path.name for path in paths)
            raise DataError(f"{folder} has more than one {split} split ({shown}); keep one of them.")
        if len(paths) != (expected := parts.pop()):
            raise DataError(f"{folder} has {len(paths)} of the {expected} parts of its {split} split.")
    if "train" not in found:
        if len(tables) != 1 or found:
            shown = listed(path.name for path in tables)
            raise DataError(f"{folder} has no table named train.*, only {shown}.")
        found = {"train": tables}
    unused = [path.name for path in tables if not any(path in paths for paths in found.values())]
    notes += [f"Not used: {listed(unused)}."] if unused else []
    return found

"""Which tables of a folder are which split, by how their names end.

They may be train.csv, reviews_train.csv, train-00000-of-00001.parquet as Hugging Face names it (mostly in data/), or
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
_NAME = re.compile(rf"(?:.+[_.\- ])?({_SPELLINGS}|trec(?=_\d+\.label))(?:_\d+(?=\.label)|-\d+-of-\d+)?\..+")


def tables_of(folder: Path) -> list[Path]:
    """The tables in a folder, or else those in its folder data/."""
    for place in (folder, folder / "data"):
        if place.is_dir() and (tables := sorted(path for path in place.iterdir() if path.is_file() and is_table(path))):
            return tables
    return []


def find_files(folder: Path, notes: list[str]) -> dict[SplitName, Path]:
    """The table of each split; the only table of a folder is train."""
    tables = tables_of(folder)
    files: dict[SplitName, Path] = {}
    for path in tables:
        if (name := _NAME.fullmatch(path.name.lower())) is not None:
            split = _SPLIT_OF[name[1]]
            if (other := files.setdefault(split, path)) != path:
                raise DataError(
                    f"{folder} has more than one table of its {split} split ({other.name}, {path.name}); keep one of "
                    "them, or join them."
                )
    if not files and len(tables) == 1:
        return {"train": tables[0]}
    if "train" not in files:
        raise DataError(f"{folder} has no table named train.*, only {listed(path.name for path in tables)}.")
    unused = [path.name for path in tables if path not in files.values()]
    notes += [f"Not used: {listed(unused)}."] if unused else []
    return files

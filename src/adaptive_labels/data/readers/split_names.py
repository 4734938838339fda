"""How files and folders are named by their split."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from adaptive_labels.data.dataset import DataError

SPLIT_SPELLINGS = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}


def find_split(folder: Path, split: str, paths: Sequence[Path], names: Mapping[Path, str]) -> Path | None:
    """The one of `paths` whose name (without suffix, in lower case) stands for the split, or None."""
    found = [path for path in paths if names[path] in SPLIT_SPELLINGS[split]]
    if len(found) > 1:
        shown = ", ".join(path.name for path in found)
        raise DataError(f"{folder} has more than one {split} split ({shown}); keep one of them.")
    return found[0] if found else None

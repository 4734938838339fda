"""`imagenet`: photographs of 1,000 kinds of things (Russakovsky et al. 2015), from the usual folders train/, val/."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from adaptive_labels.lab.data.dataset import DataError, SplitName
from adaptive_labels.lab.data.downloads import place_of
from adaptive_labels.lab.data.pixels import is_image
from adaptive_labels.lab.data.sources import register_dataset
from adaptive_labels.lab.data.sources.images import ImageFile, files_in, images_of, stream, subfolders
from adaptive_labels.lab.data.splits import RawDataset
from adaptive_labels.lab.files import read_text

SIZE = 224
VALIDATION_FRACTION = 0.02  # of train is held out: about 25 images per class
_PLACES = ("", "imagenet", "ILSVRC/Data/CLS-LOC", "imagenet/ILSVRC/Data/CLS-LOC")
_MAPPING = "LOC_synset_mapping.txt"


@register_dataset("imagenet", "photographs of any size, 1,000 classes, 1.3 million images (folders train/ and val/)")
def read_imagenet(data_dir: Path | None = None, *, image_size: int | None = None) -> RawDataset:
    """List the images; they stay files. val/ is the test split, validation is held out from train by a seeded split.

    The classes are in the order of their synset ids, as everywhere.
    """
    root, where = place_of(data_dir)
    folder = _find(root, where)
    synsets = [path.name for path in subfolders(folder / "train")]
    if len(synsets) < 2:
        raise DataError(f"{folder / 'train'} has {len(synsets)} class folders; a classifier needs at least two.")
    splits: dict[SplitName, list[ImageFile]] = {
        "train": _files(folder, "train", synsets),
        "test": _files(folder, "val", synsets),
    }
    classes, source = _class_names(folder, root, synsets)
    notes = ["val/ is the test split, as the field has it. Class names are " + source]
    raw = stream(folder, "imagenet", classes, splits, image_size or SIZE, notes, labels=synsets)
    return replace(raw, validation_fraction=VALIDATION_FRACTION)


def _find(root: Path, where: str) -> Path:
    for place in _PLACES:
        if (root / place / "train").is_dir() and (root / place / "val").is_dir():
            return root / place
    raise DataError(
        f"The data set imagenet is not {where}: there are no folders train/ and val/ with a folder of images for each "
        "synset. It cannot be downloaded without an account; name the folder that has it with --data-dir."
    )


def _files(folder: Path, split: str, synsets: Sequence[str]) -> list[ImageFile]:
    files: list[ImageFile] = []
    for synset in synsets:
        inside = folder / split / synset
        if not inside.is_dir():
            loose = any(map(is_image, (folder / split).iterdir()))
            hint = "; its images must be sorted into a folder for each synset first" if loose else ""
            raise DataError(f"{folder / split} has no folder {synset}/, which train/ has{hint}.")
        images = images_of(folder, inside, list(files_in(inside)))
        if not images:
            raise DataError(f"{inside} has no images in it.")
        files += images
    unknown = {path.name for path in subfolders(folder / split)} - set(synsets)
    if unknown:
        raise DataError(f"{folder / split} has a folder {min(unknown)}/, which train/ has not.")
    return files


def _class_names(folder: Path, root: Path, synsets: Sequence[str]) -> tuple[list[str], str]:
    """A name for each synset, and in words where it is from; two synsets of one name get their ids behind it."""
    file = next(
        (place / _MAPPING for place in (folder, *folder.parents[:3], root) if (place / _MAPPING).is_file()), None
    )
    if file is None:
        return list(synsets), f"the synset ids; {_MAPPING} beside train/ would give words."
    names = _read_mapping(file)
    absent = [synset for synset in synsets if synset not in names]
    if absent:
        raise DataError(f"{file} has no name for the synset {absent[0]}.")
    count = Counter(names[synset] for synset in synsets)
    unique = [names[synset] if count[names[synset]] == 1 else f"{names[synset]} ({synset})" for synset in synsets]
    return unique, f"those in {file.name}."


def _read_mapping(file: Path) -> dict[str, str]:
    """Lines such as ``n01440764 tench, Tinca tinca``: the first of the names."""
    pairs = (line.split(maxsplit=1) for line in read_text(file).splitlines() if line.strip())
    return {pair[0]: pair[-1].split(",")[0].strip() for pair in pairs}

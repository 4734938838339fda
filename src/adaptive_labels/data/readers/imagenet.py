"""`imagenet`: photographs of 1,000 kinds of things (Russakovsky et al. 2015), from the usual folders train/, val/."""

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from adaptive_labels.data.assemble import Part, assemble
from adaptive_labels.data.dataset import DataError, Dataset, Examples, ImageFiles
from adaptive_labels.data.encoders.image_files import resize_for
from adaptive_labels.data.readers.images import is_image
from adaptive_labels.data.splits import content_digest

SIZE = 224
VALIDATION_FRACTION = 0.02
"""The share of train that is held out: about 25 images a class, and 98% stay for training."""

_PLACES = ("", "imagenet", "ILSVRC/Data/CLS-LOC", "imagenet/ILSVRC/Data/CLS-LOC")
_MAPPING, _INDEX = "LOC_synset_mapping.txt", "imagenet_class_index.json"


def load_imagenet(
    *,
    split_seed: int = 0,
    train_fraction: float = 1.0,
    data_dir: Path | None = None,
    image_size: int | None = None,
) -> Dataset:
    """List the images; they stay files. val/ is the test split, validation is held out from train by a seeded split.

    The classes are in the order of their synset ids, as everywhere. Splits and fingerprint go by the names and sizes of
    the files, since reading 1.3 million of them would take longer than it is worth.
    """
    root = Path() if data_dir is None else data_dir.expanduser()
    folder = _find(root, given=data_dir is not None)
    synsets = _synsets(folder / "train")
    size = SIZE if image_size is None else image_size
    train, test = (_part(folder / split, synsets, size) for split in ("train", "val"))
    classes, source = _class_names(folder, root, synsets)
    resize = resize_for(size)
    return assemble(
        "imagenet",
        "image",
        classes,
        train,
        None,
        test,
        notes=[
            "val/ is the test split, as the field has it. Class names are " + source,
            f"Images stay files: training sees random parts of them, testing the middle {size}×{size} pixels of the "
            f"image with its shorter side at {resize}.",
        ],
        split_seed=split_seed,
        train_fraction=train_fraction,
        validation_fraction=VALIDATION_FRACTION,
    )


def _find(root: Path, given: bool) -> Path:
    for place in _PLACES:
        if (root / place / "train").is_dir() and (root / place / "val").is_dir():
            return root / place
    where = f"in {root}" if given else "in the current folder"
    raise DataError(
        f"The data set imagenet is not {where}: there are no folders train/ and val/ with a folder of images for each "
        "synset. It cannot be downloaded without an account; name the folder that has it with --data-dir."
    )


def _synsets(train: Path) -> list[str]:
    synsets = _folders(train)
    if len(synsets) < 2:
        raise DataError(f"{train} has {len(synsets)} class folders; a classifier needs at least two.")
    return synsets


def _part(folder: Path, synsets: Sequence[str], size: int) -> Part:
    names: list[str] = []
    sizes: list[int] = []
    labels: list[int] = []
    for label, synset in enumerate(synsets):
        if not (folder / synset).is_dir():
            hint = "; its images must be sorted into a folder for each synset first" if _images(folder) else ""
            raise DataError(f"{folder} has no folder {synset}/, which train/ has{hint}.")
        images = _images(folder / synset)
        if not images:
            raise DataError(f"{folder / synset} has no images in it.")
        names += [f"{synset}/{name}" for name, _ in images]
        sizes += [length for _, length in images]
        labels += [label] * len(images)
    unknown = sorted(set(_folders(folder)) - set(synsets))
    if unknown:
        raise DataError(f"{folder} has a folder {unknown[0]}/, which train/ has not.")
    files = ImageFiles(folder, np.array([name.encode() for name in names]), np.array(sizes, dtype=np.int64), size)
    examples = Examples(
        inputs=files,
        labels=torch.tensor(labels, dtype=torch.int64),
        sources=[f"{folder.name}/{name}" for name in names],
    )
    return Part(examples, [content_digest(source.encode()) for source in examples.sources or []])


def _folders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def _images(folder: Path) -> list[tuple[str, int]]:
    """The images in a folder: name and size of each, by name."""
    with os.scandir(folder) as entries:
        return sorted((entry.name, entry.stat().st_size) for entry in entries if is_image(Path(entry.name)))


def _class_names(folder: Path, root: Path, synsets: Sequence[str]) -> tuple[list[str], str]:
    """A name for each synset, and in words where it is from; two synsets of one name get their ids behind it."""
    for place in dict.fromkeys((folder, *folder.parents[:3], root)):
        for file, read in ((place / _MAPPING, _read_mapping), (place / _INDEX, _read_index)):
            if file.is_file():
                known = read(file)
                absent = [synset for synset in synsets if synset not in known]
                if absent:
                    raise DataError(f"{file} has no name for the synset {absent[0]}.")
                names = [known[synset] for synset in synsets]
                count = Counter(names)
                unique = [n if count[n] == 1 else f"{n} ({s})" for n, s in zip(names, synsets, strict=True)]
                return unique, f"those in {file.name}."
    return list(synsets), f"the synset ids; {_MAPPING} or {_INDEX} beside train/ would give words."


def _read_mapping(file: Path) -> dict[str, str]:
    """Lines such as ``n01440764 tench, Tinca tinca``: the first of the names."""
    pairs = (line.split(maxsplit=1) for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
    return {pair[0]: pair[-1].split(",")[0].strip() for pair in pairs}


def _read_index(file: Path) -> dict[str, str]:
    """JSON such as ``{"0": ["n01440764", "tench"], …}``."""
    try:
        entries = json.loads(file.read_text(encoding="utf-8")).values()
        return {str(synset): str(name).replace("_", " ") for synset, name in entries}
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f'{file} is not of the form {{"0": ["n01440764", "tench"], …}}: {error}.') from error

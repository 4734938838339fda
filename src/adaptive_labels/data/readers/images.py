"""A user's own images: a folder with one folder of images per class, with or without split folders, to a data set."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from adaptive_labels.data.dataset import DataError, Examples, SplitName, counted, find_splits
from adaptive_labels.data.pixels import Pixels, decode_files
from adaptive_labels.data.readers.registry import register_reader
from adaptive_labels.data.readers.tables import tables_in
from adaptive_labels.data.splits import Part, RawDataset, digest_array

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")


@dataclass
class _Found:
    """The image files of a folder: for each split a list of (file, class name)."""

    splits: dict[SplitName, list[tuple[Path, str]]] = field(default_factory=dict)
    empty_classes: set[str] = field(default_factory=set)
    others: int = 0  # files that are no images
    unused: list[str] = field(default_factory=list)  # folders that are no split


def is_image(path: Path) -> bool:
    """Whether the file's name says that it is an image this module reads."""
    return path.suffix.lower() in IMAGE_SUFFIXES


def _can_read(path: Path) -> bool:
    """Whether a folder is to be read as images; two or more class folders of images win over tables beside them."""
    if path.is_file():
        return False
    subfolders = _subfolders(path)
    train = _find_splits(path, subfolders).get("train")
    folders = _subfolders(train) if train is not None else subfolders
    classes = sum(any(map(is_image, _walk(folder))) for folder in folders)
    return classes >= 2 or (classes == 1 and not tables_in(path))


@register_reader("image folder", _can_read)
def read_images(folder: Path, *, image_size: int | None = None, skip_unreadable: bool = False) -> RawDataset:
    """Read a folder of images by class, or train/, val/ and test/ folders of such."""
    found = _find_images(folder)
    classes = sorted({name for _, name in found.splits["train"]}, key=lambda name: (name.casefold(), name))
    _refuse_unseen_classes(folder, found, classes)
    # All splits are decoded in one go, so that they come out in one size and one number of channels.
    flat = [(split, file, name) for split, files in found.splits.items() for file, name in files]
    pixels = decode_files([file for _, file, _ in flat], image_size=image_size, skip_unreadable=skip_unreadable)
    read = set(pixels.files)
    kept = [entry for entry in flat if entry[1] in read]
    left = {name for split, _, name in kept if split == "train"}
    for name in classes:
        if name not in left:
            raise DataError(f"None of the training images of the class {name!r} in {folder} can be read.")
    parts = {split: _to_part(folder, split, kept, pixels, classes) for split in found.splits}
    return RawDataset(folder.resolve().name, "image", classes, parts, _notes(found, pixels))


def _find_images(folder: Path) -> _Found:
    found = _Found(others=sum(1 for path in folder.iterdir() if path.is_file()))
    subfolders = _subfolders(folder)
    roots = _find_splits(folder, subfolders)
    if "train" not in roots:
        if roots and len(roots) == len(subfolders):
            raise DataError(f"{folder} has a folder {next(iter(roots.values())).name}/ but no folder train/.")
        found.splits["train"] = _by_class(subfolders, found)
        return found
    found.unused = [path.name for path in subfolders if path not in roots.values()]
    for split, root in roots.items():
        found.splits[split] = _by_class(_subfolders(root), found)
        if not found.splits[split]:
            raise DataError(f"{root} has no class folders with images in them.")
    return found


def _find_splits(folder: Path, subfolders: Sequence[Path]) -> dict[SplitName, Path]:
    return find_splits(folder, {path: path.name.lower() for path in subfolders})


def _by_class(class_folders: list[Path], found: _Found) -> list[tuple[Path, str]]:
    files = []
    for class_folder in class_folders:
        inside = list(_walk(class_folder))
        images = [path for path in inside if is_image(path)]
        found.others += len(inside) - len(images)
        files += [(path, class_folder.name) for path in images]
        if not images:
            found.empty_classes.add(class_folder.name)
    return files


def _subfolders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not _is_hidden(path.name))


def _walk(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        for file in sorted(files):
            # macOS leaves files such as ._cat.png beside cat.png; they are no images, whatever their suffix.
            if not file.startswith("._"):
                yield Path(root, file)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _refuse_unseen_classes(folder: Path, found: _Found, classes: list[str]) -> None:
    for split, files in found.splits.items():
        unseen = Counter(name for _, name in files if name not in classes)
        if unseen:
            name, count = next(iter(unseen.items()))
            raise DataError(
                f"The class {name!r} in the {split} split of {folder} ({counted(count, 'image')}) is not in train."
            )


def _to_part(
    folder: Path, split: str, kept: Sequence[tuple[str, Path, str]], pixels: Pixels, classes: list[str]
) -> Part:
    index = {name: k for k, name in enumerate(classes)}
    rows = [i for i, entry in enumerate(kept) if entry[0] == split]
    if not rows:
        raise DataError(f"None of the images in the {split} split of {folder} can be read.")
    examples = Examples(
        inputs=torch.from_numpy(pixels.array[rows[0] : rows[-1] + 1]),  # a split's rows are next to each other
        labels=torch.tensor([index[kept[i][2]] for i in rows], dtype=torch.int64),
        sources=[kept[i][1].relative_to(folder).as_posix() for i in rows],
    )
    return Part(examples, digest_array(pixels.digests[rows[0] : rows[-1] + 1]))


def _notes(found: _Found, pixels: Pixels) -> list[str]:
    notes = [pixels.note]
    if found.others:
        notes.append(f"Ignored {counted(found.others, 'file')} of other kinds than images.")
    if found.empty_classes:
        notes.append(f"Class folders without images were ignored: {', '.join(sorted(found.empty_classes))}.")
    if found.unused:
        notes.append(f"Folders beside train/ that are no split were ignored: {', '.join(found.unused)}.")
    if pixels.skipped:
        shown = [f"{path.parent.name}/{path.name}" for path in pixels.skipped[:3]]
        more = ", …" if len(pixels.skipped) > 3 else ""
        notes.append(f"Skipped {counted(len(pixels.skipped), 'unreadable image')}: {', '.join(shown)}{more}.")
    return notes

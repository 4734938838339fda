"""A user's own images: a folder with one folder of images a class, with or without split folders, to a data set."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from adaptive_labels.data.assemble import Part, assemble
from adaptive_labels.data.dataset import DataError, Dataset, Examples
from adaptive_labels.data.readers.pixels import Pixels, decode_files
from adaptive_labels.data.readers.split_names import SPLIT_SPELLINGS, find_split
from adaptive_labels.data.wording import counted

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")


@dataclass
class _Found:
    """The image files of a folder: for each split a list of (file, class name)."""

    splits: dict[str, list[tuple[Path, str]]] = field(default_factory=dict)
    empty_classes: list[str] = field(default_factory=list)
    others: int = 0  # files that are no images
    unused: list[str] = field(default_factory=list)  # folders that are no split


def count_class_folders(folder: Path) -> int:
    """How many class folders with at least one image there are, under train/ if that exists."""
    subfolders = _subfolders(folder)
    train = find_split(folder, "train", subfolders, {path: path.name.lower() for path in subfolders})
    classes = _subfolders(train) if train is not None else subfolders
    return sum(any(is_image(file) for file in _walk(path)) for path in classes)


def is_image(path: Path) -> bool:
    """Whether the file's name says that it is an image this module reads."""
    return path.suffix.lower() in IMAGE_SUFFIXES


def load_images(
    folder: Path,
    *,
    split_seed: int = 0,
    train_fraction: float = 1.0,
    image_size: int | None = None,
    skip_unreadable: bool = False,
) -> Dataset:
    """Read a folder of images by class, or train/, val/ and test/ folders of such."""
    if image_size is not None and image_size < 1:
        raise DataError(f"image_size must be 1 or more, not {image_size}.")
    found = _find_images(folder)
    classes = sorted({name for _, name in found.splits["train"]}, key=lambda name: (name.casefold(), name))
    _refuse_unseen_classes(folder, found, classes)
    # All splits are decoded in one go, so that they come out in one size and one number of channels.
    flat = [(split, file, name) for split, files in found.splits.items() for file, name in files]
    pixels = decode_files([file for _, file, _ in flat], image_size=image_size, skip_unreadable=skip_unreadable)
    read = set(pixels.files)
    kept = [entry for entry in flat if entry[1] in read] if pixels.skipped else flat
    _refuse_lost_classes(folder, kept, classes)
    parts = {split: _to_part(folder, split, kept, pixels, classes) for split in found.splits}
    return assemble(
        folder.resolve().name,
        "image",
        classes,
        parts["train"],
        parts.get("validation"),
        parts.get("test"),
        notes=_notes(found, pixels),
        split_seed=split_seed,
        train_fraction=train_fraction,
    )


def _find_images(folder: Path) -> _Found:
    found = _Found(others=sum(1 for path in folder.iterdir() if path.is_file()))
    subfolders = _subfolders(folder)
    names = {path: path.name.lower() for path in subfolders}
    roots = {split: find_split(folder, split, subfolders, names) for split in SPLIT_SPELLINGS}
    if roots["train"] is None:
        stray = [root.name for root in roots.values() if root is not None]
        if stray and len(stray) == len(subfolders):
            raise DataError(f"{folder} has a folder {stray[0]}/ but no folder train/.")
        found.splits["train"] = _by_class(subfolders, found)
        return found
    found.unused = [path.name for path in subfolders if path not in roots.values()]
    for split, root in roots.items():
        if root is not None:
            found.splits[split] = _by_class(_subfolders(root), found)
            if not found.splits[split]:
                raise DataError(f"{root} has no class folders with images in them.")
    return found


def _by_class(class_folders: list[Path], found: _Found) -> list[tuple[Path, str]]:
    files = []
    for class_folder in class_folders:
        inside = list(_walk(class_folder))
        images = [path for path in inside if is_image(path)]
        found.others += len(inside) - len(images)
        files += [(path, class_folder.name) for path in images]
        if not images:
            found.empty_classes.append(class_folder.name)
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


def _refuse_lost_classes(folder: Path, kept: list[tuple[str, Path, str]], classes: list[str]) -> None:
    left = {name for split, _, name in kept if split == "train"}
    for name in classes:
        if name not in left:
            raise DataError(f"None of the training images of the class {name!r} in {folder} can be read.")


def _to_part(folder: Path, split: str, kept: list[tuple[str, Path, str]], pixels: Pixels, classes: list[str]) -> Part:
    index = {name: k for k, name in enumerate(classes)}
    rows = [i for i, entry in enumerate(kept) if entry[0] == split]
    if not rows:
        raise DataError(f"None of the images in the {split} split of {folder} can be read.")
    examples = Examples(
        inputs=torch.from_numpy(pixels.array[rows[0] : rows[-1] + 1]),  # a split's rows are next to each other
        labels=torch.tensor([index[kept[i][2]] for i in rows], dtype=torch.int64),
        sources=[kept[i][1].relative_to(folder).as_posix() for i in rows],
    )
    return Part(examples, [pixels.digests[i] for i in rows])


def _notes(found: _Found, pixels: Pixels) -> list[str]:
    notes = [pixels.note]
    if found.others:
        notes.append(f"Ignored {counted(found.others, 'file')} of other kinds than images.")
    if found.empty_classes:
        notes.append(f"Class folders without images were ignored: {', '.join(sorted(set(found.empty_classes)))}.")
    if found.unused:
        notes.append(f"Folders beside train/ that are no split were ignored: {', '.join(found.unused)}.")
    if pixels.skipped:
        named = ", ".join(f"{path.parent.name}/{path.name}" for path in pixels.skipped[:3]) + (
            ", …" if len(pixels.skipped) > 3 else ""
        )
        notes.append(f"Skipped {counted(len(pixels.skipped), 'unreadable image')}: {named}.")
    return notes

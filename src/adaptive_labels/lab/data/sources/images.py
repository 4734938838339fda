"""A user's own images: a folder with one folder of images per class, with or without split folders.

Those that fit into memory are decoded once; more stay files, and are read when they are needed.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from adaptive_labels.lab.data.dataset import SPLIT_SPELLINGS, DataError, Examples, ImageFiles, SplitName
from adaptive_labels.lab.data.pixels import is_image, read_middle, size_of, why_unreadable
from adaptive_labels.lab.data.sources import register_reader
from adaptive_labels.lab.data.split_files import tables_of
from adaptive_labels.lab.data.splits import RawDataset, content_digest, content_digests, digest_array
from adaptive_labels.lab.files import open_regular, read_bytes
from adaptive_labels.lab.machine import usable_cores
from adaptive_labels.lab.words import listed, plural

KEPT_SIZE = 96  # images that all have one size, up to so many pixels, keep it
USUAL_SIZE = 64  # others get the size of most of them, up to this, or for a pretrained network up to `largest_size`
MOST_BYTES = 2e9  # of decoded images in memory
_CHUNK = 64  # images that a thread decodes at a time
_LARGE_FILE = 20_000  # bytes


class ImageFile(NamedTuple):
    name: str  # the path below the data's folder
    size: int  # in bytes
    label: str


def _can_read(path: Path) -> bool:
    """Whether a folder is to be read as images; two or more class folders of images win over tables beside them."""
    if path.is_file():
        return False
    train = _find_splits(path).get("train", path)
    classes = sum(any(is_image(name) for name, _ in files_in(folder)) for folder in subfolders(train))
    return classes >= 2 or (classes == 1 and not tables_of(path))


@register_reader("image folder", _can_read)
def read_images(
    folder: Path, *, image_size: int | None = None, largest_size: int | None = None, skip_unreadable: bool = False
) -> RawDataset:
    """Read a folder of images by class, or train/, val/ and test/ folders of such."""
    splits, notes = _find_images(folder)
    classes = sorted({file.label for file in splits["train"]})
    for split, files in splits.items():
        for name, count in Counter(file.label for file in files if file.label not in classes).items():
            raise DataError(
                f"The class {name!r} in the {split} split of {folder} ({plural(count, 'image')}) is not in train."
            )
    flat = [folder / file.name for files in splits.values() for file in files]
    size, how = _target_size(_sizes(flat), image_size, largest_size)
    if 3 * size[0] * size[1] * len(flat) > MOST_BYTES:
        if skip_unreadable:
            raise DataError(f"{folder} has too many images to be decoded in advance; skip_unreadable does not apply.")
        return stream(folder, folder.resolve().name, classes, splits, max(size), notes)
    # Only decoding runs beside other threads, and of small images it is the least part: 4,000 PNGs of 32×32 took two
    # threads on two cores 2.1 s, one thread 1.3 s.
    large = sum(file.size for files in splits.values() for file in files) > _LARGE_FILE * len(flat)
    decoded, digests, unreadable = decode_files(flat, size, min(8, usable_cores()) if large else 1)
    if unreadable and not skip_unreadable:
        others = f", nor can {plural(len(unreadable) - 1, 'other')}" if len(unreadable) > 1 else ""
        first = min(unreadable)
        raise DataError(
            f"The image {flat[first]} cannot be read ({unreadable[first]}){others}; "
            "remove it, or have unreadable images left out (--skip-unreadable, in Python skip_unreadable)."
        )
    colours = "greyscale" if decoded.shape[1] == 1 else "RGB"
    notes.insert(0, f"Images are {colours}, {how}")
    examples, split_digests, begin = {}, {}, 0
    for split, files in splits.items():
        rows = [i for i in range(begin, begin + len(files)) if i not in unreadable]
        readable = [files[i - begin] for i in rows]
        begin += len(files)
        if not readable:
            raise DataError(f"None of the images in the {split} split of {folder} can be read.")
        if split == "train" and (lost := set(classes) - {file.label for file in readable}):
            raise DataError(f"None of the training images of the class {min(lost)!r} in {folder} can be read.")
        examples[split] = _examples(torch.from_numpy(decoded[rows]), readable, classes)
        split_digests[split] = digest_array([digests[i] for i in rows])
    if unreadable:
        skipped = [f"{flat[i].parent.name}/{flat[i].name}" for i in sorted(unreadable)]
        notes.append(f"Skipped {plural(len(unreadable), 'unreadable image')}: {listed(skipped, 3)}.")
    return RawDataset(folder.resolve().name, "image", classes, examples, notes, split_digests)


def stream(
    folder: Path,
    name: str,
    classes: Sequence[str],
    splits: dict[SplitName, list[ImageFile]],
    size: int,
    notes: Sequence[str],
    *,
    labels: Sequence[str] | None = None,
) -> RawDataset:
    """The data set of images that stay files; ``labels`` are those of the files, if the classes' names are others.

    Splits and fingerprint go by the names and sizes of the files: reading them all would take too long.
    """
    how = (
        f"Images stay files: training sees random parts of them, testing the middle, {size}×{size} pixels; splits go "
        "by the names of the files."
    )
    examples, digests = {}, {}
    for split, files in splits.items():
        names = [os.fsencode(file.name) for file in files]
        images = ImageFiles(folder, np.array(names), np.array([file.size for file in files], np.int64), size)
        examples[split] = _examples(images, files, labels or classes)
        digests[split] = content_digests(names)
    return RawDataset(name, "image", classes, examples, [*notes, how], digests)


def _examples(inputs: torch.Tensor | ImageFiles, files: Sequence[ImageFile], labels: Sequence[str]) -> Examples:
    index = {label: k for k, label in enumerate(labels)}
    numbers = torch.tensor([index[file.label] for file in files], dtype=torch.int64)
    return Examples(inputs, numbers, sources=[Path(file.name).as_posix() for file in files])


# --------------------------------------------------------------------------------------------------- finding the files


def _find_images(folder: Path) -> tuple[dict[SplitName, list[ImageFile]], list[str]]:
    """The files of each split, and notes on what was left out."""
    roots, folders = _find_splits(folder), subfolders(folder)
    if roots and "train" not in roots and len(roots) == len(folders):
        raise DataError(f"{folder} has a folder {next(iter(roots.values())).name}/ but no folder train/.")
    has_splits = "train" in roots
    unused = [path.name for path in folders if has_splits and path not in roots.values()]
    others = sum(1 for path in folder.iterdir() if path.is_file())
    empty: set[str] = set()
    splits: dict[SplitName, list[ImageFile]] = {}
    for split, root in roots.items() if has_splits else (("train", folder),):
        files = splits[split] = []
        for class_folder in subfolders(root):
            inside = list(files_in(class_folder))
            images = images_of(folder, class_folder, inside)
            others += len(inside) - len(images)
            empty |= set() if images else {class_folder.name}
            files += images
        if not files:
            raise DataError(f"{root} has no class folders with images in them.")
    sentences = {
        f"Ignored {plural(others, 'file')} of other kinds than images.": others,
        f"Class folders without images were ignored: {listed(sorted(empty))}.": empty,
        f"Folders beside train/ that are no split were ignored: {listed(unused)}.": unused,
    }
    return splits, [sentence for sentence, applies in sentences.items() if applies]


def _find_splits(folder: Path) -> dict[SplitName, Path]:
    """The folders train/, val/ and test/, as far as they are there."""
    inside = subfolders(folder)
    splits: dict[SplitName, Path] = {}
    for split, spellings in SPLIT_SPELLINGS.items():
        named = [path for path in inside if path.name.lower() in spellings]
        if len(named) > 1:
            shown = ", ".join(path.name for path in named)
            raise DataError(f"{folder} has more than one {split} split ({shown}); keep one of them.")
        if named:
            splits[split] = named[0]
    if len(splits) < len(inside):  # a folder train/ of pictures among others is a class: that of trains
        splits = {split: path for split, path in splits.items() if subfolders(path)}
    return splits


def subfolders(folder: Path) -> list[Path]:
    """The folders in a folder that are not hidden, by name."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and not _is_hidden(path.name))


def files_in(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the path and the size in bytes of each file in a folder and the folders in it, by name."""
    with os.scandir(folder) as entries:
        in_order = sorted(entries, key=lambda entry: entry.name)
    for entry in in_order:
        if entry.is_dir():
            if not _is_hidden(entry.name):
                yield from files_in(Path(entry.path))
        elif not entry.name.startswith("._"):  # macOS leaves such files beside images; they are none
            try:
                yield entry.path, entry.stat().st_size
            except OSError:  # a link to nothing, of which the reading says so
                yield entry.path, 0


def images_of(folder: Path, class_folder: Path, files: Sequence[tuple[str, int]]) -> list[ImageFile]:
    """Those of the files that are images, by their paths below the data's folder."""
    return [ImageFile(os.path.relpath(path, folder), size, class_folder.name) for path, size in files if is_image(path)]


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


# -------------------------------------------------------------------------------------------------------------- pixels


def decode_files(
    files: Sequence[Path], size: tuple[int, int], threads: int = 1
) -> tuple[np.ndarray, dict[int, bytes], dict[int, str]]:
    """Decode files to (W, H): uint8 (N, C, H, W), the digest of each, and why others cannot be read.

    C is 1 if all of them are grey, else 3.
    """
    decoded = np.zeros((len(files), 3, size[1], size[0]), dtype=np.uint8)
    digests: dict[int, bytes] = {}
    unreadable: dict[int, str] = {}
    coloured: set[int] = set()

    def decode(start: int) -> None:
        for i, file in enumerate(files[start : start + _CHUNK], start):
            try:
                content = read_bytes(file)
                pixels = read_middle(content, size)
            except Exception as error:  # Pillow's decoders raise nearly anything on a broken file
                unreadable[i] = why_unreadable(error)
                continue
            decoded[i] = pixels.transpose(2, 0, 1)
            digests[i] = content_digest(content)
            if (pixels != pixels[:, :, :1]).any():
                coloured.add(i)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(decode, range(0, len(files), _CHUNK)))
    return decoded if coloured else np.ascontiguousarray(decoded[:, :1]), digests, unreadable


def _sizes(files: Sequence[Path]) -> list[tuple[int, int]]:
    """Width and height of each image, from the headers, without the unreadable ones."""
    sizes: list[tuple[int, int]] = []
    for file in files:
        try:
            with open_regular(file) as content:
                sizes.append(size_of(content))
        except Exception:  # the decoding that follows says what is wrong
            continue
    return sizes


def _target_size(
    sizes: Sequence[tuple[int, int]], image_size: int | None, largest_size: int | None
) -> tuple[tuple[int, int], str]:
    if image_size is not None:
        return (image_size, image_size), f"{image_size}×{image_size} pixels as asked for."
    distinct = set(sizes)
    before = f"{len(distinct):,} sizes"
    if len(distinct) == 1:
        ((width, height),) = distinct
        if max(width, height) <= KEPT_SIZE:
            return (width, height), f"{width}×{height} pixels as in the files."
        before = f"{width}×{height}"
    # The median, so that a few large or tiny images decide nothing.
    usual = int(np.median([min(size) for size in sizes])) if sizes else USUAL_SIZE
    side = min(usual, largest_size or USUAL_SIZE)
    return (side, side), f"resized from {before} to {side}×{side} pixels."

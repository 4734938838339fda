"""A user's own images: a folder with one folder of images per class, with or without split folders, to a data set."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from adaptive_labels.lab.data.dataset import DataError, Examples, SplitName, find_splits
from adaptive_labels.lab.data.pixels import decode_image, why_unreadable
from adaptive_labels.lab.data.sources import register_reader
from adaptive_labels.lab.data.split_files import tables_of
from adaptive_labels.lab.data.splits import RawDataset, content_digest, digest_array
from adaptive_labels.lab.files import open_regular, read_bytes
from adaptive_labels.lab.machine import usable_cores
from adaptive_labels.lab.words import counted, few, listed

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")
LARGEST_NATIVE_SIZE = 64
DEFAULT_SIZE = 32
_ORIENTATION = 0x0112  # the EXIF tag; 5 to 8 swap width and height
_CHUNK = 64
_SMALL_AREA = 128 * 128
_MOST_BYTES = 2e9  # of all images in memory, where their size is chosen for a network that reads large ones


@dataclass(frozen=True)
class Pixels:
    """Decoded images."""

    array: np.ndarray  # uint8 (N, C, H, W)
    digests: list[bytes]  # of the files
    readable: list[int]  # which of the files they are
    note: str
    resized: bool  # unless they all had this size, and it is small


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
    return classes >= 2 or (classes == 1 and not tables_of(path))


@register_reader("image folder", _can_read)
def read_images(
    folder: Path, *, image_size: int | None = None, largest_size: int | None = None, skip_unreadable: bool = False
) -> RawDataset:
    """Read a folder of images by class, or train/, val/ and test/ folders of such."""
    splits, notes = _find_images(folder)
    classes = sorted({name for _, name in splits["train"]}, key=lambda name: (name.casefold(), name))
    for split, files in splits.items():
        unseen = Counter(name for _, name in files if name not in classes)
        for name, count in unseen.items():
            raise DataError(
                f"The class {name!r} in the {split} split of {folder} ({counted(count, 'image')}) is not in train."
            )
    # All splits are decoded in one go, so that they come out in one size and one number of channels.
    flat = [(split, file, name) for split, files in splits.items() for file, name in files]
    paths = [file for _, file, _ in flat]
    pixels = decode_files(paths, image_size=image_size, largest_size=largest_size, skip_unreadable=skip_unreadable)
    kept = [flat[i] for i in pixels.readable]
    left = {name for split, _, name in kept if split == "train"}
    for name in classes:
        if name not in left:
            raise DataError(f"None of the training images of the class {name!r} in {folder} can be read.")
    index = {name: k for k, name in enumerate(classes)}
    spans = {split: _span(folder, split, kept) for split in splits}
    examples = {
        split: Examples(
            inputs=torch.from_numpy(pixels.array[span]),
            labels=torch.tensor([index[name] for _, _, name in kept[span]], dtype=torch.int64),
            sources=[file.relative_to(folder).as_posix() for _, file, _ in kept[span]],
        )
        for split, span in spans.items()
    }
    digests = {split: digest_array(pixels.digests[span]) for split, span in spans.items()}
    read = {file for _, file, _ in kept}
    skipped = [f"{file.parent.name}/{file.name}" for _, file, _ in flat if file not in read]
    if skipped:
        notes.append(f"Skipped {counted(len(skipped), 'unreadable image')}: {few(skipped, 3)}.")
    notes = [pixels.note, *notes]
    return RawDataset(folder.resolve().name, "image", classes, examples, notes, digests, resized=pixels.resized)


def _find_images(folder: Path) -> tuple[dict[SplitName, list[tuple[Path, str]]], list[str]]:
    """For each split its files, each with its class name; and notes on what was left out."""
    subfolders = _subfolders(folder)
    roots = _find_splits(folder, subfolders)
    if roots and "train" not in roots and len(roots) == len(subfolders):
        raise DataError(f"{folder} has a folder {next(iter(roots.values())).name}/ but no folder train/.")
    has_splits = "train" in roots
    unused = [path.name for path in subfolders if has_splits and path not in roots.values()]
    others = sum(1 for path in folder.iterdir() if path.is_file())
    empty: set[str] = set()
    splits: dict[SplitName, list[tuple[Path, str]]] = {}
    for split, root in roots.items() if has_splits else (("train", folder),):
        files = splits[split] = []
        for class_folder in _subfolders(root):
            inside = list(_walk(class_folder))
            images = [(path, class_folder.name) for path in inside if is_image(path)]
            others += len(inside) - len(images)
            empty |= set() if images else {class_folder.name}
            files += images
        if not files:
            raise DataError(f"{root} has no class folders with images in them.")
    sentences = {
        f"Ignored {counted(others, 'file')} of other kinds than images.": others,
        f"Class folders without images were ignored: {listed(sorted(empty))}.": empty,
        f"Folders beside train/ that are no split were ignored: {listed(unused)}.": unused,
    }
    return splits, [sentence for sentence, found in sentences.items() if found]


def _find_splits(folder: Path, subfolders: Sequence[Path]) -> dict[SplitName, Path]:
    found = find_splits(folder, {path: path.name.lower() for path in subfolders})
    if len(found) < len(subfolders):  # a folder train/ of pictures among others is a class: that of trains
        found = {split: path for split, path in found.items() if _subfolders(path)}
    return found


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


def _span(folder: Path, split: str, kept: Sequence[tuple[str, Path, str]]) -> slice:
    """Where the images of a split are, which are next to each other."""
    rows = [i for i, entry in enumerate(kept) if entry[0] == split]
    if not rows:
        raise DataError(f"None of the images in the {split} split of {folder} can be read.")
    return slice(rows[0], rows[-1] + 1)


def decode_files(
    files: Sequence[Path],
    *,
    image_size: int | None = None,
    largest_size: int | None = None,
    skip_unreadable: bool = False,
) -> Pixels:
    """Decode all files to one size; greyscale (C = 1) if all of them are, else RGB (C = 3).

    The size is `image_size` squared; or that of the images if they all have the same, not above 64; or 32×32, or with
    `largest_size` as many pixels as the shorter side of most images has, up to that. A file that cannot be decoded is
    an error that names it, unless `skip_unreadable`.
    """
    sizes = _sizes(files)
    size, note = _target_size(sizes, image_size, largest_size)
    native = image_size is None and set(sizes) == {size} and max(size) <= LARGEST_NATIVE_SIZE
    decoded = np.zeros((len(files), 3, size[1], size[0]), dtype=np.uint8)
    starts = range(0, len(files), _CHUNK)
    with ThreadPoolExecutor(_workers(sizes)) as pool:
        chunks = pool.map(lambda i: _decode_chunk(files[i : i + _CHUNK], decoded[i:], size), starts)
        results = [result for chunk in chunks for result in chunk]
    good = {i: result for i, result in enumerate(results) if not isinstance(result, str)}
    bad = [i for i in range(len(files)) if i not in good]
    if bad and not skip_unreadable:
        others = f", nor can {counted(len(bad) - 1, 'other')}" if len(bad) > 1 else ""
        raise DataError(
            f"The image {files[bad[0]]} cannot be read ({results[bad[0]]}){others}; "
            "remove it, or have unreadable images left out (--skip-unreadable, in Python skip_unreadable)."
        )
    is_grey = all(grey for _, grey in good.values())
    array = decoded[list(good)] if bad else decoded
    return Pixels(
        array=np.ascontiguousarray(array[:, :1]) if is_grey else array,
        digests=[digest for digest, _ in good.values()],
        readable=list(good),
        note=f"Images are {'greyscale' if is_grey else 'RGB'}, {note}",
        resized=not native,
    )


def _workers(sizes: Sequence[tuple[int, int]]) -> int:
    # Only the decoding itself runs beside other threads, and with small images it is the least part: 4,000 PNGs of
    # 32×32 took two threads on two cores 2.1 s, one thread 1.3 s.
    mean_area = sum(width * height for width, height in sizes) / max(len(sizes), 1)
    return min(8, usable_cores()) if mean_area > _SMALL_AREA else 1


def _decode_chunk(files: Sequence[Path], out: np.ndarray, size: tuple[int, int]) -> list[tuple[bytes, bool] | str]:
    """Decode into `out`; return for each file its digest and whether it is grey, or why it cannot be read."""
    results: list[tuple[bytes, bool] | str] = []
    for i, file in enumerate(files):
        try:
            content = read_bytes(file)
            pixels = decode_image(content, size)
        except Exception as error:  # Pillow's decoders raise nearly anything on a broken file
            results.append(why_unreadable(error))
            continue
        out[i] = pixels.transpose(2, 0, 1)
        results.append((content_digest(content), bool((pixels == pixels[:, :, :1]).all())))
    return results


def _sizes(files: Sequence[Path]) -> list[tuple[int, int]]:
    """Width and height of each image, of small ones when upright, from the headers; without the unreadable ones."""
    sizes: list[tuple[int, int]] = []
    for file in files:
        try:
            with open_regular(file) as content, Image.open(content) as image:
                size = image.size
                # Pillow decodes a whole PNG to find its EXIF data, so they are read only where they can matter.
                if size[0] != size[1] and max(size) <= LARGEST_NATIVE_SIZE:
                    turned = image.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)
                    size = size[::-1] if turned else size
                sizes.append(size)
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
        if max(width, height) <= LARGEST_NATIVE_SIZE:
            return (width, height), f"{width}×{height} pixels as in the files."
        before = f"{width}×{height}"
    side = DEFAULT_SIZE
    if largest_size is not None and sizes:
        # The median, so that a few large or tiny images decide nothing; and all of them must fit into memory.
        fitting = int((_MOST_BYTES / 3 / len(sizes)) ** 0.5)
        side = max(DEFAULT_SIZE, min(largest_size, fitting, int(np.median([min(size) for size in sizes]))))
    return (side, side), f"resized from {before} to {side}×{side} pixels."

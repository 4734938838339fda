"""Image files to uint8 pixels of one size: every mode Pillow opens, upright, on white, resized with the aspect kept."""

import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image, ImageOps

from adaptive_labels.data.contract import DataError
from adaptive_labels.data.splits import content_digest

LARGEST_NATIVE_SIZE = 64
DEFAULT_SIZE = 32
_ORIENTATION = 0x0112  # the EXIF tag; 5 to 8 swap width and height
_CHUNK = 64
_T = TypeVar("_T")


@dataclass(frozen=True)
class Pixels:
    """Decoded images: `array` is uint8 (N, C, H, W), `digests` hash the files, `files` are those that could be read."""

    array: np.ndarray
    digests: list[bytes]
    files: list[Path]
    skipped: list[Path]
    note: str


def decode_files(files: Sequence[Path], *, image_size: int | None = None, skip_unreadable: bool = False) -> Pixels:
    """Decode all files to one size; greyscale (C = 1) if all of them are, else RGB (C = 3).

    The size is `image_size` squared; or that of the images if they all have the same, not above 64; or 32×32. A file
    that cannot be decoded is an error that names it, unless `skip_unreadable`.
    """
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        sizes = _in_chunks(pool, files, _sizes)
        size, note = _target_size([size for size in sizes if size is not None], image_size)
        decoded = np.zeros((len(files), 3, size[1], size[0]), dtype=np.uint8)
        results = _in_chunks(pool, files, lambda chunk, start: _decode_chunk(chunk, decoded[start:], size))
    bad = [i for i, result in enumerate(results) if isinstance(result, str)]
    if bad and not skip_unreadable:
        others = f", nor can {len(bad) - 1:,} others" if len(bad) > 1 else ""
        raise DataError(
            f"The image {files[bad[0]]} cannot be read ({results[bad[0]]}){others}; "
            "remove it, or ask for unreadable images to be skipped (skip_unreadable)."
        )
    good = [i for i, result in enumerate(results) if not isinstance(result, str)]
    is_grey = all(result.is_grey for result in results if not isinstance(result, str))
    array = decoded if len(good) == len(files) else decoded[good]
    return Pixels(
        array=np.ascontiguousarray(array[:, :1]) if is_grey else array,
        digests=[result.digest for result in results if not isinstance(result, str)],
        files=[files[i] for i in good],
        skipped=[files[i] for i in bad],
        note=f"Images are {'greyscale' if is_grey else 'RGB'}, {note}",
    )


def decode_image(content: bytes, size: tuple[int, int]) -> np.ndarray:
    """One image file's content as uint8 (H, W, 3) for `size` = (W, H): the first frame, upright, on white.

    The middle of the image is cut out in the aspect asked for and resized.
    """
    with Image.open(io.BytesIO(content)) as image:
        # A JPEG can be decoded at a fraction of its size; twice the target keeps all that the filter can see.
        image.draft(None, (2 * max(size), 2 * max(size)))
        rgb = _to_rgb(_upright(image))
    if rgb.size != size:
        rgb = ImageOps.fit(rgb, size, method=Image.Resampling.LANCZOS)
    return np.asarray(rgb)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F" or image.mode.startswith("I"):
        # 16-bit greyscale; 65,535 / 257 = 255
        levels = np.asarray(image, dtype=np.float64) / 257
        return Image.fromarray(np.rint(levels.clip(0, 255)).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        layers = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layers.size, "white"), layers).convert("RGB")
    return image.convert("RGB")


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:
        # Broken metadata says nothing about the pixels: if those are broken as well, loading them will say so.
        image.load()
        return image


def _in_chunks(
    pool: ThreadPoolExecutor, files: Sequence[Path], work: Callable[[Sequence[Path], int], list[_T]]
) -> list[_T]:
    """work(chunk, its start) for all files, by the pool: a task a chunk, as one a file would cost more than its work."""
    starts = range(0, len(files), _CHUNK)
    done = pool.map(lambda start: work(files[start : start + _CHUNK], start), starts)
    return [result for chunk in done for result in chunk]


@dataclass(frozen=True)
class _Decoded:
    digest: bytes
    is_grey: bool


def _decode_chunk(files: Sequence[Path], out: np.ndarray, size: tuple[int, int]) -> list[_Decoded | str]:
    """Decode into `out`; for each file what is known of it, or why it cannot be read."""
    results: list[_Decoded | str] = []
    for i, file in enumerate(files):
        try:
            content = file.read_bytes()
            pixels = decode_image(content, size)
        except Exception as error:  # Pillow's decoders raise nearly anything on a broken file
            results.append(str(error).splitlines()[0] if str(error) else type(error).__name__)
            continue
        out[i] = pixels.transpose(2, 0, 1)
        is_grey = bool((pixels == pixels[:, :, :1]).all())
        results.append(_Decoded(content_digest(content), is_grey))
    return results


def _sizes(files: Sequence[Path], start: int) -> list[tuple[int, int] | None]:
    """Width and height of each upright image, from the files' headers; None where that cannot be read."""
    sizes: list[tuple[int, int] | None] = []
    for file in files:
        try:
            with Image.open(file) as image:
                turned = image.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)
                sizes.append(image.size[::-1] if turned else image.size)
        except Exception:  # the decoding that follows says what is wrong
            sizes.append(None)
    return sizes


def _target_size(sizes: Sequence[tuple[int, int]], image_size: int | None) -> tuple[tuple[int, int], str]:
    if image_size is not None:
        return (image_size, image_size), f"{image_size}×{image_size} pixels as asked for."
    distinct = set(sizes)
    if len(distinct) == 1:
        ((width, height),) = distinct
        if max(width, height) <= LARGEST_NATIVE_SIZE:
            return (width, height), f"{width}×{height} pixels as in the files."
        return (DEFAULT_SIZE, DEFAULT_SIZE), f"resized from {width}×{height} to {DEFAULT_SIZE}×{DEFAULT_SIZE} pixels."
    return (
        DEFAULT_SIZE,
        DEFAULT_SIZE,
    ), f"resized from {len(distinct):,} sizes to {DEFAULT_SIZE}×{DEFAULT_SIZE} pixels."

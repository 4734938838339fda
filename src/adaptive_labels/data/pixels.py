"""Image files to uint8 pixels of one size: every mode Pillow opens, upright, on white, resized with the aspect kept."""

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from adaptive_labels.data.dataset import DataError, counted
from adaptive_labels.data.splits import content_digest
from adaptive_labels.machine import usable_cores

LARGEST_NATIVE_SIZE = 64
DEFAULT_SIZE = 32
_ORIENTATION = 0x0112  # the EXIF tag; 5 to 8 swap width and height
_CHUNK = 64
_SMALL_AREA = 128 * 128


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
    sizes = _sizes(files)
    size, note = _target_size(sizes, image_size)
    decoded = np.zeros((len(files), 3, size[1], size[0]), dtype=np.uint8)
    starts = range(0, len(files), _CHUNK)
    with ThreadPoolExecutor(_workers(sizes)) as pool:
        chunks = pool.map(lambda i: _decode_chunk(files[i : i + _CHUNK], decoded[i:], size), starts)
        results = [result for chunk in chunks for result in chunk]
    bad = [i for i, result in enumerate(results) if isinstance(result, str)]
    good = {i: result for i, result in enumerate(results) if not isinstance(result, str)}
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
        files=[files[i] for i in good],
        skipped=[files[i] for i in bad],
        note=f"Images are {'greyscale' if is_grey else 'RGB'}, {note}",
    )


def open_rgb(content: bytes) -> Image.Image:
    """One image file's content as an RGB image in its own size: the first frame, upright, on white."""
    with Image.open(io.BytesIO(content)) as image:
        _turn_upright(image)
        return _to_rgb(image)


def resize_for(size: int) -> int:
    """The length of an image's shorter side before its middle is cut out: 256 for 224, and in that proportion.

    >>> resize_for(224), resize_for(64)
    (256, 73)
    """
    return round(size * 256 / 224)


def resize_and_cut(image: Image.Image, size: int, resize: int) -> Image.Image:
    """The middle `size` × `size` pixels of an image, once its shorter side is brought to `resize` pixels."""
    # The part of the image that ends in the middle, resized in one step.
    side = min(image.size) * size / resize
    left, upper = (image.width - side) / 2, (image.height - side) / 2
    box = (left, upper, left + side, upper + side)
    return image.resize((size, size), Image.Resampling.BILINEAR, box=box)


def decode_image(content: bytes, size: tuple[int, int]) -> np.ndarray:
    """One image file's content as uint8 (H, W, 3) for `size` = (W, H): the first frame, upright, on white.

    The middle of the image is cut out in the aspect asked for and resized.
    """
    with Image.open(io.BytesIO(content)) as image:
        # A JPEG can be decoded at a fraction of its size, much faster; at 4 times the target the result hardly differs.
        image.draft(None, (4 * max(size), 4 * max(size)))
        _turn_upright(image)
        rgb = _to_rgb(image)
    if rgb.size != size:
        rgb = ImageOps.fit(rgb, size, method=Image.Resampling.LANCZOS)
    return np.asarray(rgb)


def why_unreadable(error: Exception) -> str:
    """What Pillow says of a broken file, in words for its owner."""
    if isinstance(error, UnidentifiedImageError):
        return "it is no image of a kind that is known"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F" or image.mode.startswith("I"):
        # 16-bit greyscale; 65,535 / 257 = 255
        levels = np.asarray(image, dtype=np.float64) / 257
        return Image.fromarray(np.rint(levels.clip(0, 255)).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        layers = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layers.size, "white"), layers).convert("RGB")
    return image.convert("RGB")


def _turn_upright(image: Image.Image) -> None:
    image.load()  # first, so that pixels that cannot be read are not taken for broken metadata
    try:
        ImageOps.exif_transpose(image, in_place=True)
    except Exception:
        return  # broken metadata says nothing about the pixels


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
            content = file.read_bytes()
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
            with Image.open(file) as image:
                width, height = image.size
                # Pillow decodes a whole PNG to find its EXIF data, so they are read only where they can matter.
                if width != height and max(width, height) <= LARGEST_NATIVE_SIZE:
                    turned = image.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)
                    width, height = (height, width) if turned else (width, height)
                sizes.append((width, height))
        except Exception:  # the decoding that follows says what is wrong
            continue
    return sizes


def _target_size(sizes: Sequence[tuple[int, int]], image_size: int | None) -> tuple[tuple[int, int], str]:
    if image_size is not None:
        return (image_size, image_size), f"{image_size}×{image_size} pixels as asked for."
    distinct = set(sizes)
    before = f"{len(distinct):,} sizes"
    if len(distinct) == 1:
        ((width, height),) = distinct
        if max(width, height) <= LARGEST_NATIVE_SIZE:
            return (width, height), f"{width}×{height} pixels as in the files."
        before = f"{width}×{height}"
    return (DEFAULT_SIZE, DEFAULT_SIZE), f"resized from {before} to {DEFAULT_SIZE}×{DEFAULT_SIZE} pixels."

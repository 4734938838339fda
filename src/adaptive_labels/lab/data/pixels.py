"""One image file to RGB pixels of one size: whatever Pillow decodes, upright, on white, with the aspect kept."""

import functools
import io
import math
from contextlib import suppress
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from adaptive_labels.lab.limits import FILE_LIMITS, check_limit, exceeded, limit_of
from adaptive_labels.lab.words import first_line

# PostScript is a program; of the others Pillow knows the name, but has no decoder.
_NOT_READ = {"EPS", "MPEG", "WMF", "BUFR", "GRIB", "HDF5"}
_AREAS, _ASPECTS, _TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10


@functools.cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in Image.OPEN if name not in _NOT_READ)


@functools.cache
def _suffixes() -> frozenset[str]:
    formats = _formats()
    return frozenset(suffix for suffix, name in Image.registered_extensions().items() if name in formats)


def is_image(path: Path | str) -> bool:
    """Whether a file's name says that it is an image which Pillow decodes.

    >>> is_image("a.TIFF"), is_image("a.eps"), is_image("a.txt")
    (True, False, False)
    """
    return Path(path).suffix.lower() in _suffixes()


def open_rgb(content: bytes, at_least: int) -> Image.Image:
    """One image file's content as an RGB image: the first frame, upright, on white.

    A JPEG may be decoded at a fraction of its size, much faster, that is still ``at_least`` so wide and high.
    """
    most = limit_of("pixels")
    if most > FILE_LIMITS["pixels"].default and Image.MAX_IMAGE_PIXELS is not None:
        Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS, most)  # Pillow's own limit stands unless ours is raised
    with Image.open(io.BytesIO(content), formats=_formats()) as image:
        check_limit("pixels", image.width * image.height, "it")
        image.draft(None, (at_least, at_least))
        image.load()  # first, so that pixels that cannot be read are not taken for broken metadata
        with suppress(Exception):  # broken metadata says nothing about the pixels
            ImageOps.exif_transpose(image, in_place=True)
        if image.mode == "F" or image.mode.startswith("I"):
            # Greyscale in 16 bits, 65,535 / 257 = 255; or in floating point from 0 to 1.
            levels = np.asarray(image, dtype=np.float64)
            levels = levels * 255 if image.mode == "F" and levels.max() <= 1 else levels / 257
            return Image.fromarray(np.rint(levels.clip(0, 255)).astype(np.uint8)).convert("RGB")
        if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
            layers = image.convert("RGBA")
            return Image.alpha_composite(Image.new("RGBA", layers.size, "white"), layers).convert("RGB")
        return image.convert("RGB")


def read_middle(content: bytes, size: tuple[int, int], zoom: float = 1.0) -> np.ndarray:
    """The middle of one image file, in the aspect of ``size`` = (W, H) and resized to it, as uint8 (H, W, 3).

    With ``zoom`` = 1 it is as large as the image allows; with z each side is 1/z of that.
    """
    image = open_rgb(content, at_least=round(4 * max(size) * zoom))  # at 4 times the target the result hardly differs
    if image.size == size and zoom == 1:
        return np.asarray(image)
    scale = min(image.width / size[0], image.height / size[1]) / zoom
    width, height = size[0] * scale, size[1] * scale
    left, upper = max(0.0, (image.width - width) / 2), max(0.0, (image.height - height) / 2)  # by rounding, below 0
    box = (left, upper, min(left + width, image.width), min(upper + height, image.height))
    return np.asarray(image.resize(size, Image.Resampling.BILINEAR, box=box))


def read_random_view(content: bytes, size: int, draw: np.random.Generator) -> np.ndarray:
    """A random part of an image file, 8% to all of it, as uint8 (size, size, 3), mirrored half of the time.

    Szegedy et al., "Going Deeper with Convolutions", 2015, section 6; the usual training view on ImageNet.
    """
    image = open_rgb(content, at_least=4 * size)  # the smallest part is then still larger than the view
    box = _random_box(image.width, image.height, draw)
    view = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    return np.asarray(view.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if draw.random() < 0.5 else view)


def _random_box(width: int, height: int, draw: np.random.Generator) -> tuple[int, int, int, int]:
    """Left, upper, right and lower edge of a part, in pixels."""
    for _ in range(_TRIES):
        area = width * height * draw.uniform(*_AREAS)
        aspect = math.exp(draw.uniform(math.log(_ASPECTS[0]), math.log(_ASPECTS[1])))
        across, down = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < across <= width and 0 < down <= height:
            left, upper = int(draw.integers(width - across + 1)), int(draw.integers(height - down + 1))
            break
    else:  # a very long image: its middle, as wide or high as the aspects allow
        across = min(width, max(1, round(height * _ASPECTS[1])))
        down = min(height, max(1, round(width / _ASPECTS[0])))
        left, upper = (width - across) // 2, (height - down) // 2
    return left, upper, left + across, upper + down


def size_of(file: io.BufferedReader) -> tuple[int, int]:
    with Image.open(file, formats=_formats()) as image:
        return image.size


def why_unreadable(error: Exception) -> str:
    """What Pillow says of a broken file, in words for its owner."""
    if isinstance(error, UnidentifiedImageError):
        return "it is no image of a kind that is known"
    if isinstance(error, Image.DecompressionBombError):
        error = exceeded("pixels", "it")
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return first_line(error).rstrip(".")

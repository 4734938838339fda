"""One image file to RGB pixels of one size: every mode Pillow opens, upright, on white, with the aspect kept."""

import io
import math
from contextlib import suppress

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from adaptive_labels.lab import limits
from adaptive_labels.lab.words import first_line

_AREAS, _ASPECTS, _TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10


def open_rgb(content: bytes, at_least: int | None = None) -> Image.Image:
    """One image file's content as an RGB image: the first frame, upright, on white.

    With `at_least` a JPEG may be decoded at a fraction of its size, much faster, that is still so wide and high.
    """
    most = limits.value(limits.PIXELS)
    if most > limits.PIXELS.default and Image.MAX_IMAGE_PIXELS is not None:
        Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS, most)  # Pillow's own limit stands unless ours is raised
    with Image.open(io.BytesIO(content)) as image:
        limits.check(limits.PIXELS, image.width * image.height, "it")
        if at_least is not None:
            image.draft(None, (at_least, at_least))
        image.load()  # first, so that pixels that cannot be read are not taken for broken metadata
        with suppress(Exception):  # broken metadata says nothing about the pixels
            ImageOps.exif_transpose(image, in_place=True)
        if image.mode == "F" or image.mode.startswith("I"):
            # 16-bit greyscale; 65,535 / 257 = 255
            levels = np.asarray(image, dtype=np.float64) / 257
            return Image.fromarray(np.rint(levels.clip(0, 255)).astype(np.uint8)).convert("RGB")
        if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
            layers = image.convert("RGBA")
            return Image.alpha_composite(Image.new("RGBA", layers.size, "white"), layers).convert("RGB")
        return image.convert("RGB")


def decode_image(content: bytes, size: tuple[int, int]) -> np.ndarray:
    """The middle of one image file, in the aspect of `size` = (W, H) and resized to it, as uint8 (H, W, 3)."""
    rgb = open_rgb(content, at_least=4 * max(size))  # at 4 times the target the result hardly differs
    if rgb.size != size:
        rgb = ImageOps.fit(rgb, size, method=Image.Resampling.LANCZOS)
    return np.asarray(rgb)


def resize_for(size: int) -> int:
    """The length of an image's shorter side before its middle is cut out: 256 for 224, and in that proportion.

    >>> resize_for(224), resize_for(64)
    (256, 73)
    """
    return round(size * 256 / 224)


def resize_and_cut(image: Image.Image, size: int, resize: int) -> Image.Image:
    """The middle `size` × `size` pixels of an image, once its shorter side is brought to `resize` pixels."""
    side = min(image.size) * size / resize  # of the part of the image that ends in the middle, resized in one step
    left, upper = (image.width - side) / 2, (image.height - side) / 2
    box = (left, upper, left + side, upper + side)
    return image.resize((size, size), Image.Resampling.BILINEAR, box=box)


def random_view(image: Image.Image, size: int, draw: np.random.Generator) -> Image.Image:
    """A random part of an image, between 8% and all of it, in `size` × `size` pixels, mirrored half of the time.

    Szegedy et al., "Going Deeper with Convolutions", 2015, section 6; the usual training view on ImageNet.
    """
    box = _random_box(image.width, image.height, draw)
    view = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    return view.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if draw.random() < 0.5 else view


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


def why_unreadable(error: Exception) -> str:
    """What Pillow says of a broken file, in words for its owner."""
    if isinstance(error, UnidentifiedImageError):
        return "it is no image of a kind that is known"
    if isinstance(error, Image.DecompressionBombError):
        error = limits.exceeded(limits.PIXELS, "it")
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return first_line(error).rstrip(".")

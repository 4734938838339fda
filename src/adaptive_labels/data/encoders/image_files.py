"""Images that stay files until a batch of them is asked for: decoded, resized and cropped by worker processes.

Shapes: n images of a batch, S = `size`; a box is (left, upper, right, lower) in pixels.
"""

import math
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from adaptive_labels.data.dataset import DataError, Examples, ImageFiles
from adaptive_labels.data.readers.pixels import open_rgb, resize_and_cut, why_unreadable

WORKERS = "ALR_DATA_WORKERS"
"""The environment variable with the number of processes that read images; one a core if it is not set, 0 for none."""

_AREAS, _ASPECTS, _TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10
_FLIP = Image.Transpose.FLIP_LEFT_RIGHT


@dataclass(frozen=True, eq=False)
class EncodedFiles:
    """Image files as batches of normalised tensors.

    Args:
        files: where the images are.
        size: width and height S of what is cut out.
        resize: the length that an image's shorter side is brought to before its middle is cut out, for testing.
        mean: a number for each channel, of pixels between 0 and 1.
        std: a number for each channel.
    """

    files: ImageFiles
    size: int
    resize: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.files)

    def batch(self, indices: Tensor) -> Tensor:
        """Return the middles of these images as float32 (n, 3, S, S), normalised."""
        return next(self.stream([indices]))

    def stream(self, groups: Sequence[Tensor], seed: int | None = None) -> Iterator[Tensor]:
        """Yield a batch (n, 3, S, S) for each group of indices, read ahead by worker processes.

        Args:
            groups: the indices of each batch.
            seed: of random crops and flips, for training; None gives the middles. What is drawn for an image depends on
                the seed and its index alone, not on how many processes there are or which of them reads it.
        """
        mean = torch.tensor(self.mean).view(-1, 1, 1)
        std = torch.tensor(self.std).view(-1, 1, 1)
        workers = worker_count() if len(groups) > 1 else 0
        loader = DataLoader(
            _Views(self.files, self.size, self.resize, seed),
            batch_sampler=[group.tolist() for group in groups],
            num_workers=min(workers, len(groups)),
            collate_fn=_stacked,
            generator=torch.Generator(),  # so that the global one is not drawn from
            multiprocessing_context=_context() if workers else None,
        )
        for images in loader:
            if isinstance(images, str):
                raise DataError(images)
            yield images.div(255).sub_(mean).div_(std)


def resize_for(size: int) -> int:
    """The length of an image's shorter side before its middle is cut out: 256 for 224, and in that proportion.

    >>> resize_for(224), resize_for(64)
    (256, 73)
    """
    return round(size * 256 / 224)


def worker_count() -> int:
    """How many processes read images: what ALR_DATA_WORKERS says, or one a core."""
    given = os.environ.get(WORKERS)
    if given is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not given.isdecimal():
        raise DataError(f"{WORKERS} is {given!r}: allowed is a whole number of at least 0")
    return int(given)


def image_at(examples: Examples, index: int, size: int = 64) -> Tensor:
    """One image of a split as uint8 (C, H, W); the middle of a file, `size` pixels wide and high."""
    if isinstance(examples.inputs, Tensor):
        return examples.inputs[index]
    assert isinstance(examples.inputs, ImageFiles)
    content = examples.inputs.path(index).read_bytes()
    return _tensor(resize_and_cut(open_rgb(content), size, size))


def random_view(image: Image.Image, size: int, draw: np.random.Generator) -> Image.Image:
    """A random part of an image, between 8% and all of it, brought to S × S pixels and mirrored half of the time.

    Szegedy et al., "Going Deeper with Convolutions", 2015, section 6; the usual training view on ImageNet.
    """
    box = _random_box(image.width, image.height, draw)
    view = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    return view.transpose(_FLIP) if draw.random() < 0.5 else view


def _random_box(width: int, height: int, draw: np.random.Generator) -> tuple[int, int, int, int]:
    for _ in range(_TRIES):
        area = width * height * draw.uniform(*_AREAS)
        aspect = math.exp(draw.uniform(math.log(_ASPECTS[0]), math.log(_ASPECTS[1])))
        across, down = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < across <= width and 0 < down <= height:
            left, upper = int(draw.integers(width - across + 1)), int(draw.integers(height - down + 1))
            return left, upper, left + across, upper + down
    # A very long image: its middle, as wide or high as the aspects allow.
    across = min(width, max(1, round(height * _ASPECTS[1])))
    down = min(height, max(1, round(width / _ASPECTS[0])))
    left, upper = (width - across) // 2, (height - down) // 2
    return left, upper, left + across, upper + down


class _Views(Dataset[Tensor | str]):
    """What a worker process reads; an image that cannot be read is a sentence instead, for the user."""

    def __init__(self, files: ImageFiles, size: int, resize: int, seed: int | None) -> None:
        self.files, self.seed = files, seed
        self.size, self.middle = size, partial(resize_and_cut, size=size, resize=resize)

    def __getitem__(self, index: int) -> Tensor | str:
        path = self.files.path(index)
        try:
            image = open_rgb(path.read_bytes())
        except Exception as error:  # Pillow's decoders raise nearly anything on a broken file
            return f"The image {path} cannot be read ({why_unreadable(error)})."
        if self.seed is None:
            return _tensor(self.middle(image))
        return _tensor(random_view(image, self.size, np.random.default_rng([self.seed, index])))


def _stacked(images: list[Tensor | str]) -> Tensor | str:
    tensors = []
    for image in images:
        if isinstance(image, str):
            return image
        tensors.append(image)
    return torch.stack(tensors)


def _tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image).transpose(2, 0, 1))


def _context() -> str | None:
    # Workers only read and decode; a copy of this process is there at once, where a new one would import torch first.
    return "fork" if "fork" in multiprocessing.get_all_start_methods() else None

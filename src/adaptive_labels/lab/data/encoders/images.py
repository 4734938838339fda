"""Images as batches of normalised tensors: from memory, or from files that worker processes read ahead.

Shapes: N images, n of a batch, C channels, H × W pixels; S = width and height of what is cut out of a file.
"""

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from adaptive_labels.lab.data.dataset import DataError, Examples, ImageFiles
from adaptive_labels.lab.data.encoders import Encoder, register_encoder
from adaptive_labels.lab.data.pixels import read_middle, read_random_view, why_unreadable
from adaptive_labels.lab.files import read_bytes
from adaptive_labels.lab.machine import usable_cores
from adaptive_labels.lab.models.pretrained.backbones import IMAGENET_MEAN, IMAGENET_STD

ZOOM = 256 / 224  # the shorter side is brought to 256 pixels before 224 are cut out, and in that proportion
WORKERS = "ALR_DATA_WORKERS"
"""The environment variable with the number of processes that read images; one per core if it is not set, 0 for none."""


@register_encoder("pixels")
@dataclass(frozen=True)
class ImageEncoder(Encoder):
    """Images of one size to normalised tensors, with the mean and standard deviation of the training images.

    Args:
        mean: a number for each channel, of pixels between 0 and 1.
        std: a number for each channel.
        size: height and width.
        channels: 1 for grey, 3 for colour.
        zoom: images that stay files are seen so much larger than they would fit, and their middle is cut out.

    >>> images = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)
    >>> encoder = ImageEncoder.fit(images)
    >>> encoder.mean, encoder.std, encoder.encode(images).batch(torch.tensor([0])).tolist()
    ((0.5,), (0.5,), [[[[-1.0, 1.0]]]])
    """

    options: ClassVar[frozenset[str]] = frozenset()

    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: tuple[int, int]
    channels: int
    zoom: float = 1.0

    def __post_init__(self) -> None:
        for name in ("mean", "std", "size"):  # JSON and TOML have lists only
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @classmethod
    def fit(cls, inputs: Tensor | ImageFiles, **options: Any) -> "ImageEncoder":
        """Return the encoder for images like these, (N, C, H, W) uint8; a channel without contrast keeps std 1.

        Images that stay files are not read for it: the mean and standard deviation are those of ImageNet.
        """
        if isinstance(inputs, ImageFiles):
            return cls(IMAGENET_MEAN, IMAGENET_STD, (inputs.size, inputs.size), 3, ZOOM)
        if inputs.ndim != 4 or inputs.dtype != torch.uint8 or inputs.numel() == 0:
            raise _refused(inputs, "(N, C, H, W), not empty, of type torch.uint8")
        examples, channels, height, width = inputs.shape
        # Exact sums from a count of the 256 values, without a float copy of all images.
        counts = torch.stack([torch.bincount(inputs[:, c].reshape(-1), minlength=256) for c in range(channels)])
        values = torch.arange(256, dtype=torch.float64) / 255
        frequency = counts.double() / (examples * height * width)  # (C, 256)
        mean = frequency @ values
        std = (frequency * (values - mean[:, None]).square()).sum(1).sqrt()
        std = torch.where(std < 1e-6, 1.0, std)
        return cls(tuple(mean.tolist()), tuple(std.tolist()), (height, width), channels)

    @property
    def sizes(self) -> dict[str, int]:
        return {"in_channels": self.channels}

    def encode(self, inputs: Tensor | ImageFiles) -> "ImageTensors | EncodedFiles":
        """Return the images, ready for batches; their shape must be that of the training images."""
        if isinstance(inputs, ImageFiles):
            return EncodedFiles(inputs, self)
        expected = (self.channels, *self.size)
        if inputs.ndim != 4 or tuple(inputs.shape[1:]) != expected or inputs.dtype != torch.uint8:
            raise _refused(inputs, f"(N, {', '.join(map(str, expected))}) of type torch.uint8, as in training")
        return ImageTensors(inputs, self)

    def normalised(self, images: Tensor) -> Tensor:
        """Return uint8 images (n, C, H, W) as float32, (pixel / 255 − mean) / std for each channel."""
        centre, scale = (torch.tensor(numbers).view(-1, 1, 1) for numbers in (self.mean, self.std))
        return images.div(255).sub_(centre).div_(scale)


def _refused(images: Tensor, expected: str) -> ValueError:
    return ValueError(f"images has shape {tuple(images.shape)} and type {images.dtype}; it must be {expected}")


@dataclass(frozen=True, eq=False)
class ImageTensors:
    """Images (N, C, H, W) that stay bytes until a batch of them is asked for."""

    images: Tensor
    encoder: ImageEncoder

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, indices: Tensor) -> Tensor:
        """Return these images as float32 (n, C, H, W), normalised."""
        return self.encoder.normalised(self.images.index_select(0, indices))


@dataclass(frozen=True, eq=False)
class EncodedFiles:
    files: ImageFiles
    encoder: ImageEncoder

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
        workers = min(worker_count(), len(groups)) if len(groups) > 1 else 0
        # Workers only read and decode; a copy of this process is there at once, a new one would import torch first.
        can_fork = "fork" in multiprocessing.get_all_start_methods()
        loader = DataLoader(
            _Views(self.files, self.encoder, seed),
            batch_sampler=[group.tolist() for group in groups],
            num_workers=workers,
            collate_fn=_stacked,
            generator=torch.Generator(),  # so that the global one is not drawn from
            multiprocessing_context="fork" if workers and can_fork else None,
        )
        for images in loader:
            if isinstance(images, str):
                raise DataError(images)
            yield self.encoder.normalised(images)


@dataclass(frozen=True)
class _Views(Dataset[Tensor | str]):
    """What a worker process reads; an image that cannot be read is a sentence instead, for the user."""

    files: ImageFiles
    encoder: ImageEncoder
    seed: int | None

    def __getitem__(self, index: int) -> Tensor | str:
        path, encoder = self.files.path(index), self.encoder
        try:
            content = read_bytes(path)
            if self.seed is None:
                return _tensor(read_middle(content, encoder.size, encoder.zoom))
            return _tensor(read_random_view(content, encoder.size[0], np.random.default_rng([self.seed, index])))
        except Exception as error:  # Pillow's decoders raise nearly anything on a broken file
            return f"The image {path} cannot be read ({why_unreadable(error)})."


def _stacked(images: list[Tensor | str]) -> Tensor | str:
    unreadable = next((image for image in images if isinstance(image, str)), None)
    return unreadable or torch.stack(images)  # type: ignore[arg-type]


def _tensor(pixels: np.ndarray) -> Tensor:
    return torch.from_numpy(pixels.transpose(2, 0, 1).copy())


def worker_count() -> int:
    """How many processes read images: what ALR_DATA_WORKERS says, or one per core."""
    given = os.environ.get(WORKERS)
    if given is None:
        return usable_cores()
    if not given.isdecimal():
        raise DataError(f"{WORKERS} is {given!r}: allowed is a whole number of at least 0")
    return int(given)


def image_at(examples: Examples, index: int, size: int = 64) -> Tensor:
    """One image of a split as uint8 (C, H, W); the middle of a file, `size` pixels wide and high."""
    if isinstance(examples.inputs, Tensor):
        return examples.inputs[index]
    assert isinstance(examples.inputs, ImageFiles)
    return _tensor(read_middle(read_bytes(examples.inputs.path(index)), (size, size)))

"""Images as features of a frozen pretrained network, or as pixels for one that is tuned.

Shapes: N images, n of a batch, C channels, H × W pixels as given, S = width and height that the network sees.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from adaptive_labels.errors import check_positive
from adaptive_labels.lab.data.dataset import ImageFiles
from adaptive_labels.lab.data.downloads import OnProgress
from adaptive_labels.lab.data.encoders import register_encoder
from adaptive_labels.lab.data.encoders.embeddings import Batches, Pretrained, Vectors, embed_once
from adaptive_labels.lab.data.encoders.images import ZOOM, EncodedFiles, ImageEncoder, ImageTensors
from adaptive_labels.lab.data.splits import content_digest
from adaptive_labels.lab.models.pretrained import efficientnet_lite, hub
from adaptive_labels.lab.models.pretrained.backbones import ImageBackbone

LARGE = 224  # pixels that images of a folder are read with at most, for a pretrained network
SMALL_UP_TO = 128  # images of at most so many pixels are small
_BATCH = 16


@dataclass(frozen=True)
class ImageEmbeddings(Pretrained[ImageBackbone], ImageEncoder):
    """Images to the features of a pretrained network, or to what it reads.

    Args:
        input_size: S; images of one size in memory are stretched or shrunk to it.
        weights: a hash of the network's weights.
        name: which of a library's networks it is.
        tune: give pixels, for a network that is part of what is trained.
    """

    options: ClassVar[frozenset[str]] = frozenset({"input_size", "tune"})

    input_size: int = LARGE
    weights: str = ""
    name: str = ""
    tune: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 32 <= self.input_size <= 1024:
            raise ValueError(f"input_size is {self.input_size}; it must be from 32 to 1024")
        check_positive(input_size=self.input_size)

    @classmethod
    def fit(cls, inputs: Tensor | ImageFiles, name: str = "", **options: Any) -> Self:
        """Return the encoder for images like these; nothing is fitted, but what it needs must be installed."""
        backbone = cls.find(name)
        backbone.check()
        settings = {"weights": backbone.weights, "name": name, "tune": options.get("tune", False)}
        files = isinstance(inputs, ImageFiles)
        shape = (3, inputs.size, inputs.size) if isinstance(inputs, ImageFiles) else inputs.shape[1:]
        suitable = inputs.size if files else backbone.small if min(shape[1:]) <= SMALL_UP_TO else backbone.large
        size = options.get("input_size", backbone.only or suitable)
        if backbone.only not in (None, size):
            raise ValueError(f"input_size is {size}; this network reads {backbone.only} only")
        seen = (size, size) if files else (shape[1], shape[2])
        return cls(backbone.mean, backbone.std, seen, shape[0], ZOOM if files else 1.0, size, **settings)

    def cache_key(self) -> dict[str, Any]:
        how = {"input_size": self.input_size, "resized": "bicubic", "mean": list(self.mean), "std": list(self.std)}
        return {"encoder": self.kind, **how, "weights": self.weights}

    def digests(self, inputs: Tensor | ImageFiles) -> list[bytes]:
        """Return 16 bytes for each image, by its pixels; of one that stays a file, by the file's state."""
        if isinstance(inputs, ImageFiles):
            folder = inputs.folder.resolve()
            contents: Iterator[bytes] = (_state(folder / os.fsdecode(name)) for name in inputs.names.tolist())
        else:
            shape = f"{tuple(inputs.shape[1:])}".encode()
            contents = (image.numpy().tobytes() + shape for image in inputs)
        return list(map(content_digest, contents))

    def encode(  # type: ignore[override]
        self, inputs: Tensor | ImageFiles, progress: OnProgress | None = None
    ) -> Vectors | ImageTensors | EncodedFiles:
        """Return the features of every image, from the cache where they were made before; or the pixels."""
        pixels = ImageEncoder.encode(self, inputs)  # refuses what has another shape
        if self.tune:
            return pixels
        return embed_once(self.cache_key(), self.digests(inputs), self.backbone, _batches_of(pixels), progress)

    def normalised(self, images: Tensor) -> Tensor:
        colour = super().normalised(images.expand(-1, 3, -1, -1))
        size = (self.input_size, self.input_size)
        if colour.shape[2:] == size:
            return colour
        return F.interpolate(colour, size, mode="bicubic", align_corners=False, antialias=min(self.size) > size[0])


def _state(path: Path) -> bytes:
    """A file's name, size and time of change, unread: by these another image in its place is noticed."""
    name = os.fsencode(path)
    try:
        state = path.stat()
    except OSError:  # whoever reads the file says so
        return name
    return b"%s %d %d" % (name, state.st_size, state.st_mtime_ns)


def _batches_of(pixels: ImageTensors | EncodedFiles) -> Batches:
    def batches(indices: NDArray[np.int64]) -> Iterator[tuple[list[int], Tensor]]:
        groups = list(torch.from_numpy(indices).split(_BATCH))  # type: ignore[no-untyped-call]
        images = pixels.stream(groups) if isinstance(pixels, EncodedFiles) else map(pixels.batch, groups)
        start = 0
        for group, batch in zip(groups, images, strict=True):
            yield list(range(start, start + len(group))), batch
            start += len(group)

    return batches


@register_encoder("efficientnet-lite0")
@dataclass(frozen=True)
class EfficientNetEmbeddings(ImageEmbeddings):
    """Images to 1,280 features each: the last layer but one of a network for ImageNet."""

    find = staticmethod(lambda name: efficientnet_lite.BACKBONE)
    weights: str = efficientnet_lite.WEIGHTS

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.backbone  # refuses other weights


@register_encoder("hf-image")
@dataclass(frozen=True)
class HubImageEmbeddings(ImageEmbeddings):
    find = staticmethod(hub.image_backbone)


@register_encoder("timm")
@dataclass(frozen=True)
class TimmEmbeddings(ImageEmbeddings):
    find = staticmethod(hub.timm_backbone)

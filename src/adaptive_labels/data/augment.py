"""Random changes to whole batches of images, without a loop over the images.

Shapes: `images` (N, C, H, W) of any type. Every function returns a new tensor and draws from the generator given.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def random_flip(images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Mirror each image left to right with probability one half.

    >>> random_flip(torch.ones(2, 1, 1, 3)).shape
    torch.Size([2, 1, 1, 3])
    """
    _check(images)
    flipped = (torch.rand(len(images), generator=generator) < 0.5).nonzero().flatten().to(images.device)
    return images.index_copy(0, flipped, images.index_select(0, flipped).flip(-1))


def random_crop(images: Tensor, padding: int, generator: torch.Generator | None = None) -> Tensor:
    """Pad each image with zeros on all sides and cut its size out again at a random place of its own.

    On normalised images a zero is the mean colour.

    Args:
        images: (N, C, H, W).
        padding: pixels on each side; 0 changes nothing.
        generator: where the places come from.

    >>> random_crop(torch.ones(2, 1, 4, 4), padding=1).shape
    torch.Size([2, 1, 4, 4])
    """
    _check(images)
    if padding < 0:
        raise ValueError(f"padding is {padding}; it must be at least 0")
    examples, channels, height, width = images.shape
    padded = F.pad(images, (padding, padding, padding, padding)).contiguous()
    shift = torch.randint(0, 2 * padding + 1, (2, examples, 1), generator=generator)
    # A row of a crop is a run of `width` values somewhere in the padded images. All runs are a view without a copy, and
    # picking whole rows among them is many times faster than gathering single values.
    runs = padded.as_strided((max(padded.numel() - width + 1, 0), width), (1, 1))
    _, _, padded_height, padded_width = padded.shape
    in_plane = (shift[0] + torch.arange(height)) * padded_width + shift[1]  # (N, H)
    planes = torch.arange(examples * channels).view(examples, channels, 1) * (padded_height * padded_width)
    begins = (planes + in_plane[:, None]).flatten().to(images.device)  # (N · C · H)
    return runs.index_select(0, begins).view(images.shape)


def _check(images: Tensor) -> None:
    if images.ndim != 4:
        raise ValueError(f"images has shape {tuple(images.shape)}; it must be (N, C, H, W)")

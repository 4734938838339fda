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
    flipped = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(flipped.to(images.device)[:, None, None, None], images.flip(-1), images)


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
    padded = F.pad(images, (padding, padding, padding, padding))
    shift = torch.randint(0, 2 * padding + 1, (2, examples, 1), generator=generator)
    rows = (shift[0] + torch.arange(height)).to(images.device)  # (N, H)
    columns = (shift[1] + torch.arange(width)).to(images.device)  # (N, W)
    # Two gathers of rows and columns; one advanced index over (N, C, H, W) would be slower.
    taken = padded.gather(2, rows[:, None, :, None].expand(-1, channels, -1, padded.shape[3]))
    return taken.gather(3, columns[:, None, None, :].expand(-1, channels, height, -1))


def _check(images: Tensor) -> None:
    if images.ndim != 4:
        raise ValueError(f"images has shape {tuple(images.shape)}; it must be (N, C, H, W)")

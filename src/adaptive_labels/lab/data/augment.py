"""Random changes to whole batches of images, without a loop over the images.

Shapes: `images` (N, C, H, W) of any type. Every function returns a new tensor; what is random comes from the generator.
`in_batch`, (place, size), means that the images are a part, from that place on, of a larger batch. Random numbers are
drawn for the whole batch, so that processes that share it change each image as one process would.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

InBatch = tuple[int, int] | None


def random_flip(images: Tensor, generator: torch.Generator | None = None, in_batch: InBatch = None) -> Tensor:
    """Mirror each image left to right with probability one half.

    >>> random_flip(torch.ones(2, 1, 1, 3)).shape
    torch.Size([2, 1, 1, 3])
    """
    count, mine = _batch(images, in_batch)
    return _mirrored(images, torch.rand(count, generator=generator)[mine] < 0.5)


def alternating_flip(images: Tensor, first: Tensor, epoch: int) -> Tensor:
    """Mirror each image left to right in every other epoch: in odd ones where `first` (N,) is true, else in even ones.

    >>> alternating_flip(torch.tensor([[[[1, 2]]], [[[3, 4]]]]), torch.tensor([True, False]), epoch=1).tolist()
    [[[[2, 1]]], [[[3, 4]]]]
    """
    _batch(images, None)
    return _mirrored(images, first if epoch % 2 else ~first)


def _mirrored(images: Tensor, chosen: Tensor) -> Tensor:
    places = chosen.nonzero().flatten().to(images.device)
    return images.index_copy(0, places, images.index_select(0, places).flip(-1))


def random_cutout(
    images: Tensor, size: int, generator: torch.Generator | None = None, in_batch: InBatch = None
) -> Tensor:
    """Set a square of `size` pixels to zero, in each image at a random place of its own, whole within the image.

    >>> random_cutout(torch.ones(2, 1, 4, 4), size=2).sum((1, 2, 3))
    tensor([12., 12.])
    """
    count, mine = _batch(images, in_batch)
    inside = []
    for axis in (2, 3):
        length = images.shape[axis]
        if not 0 <= size <= length:
            raise ValueError(f"size is {size}; for images of {length} pixels it must be from 0 to {length}")
        begin = torch.randint(length - size + 1, (count, 1), generator=generator)[mine]
        places = torch.arange(length)
        inside.append((begin <= places) & (places < begin + size))  # (N, length)
    square = (inside[0][:, None, :, None] & inside[1][:, None, None, :]).to(images.device)  # (N, 1, H, W)
    return images.masked_fill(square, 0)


def random_crop(
    images: Tensor,
    padding: int,
    generator: torch.Generator | None = None,
    in_batch: InBatch = None,
    *,
    reflect: bool = False,
) -> Tensor:
    """Pad each image by so many pixels on all sides and cut its size out again at a random place of its own.

    The padding is zeros, on normalised images the mean colour, or with `reflect` the image mirrored at its edge.

    >>> random_crop(torch.ones(2, 1, 4, 4), padding=1).shape
    torch.Size([2, 1, 4, 4])
    """
    count, mine = _batch(images, in_batch)
    if padding < 0:
        raise ValueError(f"padding is {padding}; it must be at least 0")
    examples, channels, height, width = images.shape
    padded = F.pad(images, (padding,) * 4, mode="reflect" if reflect else "constant").contiguous()
    shift = torch.randint(2 * padding + 1, (2, count, 1), generator=generator)[:, mine]
    # A row of a crop is a run of `width` values somewhere in the padded images. All runs are a view without a copy, and
    # picking whole rows among them is many times faster than gathering single values.
    runs = padded.as_strided((max(padded.numel() - width + 1, 0), width), (1, 1))
    _, _, padded_height, padded_width = padded.shape
    in_plane = (shift[0] + torch.arange(height)) * padded_width + shift[1]  # (N, H)
    planes = torch.arange(examples * channels).view(examples, channels, 1) * (padded_height * padded_width)
    begins = (planes + in_plane[:, None]).flatten().to(images.device)  # (N · C · H)
    return runs.index_select(0, begins).view(images.shape)


def _batch(images: Tensor, in_batch: InBatch) -> tuple[int, slice]:
    """How many images the whole batch has, and which of them these are."""
    if images.ndim != 4:
        raise ValueError(f"images has shape {tuple(images.shape)}; it must be (N, C, H, W)")
    begin, count = in_batch or (0, len(images))
    return count, slice(begin, begin + len(images))

"""What several networks have in common: checks of their sizes, how convolutions start, which places hold a word."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

Block = TypeVar("Block", bound=nn.Module)


def check_sizes(dropout: float = 0.0, **sizes: int) -> None:
    """Refuse sizes below 1 and a dropout outside [0, 1), by their names."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} is {size}; it must be at least 1")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout is {dropout}; it must be at least 0 and below 1")


def is_word(lengths: Tensor, longest: int) -> Tensor:
    """Which places (N, L) hold a word and not padding.

    >>> is_word(torch.tensor([2, 1]), 3).tolist()
    [[True, True, False], [True, False, False]]
    """
    return torch.arange(longest, device=lengths.device) < lengths[:, None]


def stages(
    block: Callable[[int, int, int], Block], channels: int, widths: Sequence[int], depths: Sequence[int], grows: int = 1
) -> list[list[Block]]:
    """Residual blocks in stages: each stage after the first halves the size of the images in its first block.

    Args:
        block: makes one from its input channels, its width and its stride.
        channels: that the first block reads.
        widths: of the stages.
        depths: how many blocks each stage has.
        grows: how many times its width a block puts out.
    """
    made = []
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        blocks = []
        for place in range(depth):
            blocks.append(block(channels, width, 2 if stage and not place else 1))
            channels = width * grows
        made.append(blocks)
    return made


def start_residual(network: nn.Module, head: nn.Linear, last: Iterable[nn.Conv2d | nn.BatchNorm2d]) -> None:
    """Draw every convolution from N(0, 2 / n), n = kernel area × output channels; start the head's bias at 0; in place.

    That keeps the variance of the gradients from layer to layer (eq. 14 of He, Zhang, Ren and Sun, "Delving Deep into
    Rectifiers", 2015), and is what the authors of the residual networks trained with. The `last` layers of blocks start
    at zero, so that these blocks start as their shortcuts (Goyal et al., "Accurate, Large Minibatch SGD", 2017, section
    5.1).

    >>> _ = torch.manual_seed(0)
    >>> layer = nn.Conv2d(8, 50, 3)
    >>> start_residual(layer, nn.Linear(1, 1), [])
    >>> bool((layer.weight.std() * (9 * 50 / 2) ** 0.5 - 1).abs() < 0.05)
    True
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    nn.init.zeros_(head.bias)
    for layer in last:
        assert layer.weight is not None
        nn.init.zeros_(layer.weight)

"""How the image networks start."""

from collections.abc import Iterable

from torch import nn

__all__ = ["check_counts", "start_as_he", "start_at_zero"]


def start_as_he(network: nn.Module) -> None:
    """Draw every convolution from N(0, 2 / n), n = kernel area × output channels; in place.

    That keeps the variance of the gradients from layer to layer (He et al. 2015, eq. 14), and is what the authors of
    both residual networks and of the wide ones trained with. Norms start at scale 1 and shift 0, as torch has them.

    He, Zhang, Ren and Sun, "Delving Deep into Rectifiers", 2015.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> layer = nn.Conv2d(8, 50, 3)
    >>> start_as_he(layer)
    >>> bool((layer.weight.std() * (9 * 50 / 2) ** 0.5 - 1).abs() < 0.05)
    True
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def start_at_zero(layers: Iterable[nn.Conv2d | nn.BatchNorm2d]) -> None:
    """Put the last layers of residual blocks at zero, so that every block starts as its shortcut; in place.

    Goyal et al., "Accurate, Large Minibatch SGD", 2017, section 5.1.
    """
    for layer in layers:
        assert layer.weight is not None
        nn.init.zeros_(layer.weight)


def check_counts(**counts: int) -> None:
    """Refuse a size below 1 by its name."""
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")

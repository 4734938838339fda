"""Pre-activation residual networks for small images: ResNet-18 and the wide network 28-10.

Shapes: N images, C channels, H × W pixels; w = `width`.
"""

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from adaptive_labels.models.layers import check_sizes, stages, start_residual
from adaptive_labels.models.registry import register_model


class PreActBlock(nn.Module):
    """Normalise, rectify, convolve, twice; then add the input, which nothing has changed on its way.

    Where the size or the number of channels changes, the input is brought into shape by a 1×1 convolution after the
    first normalisation and rectification. `dropout` acts before the second convolution.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.shortcut: nn.Conv2d | None = None
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        """Return (N, out_channels, H / stride, W / stride), rounded up."""
        active = F.relu(self.norm1(input))
        kept = input if self.shortcut is None else self.shortcut(active)
        changed: Tensor = self.conv2(self.dropout(F.relu(self.norm2(self.conv1(active)))))
        return changed + kept


class PreActResNet(nn.Module):
    """Classify small images by stages of pre-activation blocks, each stage after the first at half the size.

    A 3×3 convolution comes first; a last normalisation and the mean over the pixels come before the linear layer.
    Convolutions start as He et al. (2015) propose, the linear layer's bias at zero.

    Args:
        num_classes: the number of logits K.
        in_channels: 1 for grey images, 3 for colour.
        stem: channels of the first convolution.
        stem_stride: its stride; 2 halves the size of the images at once, for a quarter of the work.
        widths: channels of the stages.
        depth: blocks of a stage.
        dropout: share of each block's inner channels' values that is dropped in training.
        zero_init_last: start the last convolution of every block at zero, so that the block starts as its shortcut.
            A block of this kind has no norm after it, and its last norm at zero would cut off the gradient for good.
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int,
        stem: int,
        stem_stride: int,
        widths: Sequence[int],
        depth: int,
        dropout: float,
        zero_init_last: bool,
    ) -> None:
        super().__init__()
        check_sizes(dropout, in_channels=in_channels, width=widths[0], stem_stride=stem_stride)
        self.stem = nn.Conv2d(in_channels, stem, 3, stride=stem_stride, padding=1, bias=False)
        made = stages(partial(PreActBlock, dropout=dropout), stem, widths, [depth] * len(widths))
        blocks = [block for stage in made for block in stage]
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(widths[-1])
        self.head = nn.Linear(widths[-1], num_classes)
        start_residual(self, self.head, [block.conv2 for block in blocks] if zero_init_last else [])

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, K) for images (N, C, H, W)."""
        features = self.blocks(self.stem(images))  # (N, C', H', W')
        pooled = F.relu(self.norm(features)).mean((2, 3))  # (N, C')
        logits: Tensor = self.head(pooled)
        return logits


@register_model(
    "preact-resnet18",
    "image",
    "pre-activation ResNet-18 for images of 8 to 64 pixels; 11.17M parameters for 10 classes",
)
def preact_resnet18(
    num_classes: int, in_channels: int = 3, width: int = 64, stem_stride: int = 1, zero_init_last: bool = False
) -> PreActResNet:
    """Return the network with four stages of two blocks, `width` channels in the first, then 2, 4 and 8 times as many.

    The width 64 is the paper's; see `PreActResNet` for the other arguments.

    He, Zhang, Ren and Sun, "Identity Mappings in Deep Residual Networks", 2016.

    >>> import torch
    >>> preact_resnet18(num_classes=10, in_channels=1, width=8)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    widths = [width * factor for factor in (1, 2, 4, 8)]
    return PreActResNet(num_classes, in_channels, width, stem_stride, widths, 2, 0.0, zero_init_last)


@register_model(
    "wide-resnet-28-10", "image", "wide ResNet for images of 8 to 64 pixels; 36.48M parameters for 10 classes"
)
def wide_resnet_28_10(
    num_classes: int,
    in_channels: int = 3,
    width: int = 160,
    dropout: float = 0.0,
    stem_stride: int = 1,
    zero_init_last: bool = False,
) -> PreActResNet:
    """Return the network with three stages of four blocks, `width` channels in the first, then 2 and 4 times as many.

    The width 160, ten times the 16 of the first convolution, is the paper's 28-10, which has a dropout of 0.3 where it
    has any; see `PreActResNet` for the other arguments.

    Zagoruyko and Komodakis, "Wide Residual Networks", 2016.

    >>> import torch
    >>> wide_resnet_28_10(num_classes=10, in_channels=1, width=8)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    widths = [width * factor for factor in (1, 2, 4)]
    return PreActResNet(num_classes, in_channels, 16, stem_stride, widths, 4, dropout, zero_init_last)

"""The pre-activation residual network with 18 layers, for small images.

Shapes: N images, C channels, H × W pixels; w = `width`.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from adaptive_labels.models.registry import register_model


class PreActBlock(nn.Module):
    """Normalise, rectify, convolve, twice; then add the input, which nothing has changed on its way.

    Where the size or the number of channels changes, the input is brought into shape by a 1×1 convolution after the
    first normalisation and rectification.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.shortcut: nn.Conv2d | None = None
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        """Return (N, out_channels, H / stride, W / stride), rounded up."""
        active = F.relu(self.norm1(input))
        kept = input if self.shortcut is None else self.shortcut(active)
        changed: Tensor = self.conv2(F.relu(self.norm2(self.conv1(active))))
        return changed + kept


@register_model("preact-resnet18", "image", "pre-activation residual network, 18 layers, for images of 8 to 64 pixels")
class PreActResNet18(nn.Module):
    """Classify small images by four stages of two residual blocks, the later three at half the size each.

    A 3×3 convolution comes first, the images keep their size through it and the first stage; a last normalisation and
    the mean over the pixels come before the linear layer. Convolutions start as He et al. (2015) propose.

    Args:
        num_classes: the number of logits K.
        in_channels: 1 for grey images, 3 for colour.
        width: channels of the first stage; the others have 2, 4 and 8 times as many. 64 is the paper's.
        stem_stride: of the first convolution; 2 halves the size of the images at once, for a quarter of the work.

    He, Zhang, Ren and Sun, "Identity Mappings in Deep Residual Networks", 2016.

    >>> import torch
    >>> PreActResNet18(num_classes=10, in_channels=1, width=8)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """

    def __init__(self, num_classes: int, in_channels: int = 3, width: int = 64, stem_stride: int = 1) -> None:
        super().__init__()
        for name, value in {"in_channels": in_channels, "width": width, "stem_stride": stem_stride}.items():
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        self.stem = nn.Conv2d(in_channels, width, 3, stride=stem_stride, padding=1, bias=False)
        blocks: list[PreActBlock] = []
        channels = width
        for out_channels, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
            blocks += [PreActBlock(channels, out_channels, stride), PreActBlock(out_channels, out_channels, 1)]
            channels = out_channels
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, K) for images (N, C, H, W)."""
        features = self.blocks(self.stem(images))  # (N, 8w, H/8, W/8)
        pooled = F.relu(self.norm(features)).mean((2, 3))  # (N, 8w)
        logits: Tensor = self.head(pooled)
        return logits

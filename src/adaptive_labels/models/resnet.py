"""Residual networks in their first form: ResNet-32 for small images, and ResNet-50, -101 and -152 for large ones.

Shapes: N images, C channels, H × W pixels; w = `width`.
"""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from adaptive_labels.models.layers import check_sizes, stages, start_residual
from adaptive_labels.models.registry import register_model


class BasicBlock(nn.Module):
    """Two 3×3 convolutions, each normalised; the input is added before the last rectification.

    Where the size or the number of channels changes, the input is brought into shape without parameters: every second
    pixel of every second row is taken, and channels of zeros come after its own (option A of the paper).
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.stride, self.added = stride, out_channels - in_channels

    def forward(self, input: Tensor) -> Tensor:
        """Return (N, out_channels, H / stride, W / stride), rounded up."""
        changed = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(input)))))
        kept = input
        if self.stride != 1 or self.added:
            kept = F.pad(input[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.added))
        return F.relu(changed + kept)


@register_model("resnet32", "image", "ResNet-32 for images of 8 to 64 pixels; 464K parameters for 10 classes")
class ResNet32(nn.Module):
    """Classify small images by three stages of five residual blocks, the later two at half the size each.

    A 3×3 convolution comes first, the mean over the pixels and the linear layer last. Convolutions start as He et al.
    (2015) propose, the linear layer's bias at zero.

    Args:
        num_classes: the number of logits K.
        in_channels: 1 for grey images, 3 for colour.
        width: channels of the first stage; the others have 2 and 4 times as many. 16 is the paper's.
        stem_stride: of the first convolution; 2 halves the size of the images at once, for a quarter of the work.
        zero_init_last: start the last norm of every block at zero, so that the block starts as its shortcut.

    He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", 2016, section 4.2.

    >>> import torch
    >>> ResNet32(num_classes=10, in_channels=1, width=4)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int = 3,
        width: int = 16,
        stem_stride: int = 1,
        zero_init_last: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(in_channels=in_channels, width=width, stem_stride=stem_stride)
        self.stem = nn.Conv2d(in_channels, width, 3, stride=stem_stride, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        made = stages(BasicBlock, width, (width, 2 * width, 4 * width), (5, 5, 5))
        blocks = [block for stage in made for block in stage]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(4 * width, num_classes)
        start_residual(self, self.head, [block.norm2 for block in blocks] if zero_init_last else [])

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, K) for images (N, C, H, W)."""
        features = self.blocks(F.relu(self.norm(self.stem(images))))  # (N, 4w, H/4, W/4)
        logits: Tensor = self.head(features.mean((2, 3)))
        return logits


class Bottleneck(nn.Module):
    """Convolve 1×1 to few channels, 3×3 among them, 1×1 to four times as many; add the input, rectify.

    The stride is that of the 3×3 convolution. Where the size or the number of channels changes, the input is brought
    into shape by a 1×1 convolution with a norm (option B of the paper).
    """

    expansion = 4

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        out_channels = channels * self.expansion
        self.conv1 = nn.Conv2d(in_channels, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or in_channels != out_channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False), nn.BatchNorm2d(out_channels)
            )

    def forward(self, input: Tensor) -> Tensor:
        """Return (N, 4 × channels, H / stride, W / stride), rounded up."""
        changed = F.relu(self.bn1(self.conv1(input)))
        changed = F.relu(self.bn2(self.conv2(changed)))
        changed = self.bn3(self.conv3(changed))
        kept = input if self.downsample is None else self.downsample(input)
        return F.relu(changed + kept)


class BottleneckResNet(nn.Module):
    """Classify large images by four stages of bottleneck blocks, the first at a quarter of the size.

    A 7×7 convolution and the maximum over 3×3 pixels, both with stride 2, come first; the mean over the pixels and the
    linear layer last. Convolutions start as He et al. (2015) propose, the linear layer's bias at zero. The parts have
    the names that torchvision and timm gave them, so that weights trained with those fit (`--weights`).

    Args:
        num_classes: the number of logits K.
        in_channels: 1 for grey images, 3 for colour.
        width: channels inside the blocks of the first stage; the others have 2, 4 and 8 times as many.
        depths: blocks of the stages.
        zero_init_last: start the last norm of every block at zero, so that the block starts as its shortcut.
    """

    def __init__(
        self, num_classes: int, in_channels: int, width: int, depths: Sequence[int], zero_init_last: bool
    ) -> None:
        super().__init__()
        check_sizes(in_channels=in_channels, width=width)
        self.conv1 = nn.Conv2d(in_channels, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        widths = [width * 2**stage for stage in range(4)]
        blocks = stages(Bottleneck, width, widths, depths, grows=Bottleneck.expansion)
        self.layer1, self.layer2, self.layer3, self.layer4 = (nn.Sequential(*stage) for stage in blocks)
        self.fc = nn.Linear(widths[-1] * Bottleneck.expansion, num_classes)
        last = [block.bn3 for stage in blocks for block in stage]
        start_residual(self, self.fc, last if zero_init_last else [])

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, K) for images (N, C, H, W)."""
        features = self.maxpool(F.relu(self.bn1(self.conv1(images))))  # (N, w, H/4, W/4)
        features = self.layer4(self.layer3(self.layer2(self.layer1(features))))  # (N, 32w, H/32, W/32)
        logits: Tensor = self.fc(features.mean((2, 3)))
        return logits


@register_model("resnet50", "image", "ResNet-50 for large images, stride 2 on 3×3; 25.56M parameters for 1,000 classes")
def resnet50(num_classes: int, in_channels: int = 3, width: int = 64, zero_init_last: bool = False) -> BottleneckResNet:
    """Return the network with stages of 3, 4, 6 and 3 blocks; see `BottleneckResNet` for the arguments.

    He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", 2016; the stride of a stage is on the 3×3
    convolution of its first block, where the paper has it on the 1×1 before.

    >>> import torch
    >>> resnet50(num_classes=10, width=4)(torch.zeros(2, 3, 64, 64)).shape
    torch.Size([2, 10])
    """
    return BottleneckResNet(num_classes, in_channels, width, (3, 4, 6, 3), zero_init_last)


@register_model(
    "resnet101", "image", "ResNet-101 for large images, stride 2 on 3×3; 44.55M parameters for 1,000 classes"
)
def resnet101(
    num_classes: int, in_channels: int = 3, width: int = 64, zero_init_last: bool = False
) -> BottleneckResNet:
    """Return the network with stages of 3, 4, 23 and 3 blocks; otherwise as `resnet50`."""
    return BottleneckResNet(num_classes, in_channels, width, (3, 4, 23, 3), zero_init_last)


@register_model(
    "resnet152", "image", "ResNet-152 for large images, stride 2 on 3×3; 60.19M parameters for 1,000 classes"
)
def resnet152(
    num_classes: int, in_channels: int = 3, width: int = 64, zero_init_last: bool = False
) -> BottleneckResNet:
    """Return the network with stages of 3, 8, 36 and 3 blocks; otherwise as `resnet50`."""
    return BottleneckResNet(num_classes, in_channels, width, (3, 8, 36, 3), zero_init_last)

"""Residual networks: PreAct-ResNet-18, the wide 28-10 and ResNet-32 for small images, ResNet-50 to -152 for large ones.

Shapes: N images, C channels, H × W pixels; w = `width`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from adaptive_labels.lab.models.registry import check_sizes, register_model


class PreActBlock(nn.Module):
    """Normalise, rectify and convolve, twice; then add the input, unchanged.

    Where the size or the number of channels changes, a 1×1 convolution after the first normalisation and rectification
    brings the input into shape. `dropout` acts before the second convolution.
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
        shortcut = input if self.shortcut is None else self.shortcut(active)
        changed: Tensor = self.conv2(self.dropout(F.relu(self.norm2(self.conv1(active)))))
        return changed + shortcut


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
        shortcut = input
        if self.stride != 1 or self.added:
            shortcut = F.pad(input[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.added))
        return F.relu(changed + shortcut)


class Bottleneck(nn.Module):
    """Convolve 1×1 to few channels, 3×3 among them with the stride, 1×1 to four times as many; add the input, rectify.

    Where the size or the number of channels changes, a 1×1 convolution with a norm brings the input into shape (option
    B of the paper).
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
        shortcut = input if self.downsample is None else self.downsample(input)
        return F.relu(changed + shortcut)


def _stages(
    block: Callable[[int, int, int], nn.Module],
    channels: int,
    widths: Sequence[int],
    depths: Sequence[int],
    grows: int = 1,
) -> Iterator[list[nn.Module]]:
    """Yield the blocks of each stage, whose outputs are `grows` × as wide; the later stages halve the images."""
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        blocks = []
        for place in range(depth):
            blocks.append(block(channels, width, 2 if stage and not place else 1))
            channels = width * grows
        yield blocks


def _start(network: nn.Module, head: nn.Linear) -> None:
    """Draw every convolution from N(0, 2 / n), n = kernel area × output channels; start the head's bias at 0.

    That keeps the variance of the gradients from layer to layer (eq. 14 of He, Zhang, Ren and Sun, "Delving Deep into
    Rectifiers", 2015), and is what the authors of the residual networks trained with.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    nn.init.zeros_(head.bias)


class SmallResNet(nn.Module):
    """Classify small images: a 3×3 convolution, stages of blocks, the mean over the pixels, a linear layer.

    Args:
        block: makes a block from its input channels, its width and its stride.
        pre_activation: normalise and rectify after the blocks, as `PreActBlock` needs it; else before them.
        stem: channels of the first convolution; None is `width`.
        factors: channels of the stages as multiples of `width`; each stage has `depth` blocks.
        width: channels of the first stage.
        stem_stride: of the first convolution; 2 halves the size of the images at once, for a quarter of the work.

    >>> import torch
    >>> network = SmallResNet(PreActBlock, True, None, (1, 2, 4, 8), 2, num_classes=10, in_channels=1, width=8)
    >>> network(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        block: Callable[[int, int, int], nn.Module],
        pre_activation: bool,
        stem: int | None,
        factors: Sequence[int],
        depth: int,
        num_classes: int,
        in_channels: int = 3,
        width: int = 64,
        stem_stride: int = 1,
    ) -> None:
        super().__init__()
        check_sizes(in_channels=in_channels, width=width, stem_stride=stem_stride)
        stem, widths = stem or width, [width * factor for factor in factors]
        self.pre_activation = pre_activation
        self.stem = nn.Conv2d(in_channels, stem, 3, stride=stem_stride, padding=1, bias=False)
        if not pre_activation:
            self.norm = nn.BatchNorm2d(stem)
        stages = _stages(block, stem, widths, [depth] * len(widths))
        self.blocks = nn.Sequential(*(block for stage in stages for block in stage))
        if pre_activation:
            self.norm = nn.BatchNorm2d(widths[-1])
        self.head = nn.Linear(widths[-1], num_classes)
        _start(self, self.head)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, K) for images (N, C, H, W)."""
        features = self.stem(images)
        if self.pre_activation:
            features = F.relu(self.norm(self.blocks(features)))
        else:
            features = self.blocks(F.relu(self.norm(features)))
        logits: Tensor = self.head(features.mean((2, 3)))
        return logits


# He, Zhang, Ren and Sun, "Identity Mappings in Deep Residual Networks", 2016.
register_model(
    "preact-resnet18",
    "image",
    "pre-activation ResNet-18 for images of 8 to 64 pixels; 11.17M parameters for 10 classes",
)(partial(SmallResNet, PreActBlock, True, None, (1, 2, 4, 8), 2))


@register_model(
    "wide-resnet-28-10", "image", "wide ResNet for images of 8 to 64 pixels; 36.48M parameters for 10 classes"
)
def wide_resnet_28_10(
    num_classes: int,
    in_channels: int = 3,
    width: int = 160,
    dropout: float = 0.0,
    stem_stride: int = 1,
) -> SmallResNet:
    """Return the network with three stages of four blocks; 160 is ten times the 16 channels of the first convolution.

    Zagoruyko and Komodakis, "Wide Residual Networks", 2016, whose dropout, if any, is 0.3.
    """
    check_sizes(dropout)
    block = partial(PreActBlock, dropout=dropout)
    return SmallResNet(block, True, 16, (1, 2, 4), 4, num_classes, in_channels, width, stem_stride)


# He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", 2016, section 4.2.
register_model("resnet32", "image", "ResNet-32 for images of 8 to 64 pixels; 464K parameters for 10 classes")(
    partial(SmallResNet, BasicBlock, False, None, (1, 2, 4), 5, width=16)
)


class LargeResNet(nn.Module):
    """Classify large images by four stages of bottleneck blocks, the first at a quarter of the size.

    He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", 2016; the stride of a stage is on the 3×3
    convolution of its first block, where the paper has it on the 1×1 before. The parts are named as in torchvision and
    timm, so that weights trained with either can be loaded.

    Args:
        depths: blocks of each stage.
        width: inner channels of the first stage's blocks; each later stage has twice as many. 64 is the paper's.

    >>> import torch
    >>> LargeResNet((3, 4, 6, 3), num_classes=10, width=4)(torch.zeros(2, 3, 64, 64)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        depths: Sequence[int],
        num_classes: int,
        in_channels: int = 3,
        width: int = 64,
    ) -> None:
        super().__init__()
        check_sizes(in_channels=in_channels, width=width)
        self.conv1 = nn.Conv2d(in_channels, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        widths = [width * factor for factor in (1, 2, 4, 8)]
        stages = _stages(Bottleneck, width, widths, depths, grows=Bottleneck.expansion)
        self.layer1, self.layer2, self.layer3, self.layer4 = (nn.Sequential(*blocks) for blocks in stages)
        self.fc = nn.Linear(widths[-1] * Bottleneck.expansion, num_classes)
        _start(self, self.fc)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, K) for images (N, C, H, W)."""
        features = self.maxpool(F.relu(self.bn1(self.conv1(images))))  # (N, w, H/4, W/4)
        features = self.layer4(self.layer3(self.layer2(self.layer1(features))))  # (N, 32w, H/32, W/32)
        logits: Tensor = self.fc(features.mean((2, 3)))
        return logits


for _layers, _depths, _parameters in (
    (50, (3, 4, 6, 3), "25.56M"),
    (101, (3, 4, 23, 3), "44.55M"),
    (152, (3, 8, 36, 3), "60.19M"),
):
    register_model(
        f"resnet{_layers}",
        "image",
        f"ResNet-{_layers} for large images, stride 2 on 3×3; {_parameters} parameters for 1,000 classes",
    )(partial(LargeResNet, _depths))

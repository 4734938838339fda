"""A small convolutional network that learns 32×32 photographs in minutes on a CPU, in the manner of airbench.

Shapes: N images, C channels, H × W pixels; w = `width`; P = 4 · C values of a patch of 2×2 pixels.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adaptive_labels.lab.models.registry import check_sizes, register_model

PATCH = 2
EPSILON = 5e-4  # added to the variances, so that directions in which images hardly vary are not blown up to noise
_WHAT = "fast convolutional network with fitted whitening, for images of 32 pixels; 1.16M parameters for 10 classes"


class Whitening(nn.Module):
    """A 2×2 convolution that is fitted, not trained: uncorrelated outputs of variance 1, each with both signs.

    Its 2 · P filters are a buffer, saved with the weights; until `fit` they pass the pixels on. The bias is trained.
    """

    weight: Tensor

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        values = in_channels * PATCH**2
        self.register_buffer("weight", _both_signs(torch.eye(values).view(values, in_channels, PATCH, PATCH)))
        self.bias = nn.Parameter(torch.zeros(2 * values))

    @torch.no_grad()
    def fit(self, images: Tensor) -> None:
        """Set the filters to the eigenvectors v of the covariance of all patches, each over √(λ + ε)."""
        values = self.weight[0].numel()
        total = torch.zeros(values, dtype=torch.float64)
        products = torch.zeros(values, values, dtype=torch.float64)
        count = 0
        for part in images.split(500):  # type: ignore[no-untyped-call]
            patches = F.unfold(part, PATCH).transpose(1, 2).reshape(-1, values).double()  # (patches, P)
            total += patches.sum(0)
            products += patches.T @ patches
            count += len(patches)
        mean = total / count
        variances, vectors = torch.linalg.eigh(products / count - mean.outer(mean))  # (P,), (P, P)
        # An eigenvector's sign is arbitrary; since both signs are used, only their order would change with it.
        largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
        filters = (vectors * largest.sign() / (variances.clamp_min(0) + EPSILON).sqrt()).T
        self.weight.copy_(_both_signs(filters.view(-1, *self.weight.shape[1:])))

    def forward(self, images: Tensor) -> Tensor:
        """Return (N, 2 · P, H − 1, W − 1)."""
        return F.conv2d(images, self.weight, self.bias)


def _both_signs(filters: Tensor) -> Tensor:
    return torch.cat([filters, -filters])


class ShiftNorm(nn.BatchNorm2d):
    """Batch normalisation that learns a shift and no scale; its running figures follow the last few batches."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, momentum=0.4)
        self.register_parameter("weight", None)

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        nn.init.zeros_(self.bias)


class Block(nn.Module):
    """Convolve, halve the size by the maximum, normalise, activate; then convolve, normalise, activate."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = _convolution(in_channels, out_channels)
        self.norm1 = ShiftNorm(out_channels)
        self.conv2 = _convolution(out_channels, out_channels)
        self.norm2 = ShiftNorm(out_channels)

    def forward(self, input: Tensor) -> Tensor:
        """Return (N, out_channels, H / 2, W / 2), rounded down, at least 1."""
        convolved = self.conv1(input)
        halved = F.max_pool2d(convolved, min(2, *convolved.shape[2:]))
        return F.gelu(self.norm2(self.conv2(F.gelu(self.norm1(halved)))))


def _convolution(in_channels: int, out_channels: int) -> nn.Conv2d:
    """A 3×3 convolution whose first outputs start as its inputs; the others are drawn as torch draws them."""
    layer = nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False)
    with torch.no_grad():
        nn.init.dirac_(layer.weight[:in_channels])
    return layer


@register_model("airbench", "image", _WHAT)
class Airbench(nn.Module):
    """Classify small images: fitted whitening, three blocks of two 3×3 convolutions, the maximum over the pixels.

    Args:
        width: channels of the first block; the others have 2 and 4 times as many.
        head_scale: factor on the logits. The paper's is 1/9, for 10 classes and many steps; with few examples per class
            a larger one learns faster.
        flip_test: outside training the logits are the mean over the image and its mirror image.

    Jordan, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU", 2024, whose first network has the widths 64, 256, 256.

    >>> network = Airbench(num_classes=10, width=8)
    >>> network.fit_inputs(torch.rand(20, 3, 32, 32))
    >>> network(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int = 3,
        width: int = 64,
        head_scale: float = 1 / 9,
        flip_test: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(in_channels=in_channels, width=width)
        self.head_scale, self.flip_test = head_scale, flip_test
        self.whitening = Whitening(in_channels)
        stem = len(self.whitening.weight)
        self.blocks = nn.Sequential(Block(stem, width), Block(width, 2 * width), Block(2 * width, 4 * width))
        self.head = nn.Linear(4 * width, num_classes, bias=False)

    def fit_inputs(self, images: Tensor) -> None:
        """Fit the whitening on training images (N, C, H, W), encoded as the network will read them."""
        self.whitening.fit(images)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, K) for images (N, C, H, W)."""
        if self.flip_test and not self.training:
            return (self._logits(images) + self._logits(images.flip(-1))) / 2
        return self._logits(images)

    def _logits(self, images: Tensor) -> Tensor:
        stem = F.gelu(self.whitening(images))  # (N, 8 · C, H − 1, W − 1)
        pooled = self.blocks(stem).amax((2, 3))  # (N, 4 · w)
        logits: Tensor = self.head(pooled) * self.head_scale
        return logits

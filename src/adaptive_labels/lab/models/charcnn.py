"""A convolutional network over the characters of a text.

Shapes: N texts of up to L characters, A = `alphabet`, F = `width`, K classes.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from adaptive_labels.lab.models.registry import check_sizes, register_model

KERNELS = (7, 7, 3, 3, 3, 3)
POOLED = (True, True, False, False, False, True)  # maximum over 3 neighbours
SIZES = {"small": (256, 1024, 0.05), "large": (1024, 2048, 0.02)}  # width, units of the hidden layers, initial std


@register_model("charcnn", "text", "six convolutions over characters, then three linear layers", reads="characters")
class CharCNN(nn.Module):
    """Classify a text by convolutions over its characters, each written as a one-hot vector of its number.

    Six convolutions with the maximum over 3 neighbours after three of them; then two hidden layers with dropout, and a
    linear one. A shorter text is padded by zero vectors to `length`, a longer one is cut.

    Args:
        vocabulary: numbers of characters, 1 + A: 0 is any character outside the alphabet, and padding.
        size: `"small"` (256 features, 1,024 hidden units) or `"large"` (1,024 and 2,048).
        width: features of each convolution, instead of those of `size`; the hidden units follow in proportion.
        length: how many characters are read, at least 123; 1,014 is the paper's.
        dropout: after each of the hidden layers.

    Zhang, Zhao and LeCun, "Character-level Convolutional Networks for Text Classification", 2015.

    >>> import torch
    >>> model = CharCNN(num_classes=3, vocabulary=70, width=8, length=123)
    >>> model((torch.tensor([[5, 7, 9], [8, 0, 0]]), torch.tensor([3, 1]))).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        num_classes: int,
        vocabulary: int = 71,
        size: str = "small",
        width: int | None = None,
        length: int = 1014,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        if size not in SIZES:
            raise ValueError(f"size is {size!r}; it must be one of {', '.join(SIZES)}")
        full_width, full_hidden, std = SIZES[size]
        width = full_width if width is None else width
        check_sizes(dropout, vocabulary=vocabulary - 1, width=width)
        left = length  # places after each convolution
        for kernel, pooled in zip(KERNELS, POOLED, strict=True):
            left = max(0, left - kernel + 1) // (3 if pooled else 1)
        if left < 1:
            raise ValueError(f"length is {length}; the convolutions need at least 123 characters")
        hidden = max(1, full_hidden * width // full_width)
        self.alphabet, self.length = vocabulary - 1, length
        channels = (self.alphabet, *[width] * 5)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(before, width, kernel) for before, kernel in zip(channels, KERNELS, strict=True)
        )
        self.hidden = nn.ModuleList([nn.Linear(left * width, hidden), nn.Linear(hidden, hidden)])
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, num_classes)
        # The paper's deviations are for its widths; a narrower layer needs more to keep the signal alive.
        std *= (full_width / width) ** 0.5
        for layer in (*self.convolutions, *self.hidden, self.head):
            assert isinstance(layer, nn.Conv1d | nn.Linear)
            nn.init.normal_(layer.weight, std=std)

    def forward(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        """Return logits (N, K) for numbers of characters (N, L), padded with 0; how many count does not matter."""
        characters, _ = inputs
        characters = F.pad(characters[:, : self.length], (0, max(0, self.length - characters.shape[1])))
        features = F.one_hot(characters, self.alphabet + 1)[:, :, 1:].to(self.head.weight.dtype).transpose(1, 2)
        for convolve, pooled in zip(self.convolutions, POOLED, strict=True):
            features = F.relu(convolve(features))
            if pooled:
                features = F.max_pool1d(features, 3)
        features = features.flatten(1)
        for layer in self.hidden:
            features = self.dropout(F.relu(layer(features)))
        logits: Tensor = self.head(features)
        return logits

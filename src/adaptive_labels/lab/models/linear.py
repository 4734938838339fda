"""Linear classifiers, the plain ones: of n-grams, of pixels, and of the columns of a table."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adaptive_labels.lab.models.features import FeatureHead
from adaptive_labels.lab.models.registry import check_sizes, register_model


@register_model("linear", "text", "a linear classifier of TF-IDF n-grams", reads="tfidf")
class Linear(nn.Module):
    """One weight per n-gram and class; a text without a known n-gram has the logits of the bias alone.

    Args:
        features: how many different n-grams there are, as in the encoder.
        dropout: share of a text's n-grams that are left out in training.

    >>> model = Linear(num_classes=3, features=10)
    >>> model((torch.tensor([1, 2]), torch.tensor([0, 2]), torch.tensor([0.6, 0.8]))).shape  # the second text is empty
    torch.Size([2, 3])
    """

    def __init__(self, num_classes: int, features: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        check_sizes(dropout, features=features)
        self.dropout = dropout
        self.weights = nn.EmbeddingBag(features, num_classes, mode="sum", _weight=torch.zeros(features, num_classes))
        self.bias = nn.Parameter(torch.zeros(num_classes))

    def forward(self, inputs: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """Return logits (N, K) for n-grams (M,), where each text's begin (N,), and their weights (M,)."""
        *ids, weights = inputs
        weights = F.dropout(weights, self.dropout, self.training)
        logits: Tensor = self.weights(*ids, per_sample_weights=weights)
        return logits + self.bias


@register_model("linear-pixels", "image", "a linear classifier of small pictures; 7.7K parameters for 10 classes")
class LinearPixels(nn.Module):
    """One weight per pixel of a small picture, its channel and the class.

    Args:
        in_channels: 1 for grey images, 3 for colour.
        side: the width and height in pixels that images are shrunk to first, by averages.

    >>> LinearPixels(num_classes=3, side=4)(torch.ones(2, 3, 8, 8)).shape
    torch.Size([2, 3])
    """

    def __init__(self, num_classes: int, in_channels: int = 3, side: int = 16) -> None:
        super().__init__()
        check_sizes(in_channels=in_channels, side=side)
        self.shrink = nn.Sequential(nn.AdaptiveAvgPool2d(side), nn.Flatten())
        self.classifier = FeatureHead(num_classes, in_channels * side**2, hidden=0, dropout=0.0)

    def fit_inputs(self, inputs: Tensor) -> None:
        """Take the mean and standard deviation of each pixel of training images (N, C, H, W)."""
        self.classifier.fit_inputs(self.shrink(inputs))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits (N, K) for images (N, C, H, W)."""
        logits: Tensor = self.classifier(self.shrink(inputs))
        return logits


@register_model("linear-columns", "row", "a linear classifier of numbers and categories")
def linear_columns(num_classes: int, in_features: int = 1) -> nn.Linear:
    """One weight per feature (D of them, as in the encoder) and class: rows (N, D) to logits (N, K)."""
    check_sizes(in_features=in_features)
    return nn.Linear(in_features, num_classes)

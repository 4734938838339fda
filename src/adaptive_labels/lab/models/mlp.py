"""A multi-layer perceptron for rows of numbers."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from adaptive_labels.lab.models.registry import check_sizes, register_model


@register_model("mlp", "row", "hidden layers of ReLU units on numbers and categories")
class MLP(nn.Module):
    """Classify rows of features through hidden layers, as `adapters.sklearn.AdaptiveLabelClassifier` does.

    Args:
        in_features: how many there are, D, as in the encoder.
        hidden: units of each hidden layer; empty for a linear classifier.
        dropout: share of each hidden layer that is dropped in training.

    >>> import torch
    >>> MLP(num_classes=3, in_features=8, hidden=[16, 16])(torch.ones(2, 8)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self, num_classes: int, in_features: int = 1, hidden: int | Sequence[int] = (100,), dropout: float = 0.0
    ) -> None:
        super().__init__()
        sizes = [in_features, *(hidden if isinstance(hidden, Sequence) else [hidden])]
        for place, size in enumerate(sizes):
            check_sizes(dropout, **{"hidden" if place else "in_features": size})
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], num_classes))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits (N, K) for features (N, D)."""
        logits: Tensor = self.layers(inputs)
        return logits

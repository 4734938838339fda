"""Multinomial logistic regression on weighted n-grams, the plain classifier for texts."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
        self.weight = nn.Parameter(torch.zeros(features, num_classes))
        self.bias = nn.Parameter(torch.zeros(num_classes))

    def forward(self, inputs: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """Return logits (N, K) for n-grams (M,), where each text's begin (N,), and their weights (M,)."""
        ids, begins, weights = inputs
        weights = F.dropout(weights, self.dropout, self.training)
        logits: Tensor = F.embedding_bag(ids, self.weight, begins, mode="sum", per_sample_weights=weights)
        return logits + self.bias

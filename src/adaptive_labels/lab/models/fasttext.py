"""A bag of hashed features, as in fastText."""

import torch
from torch import Tensor, nn

from adaptive_labels.lab.models.registry import check_sizes, register_model


@register_model("fasttext", "text", "mean of the embeddings of words and pieces of words, then one linear layer")
class FastText(nn.Module):
    """Average the embeddings of a text's features and classify the average.

    A text without features has the average 0 and so the logits of the bias alone.

    Args:
        buckets: how many different features there are, as in the encoder.
        dim: the size D of an embedding.
        dropout: share of the average (and of the hidden layer) that is dropped in training; long texts need none.
        hidden: units of a hidden layer (ReLU) beside the average, both read by the last layer; 0 is fastText itself.
        sparse: give the embeddings a sparse gradient; only SGD, Adagrad and SparseAdam take one.

    Joulin, Grave, Bojanowski and Mikolov, "Bag of Tricks for Efficient Text Classification", 2017.

    >>> model = FastText(num_classes=3, buckets=100)
    >>> model((torch.tensor([1, 2, 3]), torch.tensor([0, 3]))).shape  # two texts, the second one empty
    torch.Size([2, 3])
    """

    def __init__(
        self,
        num_classes: int,
        buckets: int = 2**16,
        dim: int = 64,
        dropout: float = 0.5,
        hidden: int = 0,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        if buckets < 1 or dim < 1:
            raise ValueError(f"buckets is {buckets} and dim is {dim}; both must be at least 1")
        if hidden < 0:
            raise ValueError(f"hidden is {hidden}; it must be at least 0")
        check_sizes(dropout)
        self.embedding = nn.EmbeddingBag(buckets, dim, mode="mean", sparse=sparse)
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Linear(dim, hidden) if hidden else None
        self.head = nn.Linear(dim + hidden, num_classes)
        nn.init.uniform_(self.embedding.weight, -1 / dim, 1 / dim)
        nn.init.zeros_(self.head.bias)

    def forward(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        """Return logits (N, K) for the feature numbers of all texts (M,) and where each text's begin (N,)."""
        average = self.embedding(*inputs)  # (N, D)
        features = self.dropout(average)
        if self.hidden is not None:
            features = torch.cat([features, self.dropout(self.hidden(average).relu())], dim=1)  # (N, D + hidden)
        logits: Tensor = self.head(features)
        return logits

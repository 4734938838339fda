"""A transformer encoder for texts.

Shapes: N texts of up to L words, D = `width`, K classes.
"""

import math

import torch
from torch import Tensor, nn

from adaptive_labels.lab.models.registry import check_sizes, register_model

_WHAT = "transformer encoder, the mean over the words, then one linear layer"


@register_model("transformer", "text", _WHAT, reads="words")
class Transformer(nn.Module):
    """Let the words of a text attend to one another, layer by layer, and classify their mean.

    Embeddings are multiplied by √D and added to sines and cosines of the places. Padding is neither attended to nor
    part of the mean.

    Args:
        vocabulary: how many numbers of words there are; 0 is padding.
        width: the size D of a word.
        layers: of attention, each followed by a feed-forward part of 4 × `width` units.
        heads: of each attention; they divide `width`.
        dropout: in training, of embeddings, attention, what the layers add, and the mean.

    The defaults are the encoder of the base model of Vaswani et al., "Attention Is All You Need", 2017.

    >>> model = Transformer(num_classes=3, vocabulary=100, width=8, layers=1, heads=2)
    >>> model((torch.tensor([[5, 7, 9], [8, 0, 0]]), torch.tensor([3, 1]))).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        num_classes: int,
        vocabulary: int = 37_000,
        width: int = 512,
        layers: int = 6,
        heads: int = 8,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_sizes(dropout, vocabulary=vocabulary, width=width, layers=layers, heads=heads)
        if width % heads or width % 2:
            raise ValueError(f"width is {width}; it must be even and a multiple of heads, which is {heads}")
        self.width = width
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        with torch.no_grad():
            self.embedding.weight[0] = 0
        self.dropout = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, batch_first=True)
        # Nested tensors would be another path in evaluation than in training, with warnings of its own.
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        for weight in self.encoder.parameters():
            if weight.dim() > 1:
                nn.init.xavier_uniform_(weight)  # the layers are copies of one otherwise
        self.head = nn.Linear(width, num_classes)

    def forward(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        """Return logits (N, K) for numbers of words (N, L), padded with 0, and how many of them count (N,)."""
        words, lengths = inputs
        present = torch.arange(words.shape[1], device=lengths.device) < lengths[:, None]  # (N, L): not padding
        embedded = self.embedding(words) * math.sqrt(self.width) + places(words.shape[1], self.width, words.device)
        read = self.encoder(self.dropout(embedded), src_key_padding_mask=~present)  # (N, L, D)
        total = read.masked_fill(~present[:, :, None], 0.0).sum(1)
        logits: Tensor = self.head(self.dropout(total / lengths.clamp_min(1)[:, None]))
        return logits


def places(count: int, width: int, device: torch.device | None = None) -> Tensor:
    """Return (L, D): sin(i / 10000^(2j/D)) in the even columns 2j, the cosine in the odd ones.

    >>> [[round(value, 3) for value in row] for row in places(2, 4).tolist()]
    [[0.0, 1.0, 0.0, 1.0], [0.841, 0.54, 0.01, 1.0]]
    """
    rates = torch.exp(torch.arange(0, width, 2, device=device) * (-math.log(10_000) / width))
    angles = torch.arange(count, device=device)[:, None] * rates  # (L, D/2)
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)

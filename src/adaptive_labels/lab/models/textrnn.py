"""The recurrent convolutional network for texts.

Shapes: N texts of up to L words, D = `dim`, C = `context`, H = `hidden`, K classes.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from adaptive_labels.lab.models.registry import check_sizes, register_model

CELLS = {"rnn": nn.RNN, "lstm": nn.LSTM}


_WHAT = "recurrent convolutional network: words in their contexts, the strongest of each trait"


@register_model("textrnn", "text", _WHAT, reads="words")
class TextRNN(nn.Module):
    r"""Read each word between its left and its right context, and keep the strongest sign of each trait.

    With e(w_i) a word's embedding, l its context from the left and r from the right (the outermost are learned):

    .. math::
        l_i = f(W_l\,l_{i-1} + W_{sl}\,e(w_{i-1})), \quad r_i = f(W_r\,r_{i+1} + W_{sr}\,e(w_{i+1}))

        y_i = \tanh(W [l_i; e(w_i); r_i] + b), \quad z = V \max_i y_i + c

    Args:
        vocabulary: how many numbers of words there are; 0 is padding.
        dim: the size D of an embedding.
        context: the size C of each context.
        hidden: the size H of y.
        cell: of the contexts: `"rnn"`, as above, or `"lstm"`.
        dropout: share of the embeddings, and of what the last layer reads, that is dropped in training.

    The default sizes are those of Lai, Xu, Liu and Zhao, "Recurrent Convolutional Neural Networks for Text
    Classification", 2015.

    >>> model = TextRNN(num_classes=3, vocabulary=100)
    >>> model((torch.tensor([[5, 7, 9], [8, 0, 0]]), torch.tensor([3, 1]))).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        num_classes: int,
        vocabulary: int = 20_000,
        dim: int = 50,
        context: int = 50,
        hidden: int = 100,
        cell: str = "rnn",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes(dropout, vocabulary=vocabulary, dim=dim, context=context, hidden=hidden)
        if cell not in CELLS:
            raise ValueError(f"cell is {cell!r}; it must be one of {', '.join(CELLS)}")
        self.embedding = nn.Embedding(vocabulary, dim, padding_idx=0)
        self.dropout = nn.Dropout(dropout)
        self.recurrent = CELLS[cell](dim, context, batch_first=True, bidirectional=True)
        self.edges = nn.Parameter(torch.zeros(2, context))  # the first word's left context, the last one's right
        self.traits = nn.Linear(dim + 2 * context, hidden)
        self.head = nn.Linear(hidden, num_classes)

    def forward(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        """Return logits (N, K) for numbers of words (N, L), padded with 0, and how many of them count (N,)."""
        words, lengths = inputs
        embedded = self.dropout(self.embedding(words))  # (N, L, D)
        left, right = self._contexts(embedded, lengths)
        traits = torch.tanh(self.traits(torch.cat([left, embedded, right], dim=2)))  # (N, L, H)
        padding = torch.arange(words.shape[1], device=lengths.device) >= lengths[:, None]  # (N, L)
        strongest = traits.masked_fill(padding[:, :, None], -2.0).amax(1)  # below what tanh can give
        logits: Tensor = self.head(self.dropout(strongest))
        return logits

    def _contexts(self, embedded: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Each word's left and right context, (N, L, C) each."""
        first = self.edges[:, None].expand(-1, lengths.shape[0], -1).contiguous()  # (2, N, C)
        if torch.compiler.is_exporting():  # a graph has no packed sequences
            forward, backward = _scanned(self.recurrent, embedded, lengths, first)
        else:
            packed = pack_padded_sequence(embedded, lengths.cpu(), batch_first=True, enforce_sorted=False)
            start = (first, torch.zeros_like(first)) if isinstance(self.recurrent, nn.LSTM) else first
            states = self.recurrent(packed, start)[0]
            padded, _ = pad_packed_sequence(states, batch_first=True, total_length=embedded.shape[1])
            forward, backward = padded.chunk(2, dim=2)
        # A state has read its own word; the context of a word is the state beside it.
        places = torch.arange(embedded.shape[1], device=lengths.device)
        at_end = (places == (lengths - 1)[:, None])[:, :, None]  # (N, L, 1)
        left = torch.where((places == 0)[:, None], first[0][:, None], F.pad(forward, (0, 0, 1, 0))[:, :-1])
        return left, torch.where(at_end, first[1][:, None], F.pad(backward, (0, 0, 0, 1))[:, 1:])


def _scanned(recurrent: nn.RNNBase, embedded: Tensor, lengths: Tensor, first: Tensor) -> list[Tensor]:
    """The states (N, L, C) after each word from either side, as a loop that a graph can hold; arbitrary at padding."""
    from torch._higher_order_ops import scan

    def step_rnn(state: Tensor, word: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.tanh(word + state @ recurrent_weight.T)
        return state, state.clone()

    def step_lstm(both: tuple[Tensor, Tensor], word: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        put, keep, new, give = (word + both[0] @ recurrent_weight.T).chunk(4, dim=1)
        cell = keep.sigmoid() * both[1] + put.sigmoid() * new.tanh()
        state = give.sigmoid() * cell.tanh()
        return (state, cell), state.clone()

    places, found = torch.arange(embedded.shape[1]), []
    last_first = torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places)  # (N, L)
    for side, suffix in enumerate(("_l0", "_l0_reverse")):
        weight, recurrent_weight, *biases = (
            getattr(recurrent, name + suffix) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        order = (last_first if side else places.expand_as(last_first))[:, :, None]  # (N, L, 1)
        words = (embedded.gather(1, order.expand_as(embedded)) @ weight.T + biases[0] + biases[1]).transpose(0, 1)
        if isinstance(recurrent, nn.LSTM):
            _, states = scan(step_lstm, (first[side], torch.zeros_like(first[side])), words)
        else:
            _, states = scan(step_rnn, first[side], words)
        states = states.transpose(0, 1)  # (N, L, C)
        found.append(states.gather(1, order.expand_as(states)))
    return found

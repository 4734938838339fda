"""The network of a run as one module that other programs can run: from ids, features or pixels to probabilities.

Shapes: N inputs, L ids of the longest, M lines of W ids of all, D features, H × W pixels in C channels, K classes.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export
from torch.nn import functional as F

from adaptive_labels.errors import UserError
from adaptive_labels.lab.words import first_line

Shape = dict[int, Any]
_N, _L, _M = Dim("inputs"), Dim("length"), Dim("lines")
# What a network reads, by the kind of its preprocessing: the dimensions of each input that may differ.
DYNAMIC: Mapping[str, Mapping[str, Shape]] = {
    "ngrams": {"ids": {0: _M}, "offsets": {0: _N}},
    "tfidf": {"ids": {0: _M}, "offsets": {0: _N}, "weights": {0: _M}},
    "words": {"ids": {0: _N, 1: _L}, "lengths": {0: _N}},
    "characters": {"ids": {0: _N}, "lengths": {0: _N}},
    "tokens": {"ids": {0: _N, 1: _L}, "lengths": {0: _N}},
    "columns": {"features": {0: _N}},
    "images": {"pixels": {0: _N}},
}


class PortableNetwork(nn.Module):
    """What a run's network reads → probabilities (N, K), or logits.

    Args:
        network: what a batch of the run's encoder is given to → logits; bags of n-grams are replaced, see `Bag`.
        temperature: what logits are divided by, as it was fitted on validation.
        logits: give logits as they are instead of probabilities.
        pixels: how images (N, H, W, C) become what the network reads, if it reads images.
    """

    temperature: Tensor

    def __init__(
        self,
        network: nn.Module,
        temperature: float = 1.0,
        logits: bool = False,
        pixels: "Pixels | None" = None,
    ) -> None:
        super().__init__()
        self.network, self.pixels = with_portable_bags(network), pixels
        self.register_buffer("temperature", torch.tensor(temperature))
        self.logits = logits

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return (N, K) for the arrays that `encode` makes, in their order."""
        read: Any = inputs if len(inputs) > 1 else inputs[0]
        if self.pixels is not None:
            read = self.pixels(read)
        logits: Tensor = self.network(read)
        return logits if self.logits else (logits / self.temperature).softmax(1)


class Pixels(nn.Module):
    """Images (N, H, W, C) of uint8, normalised, and resized for an encoder of images of another size."""

    mean: Tensor
    std: Tensor

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__()
        for name in ("mean", "std"):
            self.register_buffer(name, torch.tensor(settings[name])[:, None, None])
        height, width = settings["size"]
        side = settings.get("input_size")
        self.size = None if side is None or (height, width) == (side, side) else (side, side)
        self.shrinks = side is not None and min(height, width) > side

    def forward(self, images: Tensor) -> Tensor:
        """Return (N, C, H, W) as float32."""
        found = (images.permute(0, 3, 1, 2).float() / 255 - self.mean) / self.std  # a grey one becomes colour for three
        if self.size is None:
            return found
        return F.interpolate(found, self.size, mode="bicubic", align_corners=False, antialias=self.shrinks)


class Bag(nn.Module):
    """Means of embeddings, or weighted sums: `nn.EmbeddingBag` in operations that other runtimes have.

    Ids stand in lines of W, filled up with -1 (`lines` in `encode.py`). Each line is summed in itself, then the lines
    of a text, by `scatter_add`: for `index_add` onnxruntime adds in several threads at once, and loses some.
    """

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.cat([weight.new_zeros(1, weight.shape[1]), weight]))  # of -1, then of the ids

    def forward(self, ids: Tensor, offsets: Tensor, per_sample_weights: Tensor | None = None) -> Tensor:
        """Return (N, D) for the lines of all texts (M, W), and the first line of each text (N,)."""
        found = F.embedding(ids + 1, self.weight)  # (M, W, D)
        of_lines = found.sum(1) if per_sample_weights is None else (per_sample_weights[:, None] @ found)[:, 0]  # (M, D)
        texts = ids.new_zeros(ids.shape[0]).scatter_add(0, offsets, torch.ones_like(offsets)).cumsum(0) - 1  # (M,)
        total = found.new_zeros(offsets.shape[0], found.shape[2])
        total = total.scatter_add(0, texts[:, None].expand_as(of_lines), of_lines)
        if per_sample_weights is not None:
            return total
        lengths = torch.zeros_like(offsets).scatter_add(0, texts, (ids >= 0).sum(1))
        return total / lengths.clamp_min(1)[:, None]


def with_portable_bags(network: nn.Module) -> nn.Module:
    """The network with `Bag` in place of its embedding bags; it is changed in place."""
    for name, module in list(network.named_modules()):
        if isinstance(module, nn.EmbeddingBag):
            network.set_submodule(name, Bag(module.weight.detach()))
    return network


def program_of(network: PortableNetwork, kind: str, arrays: Mapping[str, Any], most: int | None) -> ExportedProgram:
    """The network as a graph for any number of inputs; ``arrays`` are of some inputs, two at least.

    Of a text it reads ``most`` tokens, if that is limited.
    """
    shapes = DYNAMIC[kind]
    given = tuple(torch.from_numpy(arrays[name]) for name in shapes)
    if most is not None:
        shapes = {**shapes, "ids": {0: _N, 1: Dim("tokens", max=most)}}
    # Where no gradients are wanted, some layers choose operations that only this processor has.
    network.eval().requires_grad_(True)
    try:
        return export(network, given, dynamic_shapes=(tuple(shapes.values()),))
    except Exception as error:  # whatever a network does that no graph can hold
        raise UserError(f"this network cannot be exported as a graph, for ONNX and pt2: {first_line(error)}") from error
    finally:
        network.requires_grad_(False)  # a pretrained encoder is shared with all of this process

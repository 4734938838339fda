"""Load weights from a safetensors file: use what fits, leave the rest new, and say what does not fit."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from adaptive_labels.errors import UserError
from adaptive_labels.lab import files
from adaptive_labels.lab.words import listed

_COUNTER = "num_batches_tracked"  # a norm counts its batches, but nothing reads the count


class WeightsError(UserError):
    """A file that does not hold this network's weights: one sentence with the file and the tensors."""


@dataclass(frozen=True)
class Match:
    """How a file fits a network."""

    taken: tuple[str, ...]  # the tensors to take
    new: tuple[str, ...]  # those of the head that stay new
    note: str  # a sentence on it


def match_weights(model: nn.Module, path: str | Path) -> Match:
    """Compare the names and shapes in a file with a network's, without reading the tensors.

    The network's last linear layer, its head, may be missing in the file or be for another number of classes; it then
    stays as it is. Everything else must be there, and nothing more.
    """
    needed = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if not name.endswith(_COUNTER)}
    stored = {name: shape for name, shape in _shapes(path).items() if not name.endswith(_COUNTER)}
    head = _head(model)
    missing = [name for name in needed if name not in stored]
    differing = [name for name in needed if name in stored and needed[name] != stored[name]]
    unexpected = [name for name in stored if name not in needed]
    new: tuple[str, ...] = ()
    note = f"The weights start from {path}, the head's included."
    other = [*missing, *differing]
    if other and all(name in head and needed[name][1:] == stored.get(name, needed[name])[1:] for name in other):
        new = head  # as a whole: its bias belongs to its weight
        missing, differing = [], []
        had = f"is for {stored[head[0]][0]:,} classes" if head[0] in stored else "is not in the file"
        note = f"The weights start from {path}; its head {had}, so a new one for {needed[head[0]][0]:,} classes "
        note += "starts at random."
    if missing or differing or unexpected:
        shapes = [f"{name} {_by(stored[name])} instead of {_by(needed[name])}" for name in differing]
        reasons = {"it has no": missing, "the network has no": unexpected, "in another shape it has": shapes}
        problems = "; ".join(f"{reason} {listed(names, 3)}" for reason, names in reasons.items() if names)
        raise WeightsError(f"{path} does not hold the weights of this network: {problems}")
    return Match(tuple(name for name in needed if name not in new), new, note)


def load_weights(model: nn.Module, path: str | Path) -> Match:
    """Give a network the weights of a file, in place; see `match_weights` for what must fit."""
    from safetensors.torch import load_file  # here, so that networks need torch alone

    match = match_weights(model, path)
    stored, tensors = load_file(path), model.state_dict()
    with torch.no_grad():
        for name in match.taken:
            tensors[name].copy_(stored[name])
    return match


def _shapes(path: str | Path) -> dict[str, tuple[int, ...]]:
    from safetensors import SafetensorError, safe_open

    if not Path(path).exists():
        raise WeightsError(f"there is no file {path}")
    try:
        files.refuse_special(path)
        with safe_open(path, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise WeightsError(
            f"{path} is no safetensors file ({getattr(error, 'strerror', None) or error}); no other kind is opened"
        ) from error


def _head(model: nn.Module) -> tuple[str, ...]:
    """The names of the tensors of the last linear layer."""
    names: tuple[str, ...] = ()
    for prefix, module in model.named_modules():
        if isinstance(module, nn.Linear):
            names = tuple(name for name, _ in module.named_parameters(prefix))
    return names


def _by(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "a number"

"""Store weights and predictions in half precision, if that changes no prediction.

Shapes: N examples, K classes.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor, nn

from adaptive_labels.lab.data import EncodedExamples
from adaptive_labels.lab.mapped import let_go
from adaptive_labels.lab.training.evaluation import predicted_batches

MOST_CHANGE = 1e-3  # of any probability
ROWS_AT_ONCE = 4096
TRIES = 2  # of rounding at random; no clock decides, so that the same run writes the same file


def weights_file(model: nn.Module, checks: Sequence[tuple[EncodedExamples, Tensor]], temperature: float = 1.0) -> bytes:
    """A network's weights as a safetensors file: half precision, if it then predicts the same.

    All float32 weights become float16, or only the largest tensor, or none: the first of these that changes no
    prediction on ``checks`` (examples with the logits of the exact weights), and no probability by more than 0.001,
    also after dividing the logits by ``temperature``. What was done is in the file's metadata. The network ends with
    its exact weights.
    """
    exact = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
    try:
        for rounded in _rounded(exact) if checks else ():
            model.load_state_dict(rounded)  # which turns them into the network's own type again
            fits = all(bool(tensor.isfinite().all()) for tensor in rounded.values())  # not too large for half precision
            if fits and all(
                _is_the_same(found, _rows(logits, indices), temperature)
                for examples, logits in checks
                for indices, found in predicted_batches(model, examples)
            ):
                halves = [name for name, tensor in rounded.items() if tensor.dtype == torch.float16]
                # One entry alone: safetensors writes several in no fixed order, so that the bits would change.
                return bytes(save(rounded, {"float16": ", ".join(halves)}))
    finally:
        model.load_state_dict(exact)
    return bytes(save(exact))


def _rounded(exact: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Yield the weights with all that are float32 in half precision, then with the largest tensor alone.

    A prediction that rounding to the nearest number changes is nearly a tie, so that last tensor is also rounded up and
    down at random, a few times.
    """
    names = [name for name, tensor in exact.items() if tensor.dtype == torch.float32]
    if not names:
        return
    yield {name: tensor.half() if name in names else tensor for name, tensor in exact.items()}
    largest = max(names, key=lambda name: exact[name].numel())
    yield {**exact, largest: exact[largest].half()}
    draw = torch.Generator().manual_seed(0)
    for _ in range(TRIES):
        tensor = exact[largest]
        step = torch.exp2(tensor.abs().clamp_min(2.0**-14).log2().floor() - 10)  # between two halves
        yield {**exact, largest: (tensor + step * (torch.rand(tensor.shape, generator=draw) - 0.5)).half()}


def _rows(logits: Tensor, indices: Tensor) -> Tensor:
    """A copy of some rows, whose pages need not stay in memory if they are in a file."""
    found = logits[indices]
    let_go(logits)
    return found


def _is_the_same(found: Tensor, logits: Tensor, temperature: float) -> bool:
    """Whether logits (N, K) have the same winners, and probabilities within 0.001, at 1 and at a temperature."""
    if not len(found):
        return True
    changes = [
        (found.float() / t).softmax(1).sub_((logits.float() / t).softmax(1)).abs_().amax() for t in (1.0, temperature)
    ]
    return torch.equal(found.argmax(1), logits.argmax(1)) and max(map(float, changes)) <= MOST_CHANGE


def compact_logits(logits: Tensor, temperature: float = 1.0) -> NDArray[np.float16] | NDArray[np.float32]:
    """Logits (N, K) in half precision, each row shifted so that its largest is 0.

    Near 0, where the likely classes are, half precision is finest. Should a prediction change, or a probability by more
    than 0.001, also after dividing by ``temperature``, the logits are given as they are.

    >>> compact_logits(torch.tensor([[30.0, 29.5, 0.0]])).tolist()
    [[0.0, -0.5, -30.0]]
    """
    halves = torch.empty(logits.shape, dtype=torch.float16)
    for rows in torch.split(torch.arange(len(logits)), ROWS_AT_ONCE):
        some = _rows(logits, rows)
        exact = some.double()
        halves[rows] = (exact - exact.amax(1, keepdim=True)).clamp_min(-6e4).half()
        if not _is_the_same(halves[rows], some, temperature):
            return logits.float().numpy()
    return halves.numpy()

"""A perceptron and its criterion with as few operations per step as possible, since steps on tables are short.

Shapes: N rows, F features, K classes; the layers have sizes F, …, K.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adaptive_labels.losses import create_loss

BETAS, EPSILON = (0.9, 0.999), 1e-8
ROWS_AT_ONCE = 2**15  # rows that are gathered, or predicted, in one operation
# What is applied to a layer's output in place, and its slope, as a function of the result.
ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "relu": (torch.relu_, lambda out: out > 0),
    "tanh": (torch.tanh_, lambda out: 1 - out * out),
    "logistic": (torch.sigmoid_, lambda out: out * (1 - out)),
    "identity": (lambda out: out, torch.ones_like),
}
Rows = tuple[Tensor, Tensor, Tensor | None]  # features (N, F), classes (N,), weights (N,)


class Perceptron:
    """A network and its criterion with all parameters in one vector, so that a step of Adam is a few operations.

    Autograd differentiates the criterion alone; the few products of the network's gradient are written out.
    Its state can be copied and pickled as plain data: see :meth:`state`.
    """

    def __init__(
        self, sizes: Sequence[int], activation: str, method: str, options: Mapping[str, Any], dtype: torch.dtype
    ) -> None:
        self.made_of = (tuple(sizes), activation, method, dict(options), dtype)
        self.dtype = torch.zeros(0, dtype=dtype).numpy().dtype  # as numpy names it
        self.activate, self.slope = ACTIVATIONS[activation]
        self.factor = 2.0 if activation == "logistic" else 6.0
        with torch.random.fork_rng(devices=[]):
            self.criterion = create_loss(method, sizes[-1], **options).to(dtype)
        self.steps = 0
        own = [parameter for parameter in self.criterion.parameters() if parameter.requires_grad]
        coefs = list(pairwise(sizes))
        first, last = (own, []) if self.criterion.like_network else ([], own)
        shapes = [*(tuple(p.shape) for p in first), *coefs, *((outs,) for _, outs in coefs), *(p.shape for p in last)]
        lengths = [int(np.prod(shape)) for shape in shapes]
        # What is learned, its gradient, and the running means of the gradient and of its square.
        self.vectors = torch.zeros(4, sum(lengths), dtype=dtype)
        values, gradients = (vector.split(lengths) for vector in self.vectors[:2])
        pairs = zip(values, gradients, shapes, strict=True)
        parts = iter([(value.view(shape), gradient.view(shape)) for value, gradient, shape in pairs])
        like_network = [next(parts) for _ in first]
        self.coefs = [next(parts) for _ in coefs]  # each with its gradient
        self.intercepts = [next(parts) for _ in coefs]
        self.own = list(zip(own, [*like_network, *parts], strict=True))
        for parameter, (value, _) in self.own:
            parameter.data = value.copy_(parameter.data)
        # Views, made once, since a step is so short that making them can be felt.
        self.whole = self.vectors.unbind()
        self.decaying = [vector[: sum(lengths[: len(first) + len(coefs)])] for vector in self.whole[:2]]
        at_rate = sum(lengths[: len(lengths) - len(last)])  # the rest has a rate of its own
        self.at_rates = [self.vectors[:, :at_rate].unbind(), self.vectors[:, at_rate:].unbind()][: 1 + bool(last)]

    def draw(self, random: Any) -> None:
        """Draw the first weights as ``MLPClassifier`` does, from the same random numbers."""
        for (coef, _), (intercept, _) in zip(self.coefs, self.intercepts, strict=True):
            bound = np.sqrt(self.factor / sum(coef.shape))
            coef.copy_(torch.from_numpy(random.uniform(-bound, bound, tuple(coef.shape))))
            intercept.copy_(torch.from_numpy(random.uniform(-bound, bound, len(intercept))))

    def outputs(self, x: Tensor) -> list[Tensor]:
        """The input, then each layer's output; the last one holds the logits (N, K)."""
        found = [x]
        for (coef, _), (intercept, _) in zip(self.coefs, self.intercepts, strict=True):
            if len(found) > 1:
                self.activate(found[-1])
            found.append(torch.addmm(intercept, found[-1], coef))
        return found

    def logits(self, x: Tensor) -> Tensor:
        """The logits (N, K) of any number of rows."""
        return torch.cat([self.outputs(rows)[-1] for rows in torch.split(x, ROWS_AT_ONCE)])

    def step(self, batch: Rows, rates: tuple[float, float], alpha: float) -> float:
        """One step of Adam on a batch, at a rate for the network and one for residual labels; returns the loss."""
        x, y, weight = batch
        *below, logits = self.outputs(x)
        loss = self.criterion(logits.requires_grad_(), y, weight)
        loss.backward()
        delta = logits.grad
        assert delta is not None
        for layer in reversed(range(len(below))):
            coef, gradient = self.coefs[layer]
            torch.mm(below[layer].T, delta, out=gradient)
            torch.sum(delta, 0, out=self.intercepts[layer][1])
            if layer:
                delta = (delta @ coef.T).mul_(self.slope(below[layer]))
        for parameter, (_, gradient) in self.own:
            if parameter.grad is None:
                gradient.zero_()
            else:
                gradient.copy_(parameter.grad)
                parameter.grad = None
        self._move(rates, alpha / (len(y) if weight is None else weight.sum().item()))
        return float(loss.item())

    def _move(self, rates: tuple[float, float], decay: float) -> None:
        _, gradient, mean, square = self.whole
        if decay:
            self.decaying[1].add_(self.decaying[0], alpha=decay)
        self.steps += 1
        mean.lerp_(gradient, 1 - BETAS[0])
        square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        torch.sqrt(square, out=gradient).add_(EPSILON)  # the gradient has done its work
        scale = -((1 - BETAS[1] ** self.steps) ** 0.5) / (1 - BETAS[0] ** self.steps)
        for (values, divisor, part, _), rate in zip(self.at_rates, rates, strict=False):
            values.addcdiv_(part, divisor, value=rate * scale)

    def state(self) -> dict[str, Any]:
        """A copy of all that training changes, as arrays and numbers."""
        criterion = {name: value.numpy().copy() for name, value in self.criterion.state_dict().items()}
        return {"vectors": self.vectors.numpy().copy(), "steps": self.steps, "criterion": criterion}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.criterion.load_state_dict({name: torch.tensor(value) for name, value in state["criterion"].items()})
        self.vectors.copy_(torch.from_numpy(state["vectors"]))
        self.steps = state["steps"]

    def __getstate__(self) -> dict[str, Any]:
        return {"made_of": self.made_of, **self.state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["made_of"])  # type: ignore[misc]
        self.load(state)


def batches(rows: Rows, order: Tensor, size: int) -> Iterator[Rows]:
    """The rows in batches. Many are gathered at once, since small operations take a visible share of the time."""
    x, y, weights = rows
    for block in torch.split(order, max(1, ROWS_AT_ONCE // size) * size):
        each_x, each_y = torch.split(x[block], size), torch.split(y[block], size)
        each_weight = [None] * len(each_y) if weights is None else torch.split(weights[block], size)
        yield from zip(each_x, each_y, each_weight, strict=True)

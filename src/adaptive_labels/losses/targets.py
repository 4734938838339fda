"""Shared by all methods: forms of targets, their cross entropy, and the coordinates of residual labels.

Shapes: N samples, K classes. ``target`` is class indices (N,) or class probabilities (N, K).
A *residual* row leaves out the sample's own class: it has K−1 entries.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Labels(NamedTuple):
    """A few labels per sample: ``classes`` (M, C), and how much of the target each is, ``shares`` (M, C).

    ``shares`` of None: one label each, all of the target.
    """

    classes: Tensor
    shares: Tensor | None = None

    def probabilities(self, num_classes: int, dtype: torch.dtype) -> Tensor:
        """The same as class probabilities (M, K)."""
        shares = torch.ones(self.classes.shape) if self.shares is None else self.shares
        full = torch.zeros(len(self.classes), num_classes, dtype=dtype, device=self.classes.device)
        return full.scatter_add_(1, self.classes, shares.to(full))


def is_index(target: Tensor) -> bool:
    """Whether ``target`` holds class indices (integers) rather than class probabilities (floats)."""
    return not target.is_floating_point()


def as_probabilities(target: Tensor, num_classes: int, dtype: torch.dtype | None = None) -> Tensor:
    """Class probabilities (N, K) of ``target``; a class index becomes its one-hot row.

    ``dtype`` is float32 for indices and the target's own for probabilities, unless given.

    >>> as_probabilities(torch.tensor([2, 0]), 3).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    if is_index(target):
        return F.one_hot(target, num_classes).to(dtype or torch.float32)
    return target.to(dtype or target.dtype)


def erase(x: Tensor, index: Tensor) -> Tensor:
    """Erase from each row of ``x`` the column that ``index`` names, (N, K) → (N, K−1).

    This is the operation written (x) with an overlined subscript in section 3.2 of the paper.

    >>> erase(torch.tensor([[1., 2., 3.], [4., 5., 6.]]), torch.tensor([0, 2])).tolist()
    [[2.0, 3.0], [4.0, 5.0]]
    """
    after = torch.arange(x.shape[1] - 1, device=x.device) >= index.unsqueeze(1)  # (N, K−1)
    return torch.where(after, x[:, 1:], x[:, :-1])  # a tenth of the time of gathering by index


def restore(x: Tensor, index: Tensor, fill: float = 0.0) -> Tensor:
    """Put a column of ``fill`` back where :func:`erase` took one out, (N, K−1) → (N, K).

    >>> restore(torch.tensor([[2., 3.], [4., 5.]]), torch.tensor([0, 2])).tolist()
    [[0.0, 2.0, 3.0], [4.0, 5.0, 0.0]]
    """
    own = index.unsqueeze(1)
    before = torch.arange(x.shape[1] + 1, device=x.device) < own  # (N, K)
    full = torch.where(before, F.pad(x, (0, 1)), F.pad(x, (1, 0)))
    return full.scatter(1, own, fill)


def put_own(x: Tensor, labels: Tensor | None, value: float) -> Tensor:
    """Write ``value`` into the own column of each row of ``x`` (R, K); its classes are ``labels``, or all in order."""
    return x.fill_diagonal_(value) if labels is None else x.scatter_(1, labels.unsqueeze(1), value)


def hits(logits: Tensor, target: Tensor) -> Tensor:
    """How right each prediction is, (N,): the target's probability of the class with the largest logit.

    >>> hits(torch.tensor([[2., 0.], [2., 0.]]), torch.tensor([0, 1])).tolist()
    [1.0, 0.0]
    """
    predicted = logits.argmax(1)
    if is_index(target):
        return (predicted == target).to(logits.dtype)
    return target.gather(1, predicted.unsqueeze(1)).squeeze(1).to(logits.dtype)


def logsumexp_without_each(logits: Tensor) -> Tensor:
    """The log-sum-exp over all classes but k, for each k: (N, K).

    For all but the largest logit p_k ≤ 1/2, so lse + log(1 − p_k) is exact. For the largest logit it would lose all
    digits as p_k → 1, so the sum is computed again.
    """
    top = logits.argmax(1, keepdim=True)
    log_p = F.log_softmax(logits, dim=1)
    lse = torch.logsumexp(logits, dim=1, keepdim=True)
    without = lse + torch.log1p(-log_p.exp().scatter(1, top, 0.0))
    return without.scatter(1, top, torch.logsumexp(erase(logits, top.squeeze(1)), dim=1, keepdim=True))


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    r"""Cross entropy, unreduced: :math:`-\sum_i t_i \log p_i`.

    Args:
        logits: (N, K).
        target: class indices (N,) or class probabilities (N, K).

    Returns:
        (N,).

    >>> cross_entropy(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor([0.1269])
    >>> cross_entropy(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.5, 0.5]]))
    tensor([1.1269])

    Reference: the paper's section 3, without its factor 1/K.
    """
    if is_index(target):
        return F.cross_entropy(logits, target, reduction="none")
    return -(target.to(logits.dtype) * F.log_softmax(logits, dim=1)).sum(1)

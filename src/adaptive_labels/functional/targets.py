"""Targets: what the network is asked to predict, and the coordinates that residual labels live in.

Shapes: N samples, K classes. ``target`` is class indices (N,) or class probabilities (N, K).
A *residual* row leaves out the sample's own class: K−1 entries, the own column erased.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


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
    columns = torch.arange(x.shape[1], device=x.device)
    columns = columns + (columns >= index.unsqueeze(1))  # (N, K−1)
    full = x.new_full((x.shape[0], x.shape[1] + 1), fill)
    return full.scatter(1, columns, x)


def smooth_labels(
    target: Tensor, num_classes: int, label_smoothing: float, over: str = "all", dtype: torch.dtype | None = None
) -> Tensor:
    r"""Label smoothing: move a share ε of the probability from the label to the other classes.

    .. math:: t' = (1-ε)\,t + ε/K \quad\text{(over all)}, \qquad t' = (1-ε)\,t + ε\,(1-t)/(K-1) \quad\text{(others)}

    Args:
        target: class indices (N,) or probabilities (N, K).
        num_classes: K.
        label_smoothing: ε in [0, 1].
        over: ``"all"`` spreads ε over all K classes as ``torch.nn.CrossEntropyLoss`` does; ``"others"`` over the K−1
            others, so that the label keeps exactly 1 − ε.
        dtype: of the result, see :func:`as_probabilities`.

    Returns:
        Probabilities (N, K).

    >>> smooth_labels(torch.tensor([0]), 4, 0.2).tolist()
    [[0.8500000238418579, 0.05000000074505806, 0.05000000074505806, 0.05000000074505806]]
    >>> [round(x, 4) for x in smooth_labels(torch.tensor([0]), 4, 0.3, over="others")[0].tolist()]
    [0.7, 0.1, 0.1, 0.1]

    Reference: Szegedy et al. 2016 (over all); the paper's section 3.2, "Combination with label smoothing" (its words
    read "over the erroneous classes").
    """
    probabilities = as_probabilities(target, num_classes, dtype)
    if over == "all":
        return (1 - label_smoothing) * probabilities + label_smoothing / num_classes
    return (1 - label_smoothing) * probabilities + label_smoothing * (1 - probabilities) / (num_classes - 1)


def disturb_labels(
    target: Tensor, num_classes: int, disturbance: float, generator: torch.Generator | None = None
) -> Tensor:
    r"""DisturbLabel: replace each label, with probability α, by one drawn uniformly from all K classes.

    .. math:: P(\tilde y = y) = 1 - α (K-1)/K, \qquad P(\tilde y = i) = α/K \text{ for } i ≠ y

    Args:
        target: class indices (N,) or probabilities (N, K); a disturbed row becomes one-hot.
        num_classes: K.
        disturbance: α in [0, 1].
        generator: the source of randomness (torch's global one by default).

    Returns:
        New targets of the same form; ``target`` itself is untouched.

    >>> y = torch.zeros(10_000, dtype=torch.long)
    >>> changed = disturb_labels(y, 10, 0.2, torch.Generator().manual_seed(0)) != y
    >>> round(changed.float().mean().item(), 2)   # 0.2 · 9/10
    0.18

    Reference: Xie et al. 2016, equation 1.
    """
    count, device = target.shape[0], target.device
    drawn = torch.randint(num_classes, (count,), generator=generator, device=device)
    disturbed = torch.rand(count, generator=generator, device=device) < disturbance
    if is_index(target):
        return torch.where(disturbed, drawn, target)
    return torch.where(disturbed.unsqueeze(1), as_probabilities(drawn, num_classes, target.dtype), target)

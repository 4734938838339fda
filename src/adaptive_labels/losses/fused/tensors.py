r"""A fused step in torch's own operations, if there is no compiled kernel.

Shapes: M samples, K classes; logits z (M, K); class indices y (M,); rows of S (M, K−1), the own column erased. With
d_i = z_i − max_{j≠y} z_j and e_i = exp(d_i) over the other classes, and o the log-odds of "not y",

.. math:: o = \max_{j≠y} z_j - z_y + \log \sum_{i≠y} e_i, \qquad
          1 - p_y = σ(o), \quad -\log p_y = \log(1 + e^o), \quad p^{res}_i = e_i / \sum e, \quad p_i = p^{res}_i σ(o).

So one exponential per logit is enough for all three losses, and 1 − p_y, which loses all digits as p_y → 1, is never
computed directly. Only the gradients are held for the whole batch; intermediate values are computed for a few samples
at a time, which stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptive_labels.losses.batch import number, numbers, over, sums_by_class
from adaptive_labels.losses.targets import erase, hits

if TYPE_CHECKING:
    from adaptive_labels.losses.adaptive import AdaptiveLabelLoss

AT_ONCE = 2**19  # logits on the CPU
LEAST_ROWS = 32  # of a low-rank S: matrix products of fewer are slow


class Factors(NamedTuple):
    """The options of a step.

    ``smoothing``: the share ε' of the label that is spread over all classes; ``attraction``: τ; ``hard``, ``residual``
    and ``own_factor``: the factors of L_hard, L_res and L_upd; ``prediction`` and ``own``: each sample's share in the
    gradient of the logits and in that of S, (M,) or one number for all; ``by_class``: whether ``own`` is to be
    divided by its sum over the samples of the class.
    """

    smoothing: float
    attraction: float
    hard: float
    residual: float | Tensor
    prediction: float | Tensor
    own: float | Tensor
    by_class: bool
    own_factor: float


class Step(NamedTuple):
    """The result of a pass over the batch.

    ``values`` (M, 4): each sample's L_hard, L_res and L_upd without any factor, and whether its prediction is right;
    ``dz`` (M, K): the gradient of the logits; ``rows``: that of S (K, K−1), or those of some rows (m, K−1) and their
    labels (m,), or those of U's rows (M, rank), of V (K, rank) and the labels (M,), or nothing; ``distinct``: each
    label occurs once, in order; ``sums``: those of the columns of ``values``; ``update``: that of L_upd times the
    samples' shares in it and its factor.
    """

    values: Tensor
    dz: Tensor
    rows: tuple[Tensor, ...]
    sums: Sequence[Any]
    update: Any
    distinct: bool = False


def tensor_step(criterion: AdaptiveLabelLoss, z: Tensor, y: Tensor, factors: Factors, learns: bool) -> Step:
    """A step by torch's operations: the rows of some samples at a time."""
    if factors.by_class:
        factors = factors._replace(own=over(factors.own, sums_by_class(factors.own, y, z)[y]))
    dz, values = torch.empty_like(z, memory_format=torch.contiguous_format), z.new_empty(len(z), 4)
    first, *rest = (parameter.detach().to(z.dtype) for parameter in criterion.residual_parameters())
    right = rest[0] if rest else None
    before_own = _before_own(z.shape[1], z.device)
    # The rows of S, which become their gradients; with a low rank those of one slice only.
    kept = z.new_empty(len(z), z.shape[1] - 1) if learns and right is None else None
    of_left, of_right = (z.new_empty(len(z), first.shape[1]), torch.zeros_like(right)) if right is not None else (z, z)
    at_once = max(1, len(z)) if z.device.type != "cpu" else max(LEAST_ROWS if rest else 1, AT_ONCE // z.shape[1])
    for start in range(0, len(z), at_once):
        part = slice(start, start + at_once)
        labels = y[part]
        before = before_own(labels)
        if right is not None:
            rows = erase(first[labels] @ right.T, labels)
        else:
            rows = torch.index_select(first, 0, labels, out=None if kept is None else kept[part])
        here = factors._replace(prediction=_column(factors.prediction, part), own=_column(factors.own, part))
        values[part] = _losses(z[part], labels.unsqueeze(1), before, rows, here, dz[part], learns)
        if learns and right is not None:
            full = z.new_empty(len(labels), z.shape[1])
            _put_back(F.pad(rows, (1, 1)), before, labels.unsqueeze(1), 0.0, full)
            torch.mm(full, right, out=of_left[part])
            of_right.addmm_(full.T, first[labels])
    rows_of_s = () if not learns else (of_left, of_right, y) if kept is None else (kept, y)
    own_update = (values[:, 2] * factors.own).sum() * factors.own_factor
    return Step(values, dz, rows_of_s, sums=numbers(values.sum(0)), update=number(own_update))


def _before_own(classes: int, device: torch.device) -> Callable[[Tensor], Tensor]:
    """A function of labels (m,) that returns which columns (m, K) come before the sample's own class.

    >>> _before_own(3, torch.device("cpu"))(torch.tensor([0, 2])).tolist()
    [[False, False, False], [True, True, False]]
    """
    if classes < 256 or device.type != "cpu":
        columns = torch.arange(classes, device=device)
        return lambda y: columns < y.unsqueeze(1)
    # Windows into one strip of K times True and K times False: copying them takes a fifth of the time of comparing.
    windows = (torch.arange(2 * classes, device=device) < classes).unfold(0, classes, 1)  # (K + 1, K)
    return lambda y: windows.index_select(0, classes - y)


def _put_back(padded: Tensor, before: Tensor, y: Tensor, own: float | Tensor, out: Tensor) -> Tensor:
    """Put an own column back into erased rows, into ``out`` (m, K).

    ``padded`` (m, K+1) holds the rows (m, K−1) with a column to spare on either side, whose values do not matter.

    >>> padded, y = torch.tensor([[9., 2., 3., 9.], [9., 4., 5., 9.]]), torch.tensor([0, 2])
    >>> before = _before_own(3, y.device)(y)
    >>> _put_back(padded, before, y.unsqueeze(1), 0.0, torch.empty(2, 3)).tolist()
    [[0.0, 2.0, 3.0], [4.0, 5.0, 0.0]]
    """
    torch.where(before, padded[:, 1:], padded[:, :-1], out=out)
    return out.scatter_(1, y, own)


def _column(x: float | Tensor, part: slice) -> float | Tensor:
    return x[part].unsqueeze(1) if isinstance(x, Tensor) else x


def _losses(
    z: Tensor, y: Tensor, before: Tensor, rows: Tensor, factors: Factors, gradient: Tensor, learns: bool
) -> Tensor:
    """Some samples' values (m, 4); ``gradient`` is filled, and if S learns ``rows`` become their own gradient.

    ``y`` is (m, 1); ``before`` (m, K): the columns before the own one. Sums over classes are (m, 1).
    """
    classes = z.shape[1]
    padded, product = z.new_empty(len(z), classes + 1), torch.empty_like(rows)
    p = padded[:, 1:-1]  # (m, K−1): the others' logits, then their probabilities, then their gradient
    torch.where(before[:, :-1], z[:, :-1], z[:, 1:], out=p)
    top = p.amax(1, keepdim=True)
    p.sub_(top)
    lead = top.sub_(z.gather(1, y))  # of the best other class over the own one: below 0 the sample is right
    right = (lead < 0).to(z.dtype)
    if z.device.type != "cpu" or bool((lead == 0).any()):  # of equal logits the first is the prediction
        right = hits(z, y.squeeze(1)).unsqueeze(1)
    q = F.softmax(rows, dim=1)
    aim = q if factors.attraction == 1.0 else F.softmax(factors.attraction * rows, dim=1)
    aim_d = torch.mul(aim, p, out=product).sum(1, keepdim=True)
    d_sum = p.sum(1, keepdim=True) if factors.smoothing else None
    total = p.exp_().sum(1, keepdim=True)
    residual = total.log()
    odds = lead + residual
    residual.sub_(aim_d)
    hard = F.softplus(odds, threshold=80.0)
    if d_sum is not None:
        hard.sub_(d_sum.add_(lead, alpha=classes - 1), alpha=factors.smoothing / classes)
    wrong = odds.sigmoid_()  # 1 − p_y
    p.div_(total)
    update = rows.amax(1, keepdim=True).sub_(q.amax(1, keepdim=True).log_())  # the log-sum-exp of the row
    update.sub_(torch.mul(rows, p, out=product).sum(1, keepdim=True))
    if learns:
        torch.sub(q, p, out=rows).mul_(factors.own * factors.own_factor)
    hard_weight, residual_weight = factors.prediction * factors.hard, factors.prediction * factors.residual
    p.mul_((wrong * hard_weight).add_(residual_weight))
    if isinstance(residual_weight, Tensor):
        p.sub_(aim.mul_(residual_weight))
    else:
        p.sub_(aim, alpha=residual_weight)
    if factors.smoothing:
        p.sub_(hard_weight * (factors.smoothing / classes))
    own = wrong.sub_(factors.smoothing * (1 - 1 / classes)).mul_(-1 * hard_weight)
    _put_back(padded, before, y, own, gradient)
    return torch.cat([hard, residual, update, right], dim=1)

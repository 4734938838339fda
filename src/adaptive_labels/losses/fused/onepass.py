r"""The values and the gradients of adaptive label regularisation together, in one pass of torch's own operations.

Shapes: M samples, K classes; ``logits`` z (M, K); ``target`` class indices y (M,); rows of S (M, K−1) in erased
coordinates. With d_i = z_i − max_{j≠y} z_j and e_i = exp(d_i) over the other classes, and o the log-odds of "not y",

.. math:: o = \max_{j≠y} z_j - z_y + \log \sum_{i≠y} e_i, \qquad
          1 - p_y = σ(o), \quad -\log p_y = \log(1 + e^o), \quad p^{res}_i = e_i / \sum e, \quad p_i = p^{res}_i σ(o).

So one exponential a logit serves all three losses, and nothing is formed as 1 − p_y, which loses everything as p_y → 1.
Only the gradient of the logits and that of the rows of S are kept whole; what lies between is made for some samples at
a time, few enough to stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Losses(NamedTuple):
    """Each sample's losses, (M, 1) each; ``update`` is None if S does not learn.

    ``lead``: by how much the largest logit of another class exceeds that of the own one; below 0 the sample is right.
    """

    hard: Tensor
    residual: Tensor
    update: Tensor | None
    lead: Tensor


class Factors(NamedTuple):
    """What the losses are multiplied by in the gradients.

    ``smoothing``: the share ε' of the label that is spread over all classes; ``attraction``: τ; ``hard`` and
    ``residual``: of L_hard and L_res, for all samples; ``weight`` and ``own``: each sample's in the gradient of the
    logits and in that of S, (M, 1) or one number for all.
    """

    smoothing: float
    attraction: float
    hard: float
    residual: float | Tensor
    weight: float | Tensor
    own: float | Tensor


def losses_and_gradients(
    logits: Tensor,
    target: Tensor,
    rows_of: Callable[[slice], Tensor],
    factors: Factors,
    gradient: Tensor,
    take_rows: Callable[[slice, Tensor], None] | None,
    samples_at_once: int,
) -> Losses:
    r"""The three losses of each sample, and their gradients.

    .. math:: ∂/∂z = w\,(f_h\,∂L_{hard} + f_r\,∂L_{res}), \qquad ∂/∂S_y = u\,(q^{res} - p^{res})

    Args:
        logits: z (M, K).
        target: y (M,).
        rows_of: gives the rows S[target] (m, K−1) of a slice of the samples, as a tensor that may be written to.
        factors: the weights w and u, the factors f and the parameters of the losses.
        gradient: (M, K), is filled with the gradient of the logits.
        take_rows: is given the gradient of each slice's rows of S (m, K−1), in the tensor that ``rows_of`` gave; None
            if S does not learn.
        samples_at_once: how long a slice is.

    Returns:
        The losses without any factor.

    >>> z, y, S = torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([0]), torch.zeros(3, 2)
    >>> dz = torch.empty_like(z)
    >>> factors = Factors(smoothing=0.0, attraction=1.0, hard=1.0, residual=1.0, weight=1.0, own=1.0)
    >>> losses = losses_and_gradients(z, y, lambda part: S[y[part]], factors, dz, lambda part, ds: print(ds), 1)
    tensor([[-0.2311,  0.2311]])
    >>> losses.residual, dz                         # towards uniform: log(1 + e) − 1/2
    (tensor([[0.8133]]), tensor([[-0.1562,  0.3453, -0.1890]]))

    Reference: the closed forms in :mod:`adaptive_labels.functional.alr`.
    """
    count = logits.shape[0]
    columns_before = before_own(logits.shape[1], logits.device)
    longest, classes = min(count, samples_at_once), logits.shape[1]
    work = logits.new_empty(longest, classes + 1), logits.new_empty(longest, classes - 1)  # for all slices in turn
    found: list[Losses] = []
    for start in range(0, max(count, 1), samples_at_once):
        part = slice(start, min(start + samples_at_once, count))
        y = target[part]
        here = factors._replace(weight=_part(factors.weight, part), own=_part(factors.own, part))
        rows = rows_of(part)
        room = work[0][: len(y)], work[1][: len(y)]
        learns = take_rows is not None
        found.append(_chunk(logits[part], y.unsqueeze(1), columns_before(y), rows, here, gradient[part], learns, room))
        if take_rows is not None:
            take_rows(part, rows)
    if len(found) == 1:
        return found[0]
    updates = [losses.update for losses in found if losses.update is not None]
    return Losses(
        torch.cat([losses.hard for losses in found]),
        torch.cat([losses.residual for losses in found]),
        torch.cat(updates) if updates else None,
        torch.cat([losses.lead for losses in found]),
    )


def before_own(classes: int, device: torch.device) -> Callable[[Tensor], Tensor]:
    """A function of labels (m,) that says which columns (m, K) come before the own one.

    >>> before_own(3, torch.device("cpu"))(torch.tensor([0, 2])).tolist()
    [[False, False, False], [True, True, False]]
    """
    if classes < 256 or device.type != "cpu":
        columns = torch.arange(classes, device=device)
        return lambda y: columns < y.unsqueeze(1)
    # Windows into one strip of K times True and K times False: copying them takes a fifth of the time of comparing.
    windows = (torch.arange(2 * classes, device=device) < classes).unfold(0, classes, 1)  # (K + 1, K)
    return lambda y: windows.index_select(0, classes - y)


def put_back(padded: Tensor, before: Tensor, y: Tensor, own: float | Tensor, out: Tensor) -> Tensor:
    """Put an own column back into erased rows, into ``out`` (m, K).

    ``padded`` (m, K+1) holds the rows (m, K−1) with a column to spare on either side, whose values do not matter.

    >>> padded, y = torch.tensor([[9., 2., 3., 9.], [9., 4., 5., 9.]]), torch.tensor([0, 2])
    >>> before = before_own(3, y.device)(y)
    >>> put_back(padded, before, y.unsqueeze(1), 0.0, torch.empty(2, 3)).tolist()
    [[0.0, 2.0, 3.0], [4.0, 5.0, 0.0]]
    """
    torch.where(before, padded[:, 1:], padded[:, :-1], out=out)
    return out.scatter_(1, y, own)


def _part(x: float | Tensor, part: slice) -> float | Tensor:
    return x[part] if isinstance(x, Tensor) else x


def _chunk(
    z: Tensor,
    y: Tensor,
    before: Tensor,
    rows: Tensor,
    factors: Factors,
    gradient: Tensor,
    learns: bool,
    room: tuple[Tensor, Tensor],
) -> Losses:
    """Some samples: their losses; ``gradient`` is filled, and if S learns ``rows`` become their own gradient.

    ``y`` is (m, 1); ``before`` (m, K): the columns before the own one; ``room``: (m, K+1) and (m, K−1) to work in. Sums
    over classes are (m, 1).
    """
    classes = z.shape[1]
    padded, product = room
    p = padded[:, 1:-1]  # (m, K−1): the others' logits, then their probabilities, then their gradient
    torch.where(before[:, :-1], z[:, :-1], z[:, 1:], out=p)
    top = p.amax(1, keepdim=True)
    p.sub_(top)
    lead = top.sub_(z.gather(1, y))
    q = F.softmax(rows, dim=1) if learns or factors.attraction == 1.0 else rows
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
    update = None
    if learns:
        update = rows.amax(1, keepdim=True).sub_(q.amax(1, keepdim=True).log_())  # the log-sum-exp of the row
        update.sub_(torch.mul(rows, p, out=product).sum(1, keepdim=True))
        torch.sub(q, p, out=rows).mul_(factors.own)
    hard_weight, residual_weight = factors.weight * factors.hard, factors.weight * factors.residual
    p.mul_((wrong * hard_weight).add_(residual_weight))
    if isinstance(residual_weight, Tensor):
        p.sub_(aim.mul_(residual_weight))
    else:
        p.sub_(aim, alpha=residual_weight)
    if factors.smoothing:
        p.sub_(hard_weight * (factors.smoothing / classes))
    own = wrong.sub_(factors.smoothing * (1 - 1 / classes)).mul_(-1 * hard_weight)
    put_back(padded, before, y, own, gradient)
    return Losses(hard, residual, update, lead)

r"""The values and the gradients of adaptive label regularisation together, in one pass of torch's own operations.

Shapes: M samples, K classes; ``logits`` z (M, K); ``target`` class indices y (M,); rows of S (M, K), a column for every
class, of which the own one does not count. With d_i = z_i − max_{j≠y} z_j, e_i = exp(d_i) over the other classes, and o
the log-odds of "not y",

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
    room: Tensor,
) -> Losses:
    r"""The three losses of each sample, and their gradients.

    .. math:: ∂/∂z = w\,(f_h\,∂L_{hard} + f_r\,∂L_{res}), \qquad ∂/∂S_y = u\,(q^{res} - p^{res})

    Args:
        logits: z (M, K).
        target: y (M,).
        rows_of: gives the rows S[target] (m, K) of a slice of the samples, as a tensor that may be written to; what
            stands in the own column does not matter.
        factors: the weights w and u, the factors f and the parameters of the losses.
        gradient: (M, K), is filled with the gradient of the logits.
        take_rows: is given the gradient of each slice's rows of S (m, K), 0 in the own column; None if S does not
            learn.
        room: (2, m, K) to work in, m samples at a time.

    Returns:
        The losses without any factor.

    >>> z, y, S = torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([0]), torch.zeros(3, 3)
    >>> dz = torch.empty_like(z)
    >>> factors = Factors(smoothing=0.0, attraction=1.0, hard=1.0, residual=1.0, weight=1.0, own=1.0)
    >>> def show(part, ds): print(ds)
    >>> losses = losses_and_gradients(z, y, lambda part: S[y[part]], factors, dz, show, torch.empty(2, 1, 3))
    tensor([[ 0.0000, -0.2311,  0.2311]])
    >>> losses.residual, dz                         # towards uniform: log(1 + e) − 1/2
    (tensor([[0.8133]]), tensor([[-0.1562,  0.3453, -0.1890]]))

    Reference: the closed forms in :mod:`adaptive_labels.functional.alr`.
    """
    count, at_once = len(logits), max(1, room.shape[1])
    found: list[Losses] = []
    for start in range(0, max(count, 1), at_once):
        part = slice(start, min(start + at_once, count))
        y = target[part].unsqueeze(1)
        here = factors._replace(weight=_part(factors.weight, part), own=_part(factors.own, part))
        rows = rows_of(part)
        found.append(_chunk(logits[part], y, rows, here, gradient[part], take_rows is not None, room[:, : len(y)]))
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


def _part(x: float | Tensor, part: slice) -> float | Tensor:
    return x[part] if isinstance(x, Tensor) else x


def _chunk(
    z: Tensor, y: Tensor, rows: Tensor, factors: Factors, gradient: Tensor, learns: bool, room: Tensor
) -> Losses:
    """Some samples: their losses; ``gradient`` is filled, and if S learns ``rows`` become their own gradient.

    ``y`` is (m, 1); ``room``: (2, m, K) to work in. Sums over classes are (m, 1).
    """
    classes = z.shape[1]
    far = torch.finfo(z.dtype).min  # finite, so that 0 times it is 0; its exponential is 0 as well
    d = room[0].copy_(z).scatter_(1, y, far)
    top = d.amax(1, keepdim=True)
    d.sub_(top).scatter_(1, y, 0.0)
    lead = top.sub_(z.gather(1, y))
    rows.scatter_(1, y, far)
    q = torch.softmax(rows, 1, out=room[1]) if learns or factors.attraction == 1.0 else rows
    aim = q if factors.attraction == 1.0 else F.softmax((factors.attraction * rows).scatter_(1, y, far), dim=1)
    aim_d = torch.mul(aim, d, out=gradient).sum(1, keepdim=True)
    d_sum = d.sum(1, keepdim=True) if factors.smoothing else None
    p = torch.softmax(d.scatter_(1, y, far), 1, out=gradient)  # of the other classes
    residual = p.amax(1, keepdim=True).log_().neg_()  # the largest d is 0, so that this is the log of the sum of e
    odds = lead + residual
    residual.sub_(aim_d)
    hard = F.softplus(odds, threshold=80.0)
    if d_sum is not None:
        hard.sub_(d_sum.add_(lead, alpha=classes - 1), alpha=factors.smoothing / classes)
    wrong = odds.sigmoid_()  # 1 − p_y
    update = None
    if learns:
        update = rows.amax(1, keepdim=True).sub_(q.amax(1, keepdim=True).log_())  # the log-sum-exp of the row
        update.sub_(torch.mul(rows, p, out=d).sum(1, keepdim=True))
        torch.sub(q, p, out=rows)
        if isinstance(factors.own, Tensor) or factors.own != 1.0:
            rows.mul_(factors.own)
    hard_weight, residual_weight = factors.weight * factors.hard, factors.weight * factors.residual
    both = (wrong * hard_weight).add_(residual_weight)
    if factors.smoothing:
        share = torch.as_tensor(hard_weight * (-factors.smoothing / classes), dtype=z.dtype, device=z.device)
        torch.addcmul(share, p, both, out=gradient)
    else:
        torch.mul(p, both, out=gradient)
    if isinstance(residual_weight, Tensor):
        gradient.sub_(aim.mul_(residual_weight))
    else:
        gradient.sub_(aim, alpha=residual_weight)
    gradient.scatter_(1, y, wrong.sub_(factors.smoothing * (1 - 1 / classes)).mul_(-1 * hard_weight))
    return Losses(hard, residual, update, lead)

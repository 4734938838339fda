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
    """Each sample's losses (M,); ``update`` is None if S does not learn."""

    hard: Tensor
    residual: Tensor
    update: Tensor | None


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
        rows_of: gives the rows S[target] (m, K−1) of a slice of the samples, as a new tensor.
        factors: the weights w and u, the factors f and the parameters of the losses.
        gradient: (M, K), is filled with the gradient of the logits.
        take_rows: is given the gradient of each slice's rows of S (m, K−1), a new tensor; None if S does not learn.
        samples_at_once: how long a slice is.

    Returns:
        The losses without any factor.

    >>> z, y, S = torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([0]), torch.zeros(3, 2)
    >>> dz = torch.empty_like(z)
    >>> factors = Factors(smoothing=0.0, attraction=1.0, hard=1.0, residual=1.0, weight=1.0, own=1.0)
    >>> losses = losses_and_gradients(z, y, lambda part: S[y[part]], factors, dz, lambda part, ds: print(ds), 1)
    tensor([[-0.2311,  0.2311]])
    >>> losses.residual, dz                         # towards uniform: log(1 + e) − 1/2
    (tensor([0.8133]), tensor([[-0.1562,  0.3453, -0.1890]]))

    Reference: the closed forms in :mod:`adaptive_labels.functional.alr`.
    """
    count = logits.shape[0]
    columns = torch.arange(logits.shape[1] - 1, device=logits.device)
    found: list[Losses] = []
    for start in range(0, count, samples_at_once):
        part = slice(start, min(start + samples_at_once, count))
        here = factors._replace(weight=_part(factors.weight, part), own=_part(factors.own, part))
        y = target[part].unsqueeze(1)
        losses, of_rows = _chunk(
            logits[part], y, columns >= y, rows_of(part), here, gradient[part], take_rows is not None
        )
        found.append(losses)
        if take_rows is not None and of_rows is not None:
            take_rows(part, of_rows)
    if len(found) == 1:
        return found[0]
    nothing = logits.new_zeros(0)
    hard = torch.cat([nothing, *(losses.hard for losses in found)])
    residual = torch.cat([nothing, *(losses.residual for losses in found)])
    updates = [losses.update for losses in found if losses.update is not None]
    return Losses(hard, residual, None if take_rows is None else torch.cat([nothing, *updates]))


def _part(x: float | Tensor, part: slice) -> float | Tensor:
    return x[part] if isinstance(x, Tensor) else x


def _chunk(
    z: Tensor, y: Tensor, after: Tensor, rows: Tensor, factors: Factors, gradient: Tensor, learns: bool
) -> tuple[Losses, Tensor | None]:
    """Some samples: their losses and the gradient of their rows of S. ``after`` (m, K−1): the columns after the own."""
    classes = z.shape[1]
    e = torch.where(after, z[:, 1:], z[:, :-1])  # (m, K−1): the own column erased
    own = z.gather(1, y)  # (m, 1), as all sums below
    top = e.amax(1, keepdim=True)
    lead = top - own
    e.sub_(top)
    rows.sub_(rows.amax(1, keepdim=True))
    aim = F.softmax(rows if factors.attraction == 1.0 else factors.attraction * rows, dim=1)
    aim_d = (aim * e).sum(1, keepdim=True)
    d_sum = e.sum(1, keepdim=True) if factors.smoothing else None
    total = e.exp_().sum(1, keepdim=True)
    log_total = total.log()
    odds = lead + log_total
    hard = F.softplus(odds, threshold=80.0)
    if d_sum is not None:
        hard = hard - (factors.smoothing / classes) * (d_sum + (classes - 1) * lead)
    update = of_rows = None
    if learns:
        q = aim if factors.attraction == 1.0 else F.softmax(rows, dim=1)
        update = ((rows * e).sum(1, keepdim=True) / total + q.amax(1, keepdim=True).log_()).neg_().squeeze(1)
        of_rows = torch.mul(q, factors.own, out=rows)
        of_rows.addcmul_(e, factors.own / total, value=-1.0)
    wrong = odds.sigmoid_()  # 1 − p_y
    scale = factors.weight / total
    e.mul_((factors.hard * wrong + factors.residual) * scale)
    e.sub_(aim.mul_(factors.weight * factors.residual))
    constant = factors.weight * (factors.hard * factors.smoothing / classes)
    if factors.smoothing:
        e.sub_(constant)
    put_back(e, after, y, (factors.smoothing - wrong) * (factors.weight * factors.hard) - constant, gradient)
    return Losses(hard.squeeze(1), (log_total - aim_d).squeeze(1), update), of_rows


def put_back(x: Tensor, after: Tensor, y: Tensor, own: float | Tensor, out: Tensor) -> Tensor:
    """Put the own column ``own`` back into ``x`` (m, K−1), into ``out`` (m, K).

    >>> x, y = torch.tensor([[2., 3.], [4., 5.]]), torch.tensor([[0], [2]])
    >>> put_back(x, torch.arange(2) >= y, y, 0.0, torch.empty(2, 3)).tolist()
    [[0.0, 2.0, 3.0], [4.0, 5.0, 0.0]]
    """
    out[:, :-1] = x
    moved = out[:, 1:]
    torch.where(after, x, moved, out=moved)
    return out.scatter_(1, y, own)

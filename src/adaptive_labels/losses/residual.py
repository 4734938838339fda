r"""Adaptive label regularisation: its three losses and their gradients in closed form.

Shapes: N samples, K classes; ``logits`` z (N, K); ``target`` class indices y (N,) or class probabilities t (N, K);
``residual_logits`` S (K, K−1): row k belongs to class k and has no column for it, so column j is class j + [j ≥ k].

    p      = softmax(z)                          (N, K)
    p_res  = softmax(z with column y erased)     (N, K−1)
    q_res  = softmax(S[y])                       (N, K−1)

With class probabilities as targets, as in mixup and cutmix, each loss is the mixture Σ_k t_k L(z, k). It is computed
exactly, without an (N, K, K−1) tensor.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptive_labels.losses.targets import erase, is_index, logsumexp_without_each, restore


def residual_loss(logits: Tensor, target: Tensor, residual_logits: Tensor, attraction: float = 1.0) -> Tensor:
    r"""L_res: moves the probabilities of the wrong classes towards the residual label. It trains the network only.

    .. math:: L_{res} = -\sum_{i ≠ y} \text{stop}(q^{res}_i) \log p^{res}_i, \qquad q^{res} = \text{softmax}(τ S_y)

    Args:
        logits: (N, K).
        target: class indices (N,) or class probabilities (N, K).
        residual_logits: S (K, K−1).
        attraction: τ; 1 is the paper, 0 aims at the uniform distribution, below 0 away from the likely confusions.

    Returns:
        (N,). With K = 2 there is one wrong class, and the loss is 0.

    >>> z, y = torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([0])
    >>> residual_loss(z, y, torch.zeros(3, 2))      # towards uniform: log(1 + e) − 1/2
    tensor([0.8133])

    Reference: the paper's section 3.2, L_res; the gradient is :func:`residual_loss_gradient`.
    """
    if is_index(target):
        return residual_loss_of_rows(logits, target, residual_logits[target], attraction)
    q = residual_labels(residual_logits.detach(), attraction)  # (K, K), zero diagonal
    shifted = logits - logits.detach().amax(1, keepdim=True)  # rows of q sum to 1: no change but for rounding
    per_class = logsumexp_without_each(shifted) - shifted @ q.T  # (N, K): L_res had the label been k
    return (target * per_class).sum(1)


def residual_loss_of_rows(logits: Tensor, target: Tensor, rows: Tensor, attraction: float = 1.0) -> Tensor:
    """:func:`residual_loss` for class indices, with the rows S[target] (N, K−1) already gathered."""
    q = F.softmax(attraction * rows.detach(), dim=1)
    return -(q * F.log_softmax(erase(logits, target), dim=1)).sum(1)


def residual_loss_gradient(logits: Tensor, target: Tensor, residual_logits: Tensor, attraction: float = 1.0) -> Tensor:
    r"""The gradient of :func:`residual_loss` with respect to the logits.

    .. math:: ∂L_{res}/∂z_i = p^{res}_i - q^{res}_i \text{ for } i ≠ y, \quad 0 \text{ for } i = y

    Returns:
        (N, K).

    >>> z, y = torch.tensor([[3.0, 0.0, 0.0]]), torch.tensor([0])
    >>> residual_loss_gradient(z, y, torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]))
    tensor([[ 0.0000, -0.2311,  0.2311]])

    Reference: the paper's section 3.2, the equation after L_t.
    """
    if is_index(target):
        p = F.softmax(erase(logits, target), dim=1)
        return restore(p - F.softmax(attraction * residual_logits[target], dim=1), target)
    p, exclusion, top, p_top = _residual_parts(logits, target)
    mixed = p * (exclusion.sum(1, keepdim=True) - exclusion) + target.gather(1, top) * p_top  # (N, K): Σ_k t_k p_res
    return mixed - target @ residual_labels(residual_logits, attraction)


def update_loss(logits: Tensor, target: Tensor, residual_logits: Tensor) -> Tensor:
    r"""L_upd: moves the residual label towards the probabilities of the wrong classes. It trains S only.

    .. math:: L_{upd} = -\sum_{i ≠ y} \text{stop}(p^{res}_i) \log q^{res}_i

    Args:
        logits: (N, K).
        target: class indices (N,) or class probabilities (N, K).
        residual_logits: S (K, K−1).

    Returns:
        (N,).

    >>> z, y = torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([0])
    >>> update_loss(z, y, torch.zeros(3, 2))        # log 2: S knows nothing yet
    tensor([0.6931])

    Reference: the paper's section 3.2, equation L_upd; the gradient is :func:`update_loss_gradient`.
    """
    if is_index(target):
        return update_loss_of_rows(logits, target, residual_logits[target])
    log_q = _all_rows(F.log_softmax(residual_logits, dim=1))  # (K, K), zero diagonal
    p, exclusion, top, p_top = _residual_parts(logits.detach(), target)
    others = (exclusion * (p @ log_q.T)).sum(1)
    return -others - target.gather(1, top).squeeze(1) * (p_top * log_q[top.squeeze(1)]).sum(1)


def update_loss_of_rows(logits: Tensor, target: Tensor, rows: Tensor) -> Tensor:
    """:func:`update_loss` for class indices, with the rows S[target] (N, K−1) already gathered."""
    p = F.softmax(erase(logits.detach(), target), dim=1)
    return -(p * F.log_softmax(rows, dim=1)).sum(1)


def update_loss_gradient(logits: Tensor, target: Tensor, residual_logits: Tensor) -> Tensor:
    r"""The gradient of :func:`update_loss` with respect to S, as the sum over the samples (K, K−1).

    .. math:: ∂L_{upd}/∂S_k = \sum_n t_{nk} (q^{res}_k - p^{res}_{nk})

    To weigh the samples, pass class probabilities whose rows sum to the weights: the gradient is linear in them.

    >>> z, y = torch.tensor([[3.0, 0.0, 0.0]]), torch.tensor([0])
    >>> update_loss_gradient(z, y, torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]))
    tensor([[ 0.2311, -0.2311],
            [ 0.0000,  0.0000],
            [ 0.0000,  0.0000]])

    Reference: follows from the paper's L_upd; only the rows of the labels in the batch are touched.
    """
    if is_index(target):
        return torch.zeros_like(residual_logits).index_add(
            0, target, update_gradient_of_rows(logits, target, residual_logits[target])
        )
    p, exclusion, top, p_top = _residual_parts(logits, target)
    classes = torch.arange(logits.shape[1], device=logits.device)
    mean_p = (exclusion.T @ p).index_add(0, top.squeeze(1), target.gather(1, top) * p_top)  # (K, K)
    return target.sum(0).unsqueeze(1) * F.softmax(residual_logits, dim=1) - erase(mean_p, classes)


def update_gradient_of_rows(logits: Tensor, target: Tensor, rows: Tensor) -> Tensor:
    """The gradient of each sample's L_upd with respect to its own row of S, (N, K−1): q_res − p_res."""
    return F.softmax(rows, dim=1) - F.softmax(erase(logits, target), dim=1)


def residual_labels(residual_logits: Tensor, attraction: float = 1.0) -> Tensor:
    """The residual labels softmax(τ·S) in full coordinates, (K, K) with a zero diagonal.

    >>> residual_labels(torch.zeros(3, 2)).tolist()
    [[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]]
    """
    return _all_rows(F.softmax(attraction * residual_logits, dim=1))


def residual_logits_from_labels(labels: Tensor, floor: float = 1e-3) -> Tensor:
    """S (K, K−1) whose residual labels are the rows of ``labels`` (K, K), the diagonal left out.

    Rows are normalised, so ``labels`` may be counts of confusions. A share ``floor`` of each row is spread evenly, so
    that no logit is infinite. A row without any confusion becomes uniform.

    >>> S = residual_logits_from_labels(torch.tensor([[9., 3., 1.], [0., 5., 0.], [2., 2., 9.]]), floor=0.0001)
    >>> residual_labels(S)[0].tolist()[1] / residual_labels(S)[0].tolist()[2] > 2.99
    True
    """
    own = torch.arange(labels.shape[0], device=labels.device)
    off = erase(labels, own)  # (K, K−1)
    total = off.sum(1, keepdim=True)
    uniform = 1.0 / off.shape[1]
    rows = torch.where(total > 0, off / total.clamp_min(torch.finfo(off.dtype).tiny), uniform)
    logits = torch.log((1 - floor) * rows + floor * uniform)
    return logits - logits.mean(1, keepdim=True)


def labels_of_neighbours(classes: int) -> Tensor:
    """Residual labels (K, K) of ordered classes, such as stars: each step further away is e times less likely.

    >>> labels_of_neighbours(3)[0]
    tensor([0.0000, 0.7311, 0.2689])
    """
    steps = torch.arange(classes)
    distance = (steps[:, None] - steps).abs().float()
    return distance.neg().fill_diagonal_(-torch.inf).softmax(1)


def _all_rows(rows: Tensor) -> Tensor:
    """Full coordinates of one row per class, (K, K−1) → (K, K) with a zero diagonal."""
    return restore(rows, torch.arange(rows.shape[0], device=rows.device))


def _residual_parts(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The parts from which the residual probabilities of a mixture are computed.

    For label k, p_res is p / (1 − p_k) outside k. This is safe for all k but the predicted one, whose p_res is
    ``p_top`` (N, K). ``exclusion`` is t_k / (1 − p_k), 0 in the predicted column. Returns
    (p, exclusion, top, p_top).
    """
    top = logits.argmax(1, keepdim=True)
    p = F.softmax(logits, dim=1)
    exclusion = (target / (1 - p.scatter(1, top, 0.0))).scatter(1, top, 0.0)
    p_top = restore(F.softmax(erase(logits, top.squeeze(1)), dim=1), top.squeeze(1))
    return p, exclusion, top, p_top

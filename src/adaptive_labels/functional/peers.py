r"""Other ways to regularise labels or outputs without a teacher.

Shapes: N samples, K classes; ``logits`` z (N, K); ``target`` class indices (N,) or class probabilities (N, K).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptive_labels.functional.alr import cross_entropy, hits, logsumexp_without_each
from adaptive_labels.functional.targets import erase, is_index, restore


def confidence_penalty(logits: Tensor) -> Tensor:
    r"""The negative entropy of the prediction, :math:`\sum_i p_i \log p_i`: to be added with a weight β.

    Returns:
        (N,), from −log K (uniform) to 0 (certain).

    >>> confidence_penalty(torch.tensor([[0.0, 0.0], [50.0, 0.0]]))
    tensor([-6.9315e-01, -9.6437e-21])

    Reference: Pereyra et al. 2017, section 3.1.
    """
    log_p = F.log_softmax(logits, dim=1)
    return (log_p.exp() * log_p).sum(1)


def online_label_smoothing_loss(logits: Tensor, target: Tensor, table: Tensor, hard_share: float = 0.5) -> Tensor:
    r"""Online label smoothing: cross entropy with the label and with the class's soft label of the last epoch.

    .. math:: L = α\,CE(z, t) + (1-α) \sum_k t_k \sum_i -T_{ki} \log p_i

    Args:
        logits: (N, K).
        target: class indices (N,) or class probabilities (N, K).
        table: T (K, K), row k the soft label of class k (its rows sum to 1).
        hard_share: α in [0, 1].

    Returns:
        (N,).

    >>> z, y = torch.tensor([[2.0, 0.0]]), torch.tensor([0])
    >>> online_label_smoothing_loss(z, y, torch.tensor([[0.9, 0.1], [0.5, 0.5]]))
    tensor([0.2269])

    Reference: Zhang et al. 2021 (Delving deep into label smoothing), equations 4 to 6.
    """
    soft = table[target] if is_index(target) else target @ table
    return hard_share * cross_entropy(logits, target) + (1 - hard_share) * cross_entropy(logits, soft)


def correct_prediction_sums(logits: Tensor, target: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """What online label smoothing gathers for its next table: sums of correct predictions by class.

    Args:
        logits: (N, K).
        target: class indices (N,) or class probabilities (N, K); with a mixture a prediction counts for class k as far
            as it is right about k.
        weights: (N,), how much each sample counts (0 where it is ignored).

    Returns:
        Sums of the predicted probabilities (K, K), and how many each row is made of (K,).

    >>> z, y = torch.tensor([[9.0, 0.0], [0.0, 9.0]]), torch.tensor([0, 0])
    >>> correct_prediction_sums(z, y, torch.ones(2))[1]     # the second one is wrong
    tensor([1., 0.])
    """
    shares = weights * hits(logits, target)  # (N,)
    predicted, p = logits.argmax(1), F.softmax(logits, dim=1)
    sums = p.new_zeros(p.shape[1], p.shape[1]).index_add(0, predicted, shares.unsqueeze(1) * p)
    return sums, p.new_zeros(p.shape[1]).index_add(0, predicted, shares)


def label_smoothing_plus_plus_losses(
    logits: Tensor, target: Tensor, residual_logits: Tensor, mass: float = 0.1
) -> tuple[Tensor, Tensor]:
    r"""Label Smoothing++: a fixed mass α on the other classes, divided among them as learned.

    .. math:: u = (1-α)\,\text{onehot}(y) + α\,\text{softmax}(C_y) \text{ elsewhere}, \qquad
        L_{net} = -\sum_i \text{stop}(u_i) \log p_i, \qquad L_C = -\sum_i \text{stop}(p_i) \log u_i

    Args:
        logits: (N, K).
        target: class indices (N,) or class probabilities (N, K), taken as a mixture of labels.
        residual_logits: C (K, K−1), own column erased.
        mass: α in (0, 1).

    Returns:
        L_net, which moves the network, and L_C, which moves C; each (N,).

    >>> z, y = torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0])
    >>> net, own = label_smoothing_plus_plus_losses(z, y, torch.zeros(3, 2))
    >>> net, own
    (tensor([0.4395]), tensor([0.7210]))

    Reference: Chhabra et al. 2024, section 3.
    """
    log_p = F.log_softmax(logits, dim=1)
    labels = target if is_index(target) else torch.arange(logits.shape[1], device=logits.device)
    log_rows = F.log_softmax(residual_logits[labels], dim=1) + math.log(mass)  # (N or K, K−1)
    log_u = restore(log_rows, labels, fill=math.log(1 - mass))  # (N or K, K)
    if is_index(target):
        return -(log_u.detach().exp() * log_p).sum(1), -(log_p.detach().exp() * log_u).sum(1)
    network = -((target @ log_u.detach().exp()) * log_p).sum(1)
    return network, -(target * (log_p.detach().exp() @ log_u.T)).sum(1)


def complement_entropy(logits: Tensor, target: Tensor) -> Tensor:
    r"""The entropy of the prediction over the wrong classes, :math:`-\sum_{i≠y} p^{res}_i \log p^{res}_i`.

    Complement objective training maximises it, divided by K−1, beside the cross entropy.

    Args:
        logits: (N, K).
        target: class indices (N,), or class probabilities (N, K) taken as a mixture of labels.

    Returns:
        (N,), from 0 to log(K−1).

    >>> complement_entropy(torch.tensor([[5.0, 0.0, 0.0]]), torch.tensor([0]))
    tensor([0.6931])

    Reference: Chen et al. 2019 (Complement objective training), equation 2.
    """
    if is_index(target):
        log_p = F.log_softmax(erase(logits, target), dim=1)
        return -(log_p.exp() * log_p).sum(1)
    # Had the label been k: H_k = lse_k − Σ_{i≠k} p_res_i z_i.
    shifted = logits - logits.detach().amax(1, keepdim=True)
    without = logsumexp_without_each(shifted)  # (N, K)
    top = shifted.argmax(1, keepdim=True)
    p = F.softmax(shifted, dim=1)
    weighted = p * shifted  # (N, K)
    # For k other than the predicted class 1 − p_k ≥ 1/2; for the predicted one the mean is taken afresh.
    mean = (weighted.sum(1, keepdim=True) - weighted) / (1 - p.scatter(1, top, 0.0))
    rest = erase(shifted, top.squeeze(1))
    mean = mean.scatter(1, top, (F.softmax(rest, dim=1) * rest).sum(1, keepdim=True))
    return (target * (without - mean)).sum(1)


def max_suppression(logits: Tensor) -> Tensor:
    r"""MaxSup's penalty, :math:`\max_i z_i - \frac1K \sum_i z_i`: to be added with a weight α.

    Label smoothing amounts to the same penalty on the *true* logit, which strengthens a wrong prediction; this one
    falls on the largest, whether it is right or wrong.

    Returns:
        (N,), at least 0.

    >>> max_suppression(torch.tensor([[3.0, 0.0, 0.0]]))
    tensor([2.])

    Reference: Zhou et al. 2025 (MaxSup), equation 8.
    """
    # amax shares the gradient evenly among ties, so that equal logits stay equal.
    return logits.amax(1) - logits.mean(1)

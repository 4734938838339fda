r"""Losses that follow another network, real or imagined: distillation, mutual learning, teacher-free distillation.

Shapes: N samples, K classes; ``logits`` z (N, K); ``target`` class indices (N,) or class probabilities (N, K);
``teacher_logits`` / ``peer_logits`` (N, K). No gradient reaches the teacher or the peer.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from adaptive_labels.functional.alr import cross_entropy
from adaptive_labels.functional.targets import smooth_labels


def distillation_loss(
    logits: Tensor,
    target: Tensor,
    teacher_logits: Tensor,
    alpha: float = 0.5,
    temperature: float = 4.0,
    temper_student: bool = True,
    scale: bool = True,
) -> Tensor:
    r"""Knowledge distillation: cross entropy with the label and with a teacher's softened output.

    .. math:: L = (1-α)\,CE(z, t) + α\,s \sum_i -q^T_i \log p^{T'}_i, \qquad q^T = \text{softmax}(z^{teacher}/T)

    with s = T² if ``scale`` else 1, and T' = T if ``temper_student`` else 1. The gradient with respect to z_i is
    (1−α)(p_i − t_i) + α·s·(p^T_i − q^T_i)/T when the student is tempered, and (1−α)(p_i − t_i) + α·s·(p_i − q^T_i) when
    it is not. The paper's stationary point, a mixture with weights 1−α and αT, mixes the two and holds at T = 1 only.

    Args:
        logits: the student's, (N, K).
        target: class indices (N,) or class probabilities (N, K).
        teacher_logits: (N, K).
        alpha: α in [0, 1], the weight of the teacher.
        temperature: T > 0.
        temper_student: divide the student's logits by T as well (Hinton et al.).
        scale: multiply the soft part by T², which keeps its gradient's size.

    Returns:
        (N,).

    >>> import torch
    >>> z, y, teacher = torch.tensor([[1.0, 0.0]]), torch.tensor([0]), torch.tensor([[2.0, 0.0]])
    >>> distillation_loss(z, y, teacher, alpha=0.5, temperature=1.0)
    tensor([0.3729])

    Reference: Hinton et al. 2015; the paper's section 3.1, equations 1 and 2.
    """
    soft = F.softmax(teacher_logits.detach() / temperature, dim=1)
    student = logits / temperature if temper_student else logits
    factor = temperature**2 if scale else 1.0
    return (1 - alpha) * cross_entropy(logits, target) + alpha * factor * cross_entropy(student, soft)


def mutual_learning_kl(logits: Tensor, peer_logits: Tensor) -> Tensor:
    r"""Deep mutual learning: the divergence of a network's prediction from its peer's.

    .. math:: KL(p^{peer} \| p) = \sum_i p^{peer}_i (\log p^{peer}_i - \log p_i)

    Args:
        logits: of the network that learns, (N, K).
        peer_logits: of the peer, (N, K); no gradient reaches it.

    Returns:
        (N,), each at least 0.

    >>> import torch
    >>> mutual_learning_kl(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 0.0]]))
    tensor([0.1109])

    Reference: Zhang et al. 2018, equation 4.
    """
    log_peer = F.log_softmax(peer_logits.detach(), dim=1)
    return (log_peer.exp() * (log_peer - F.log_softmax(logits, dim=1))).sum(1)


def teacher_free_loss(
    logits: Tensor,
    target: Tensor,
    alpha: float = 0.1,
    temperature: float = 20.0,
    correct: float = 0.99,
    temper_student: bool = False,
) -> Tensor:
    r"""Teacher-free distillation: an imagined teacher that is nearly always right takes the teacher's place.

    .. math:: L = (1-α)\,CE(z, t) + α\,KL(q^T \| p), \qquad
        q = a \text{ at the label}, (1-a)/(K-1) \text{ elsewhere}

    where q^T is the softmax of the teacher's probabilities q divided by T (the authors' code takes the probabilities
    themselves for logits), and p = softmax(z). Like their code this tempers the teacher only; their equation 9 tempers
    the student as well, which at T = 20 leaves next to no gradient. Summed over classes: their code averages over them,
    and makes up for it with a multiplier.

    Args:
        logits: (N, K).
        target: class indices (N,) or class probabilities (N, K).
        alpha: α in [0, 1].
        temperature: T > 0.
        correct: a in [0, 1], the imagined teacher's confidence in the label.
        temper_student: divide the student's logits by T as well.

    Returns:
        (N,).

    >>> import torch
    >>> teacher_free_loss(torch.tensor([[4.0, 0.0]]), torch.tensor([0]), alpha=0.1)
    tensor([0.0166])

    Reference: Yuan et al. 2020, section 4, equation 9 (the virtual teacher).
    """
    teacher = smooth_labels(target, logits.shape[1], 1 - correct, over="others", dtype=logits.dtype)
    student = logits / temperature if temper_student else logits
    soft = mutual_learning_kl(student, teacher / temperature)
    return (1 - alpha) * cross_entropy(logits, target) + alpha * soft

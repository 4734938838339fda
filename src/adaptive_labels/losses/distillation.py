"""Knowledge distillation: a student follows a teacher's softened output."""

from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptive_labels.losses.arguments import check_number
from adaptive_labels.losses.base import Criterion, Terms
from adaptive_labels.losses.batch import Batch
from adaptive_labels.losses.registry import register_method
from adaptive_labels.losses.targets import cross_entropy


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


@register_method(
    "kd", "knowledge distillation from a teacher", main_option="alpha", search=(0.1, 0.9), learns_from="teacher"
)
@final
class Distillation(Criterion):
    """Knowledge distillation; the call needs ``teacher_logits``, the teacher's logits. See :func:`distillation_loss`.

    Args:
        alpha: α in [0, 1], the weight of the teacher.
        temperature: T > 0.
        temper_student: divide the student's logits by T as well.
        scale: multiply the soft part by T².

    >>> z, teacher = torch.tensor([[1.0, 0.0]], requires_grad=True), torch.tensor([[2.0, 0.0]])
    >>> Distillation(2, temperature=1.0)(z, torch.tensor([0]), teacher_logits=teacher)
    tensor(0.3729, grad_fn=<SumBackward0>)
    """

    needs_teacher_logits = True

    def __init__(
        self,
        num_classes: int,
        alpha: float = 0.5,
        *,
        temperature: float = 4.0,
        temper_student: bool = True,
        scale: bool = True,
        **common: Any,
    ) -> None:
        super().__init__(num_classes, **common)
        self.alpha = check_number("alpha", alpha, 0, 1)
        self.temperature = check_number("temperature", temperature, 0, open_low=True)
        self.temper_student, self.scale = temper_student, scale

    def _terms(self, batch: Batch, world: int) -> Terms:
        losses = [
            distillation_loss(
                batch.logits, batch.target, teacher, self.alpha, self.temperature, self.temper_student, self.scale
            )
            for teacher in batch.teacher_logits
        ]
        loss = torch.stack(losses).mean(0)
        return Terms(loss, parts={"hard": cross_entropy(batch.logits.detach(), batch.target), "total": loss})

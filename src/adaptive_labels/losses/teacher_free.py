"""Teacher-free distillation: a virtual teacher replaces the teacher."""

from typing import Any, final

from torch import Tensor

from adaptive_labels.losses.arguments import check_number
from adaptive_labels.losses.base import Criterion, Terms
from adaptive_labels.losses.batch import Batch
from adaptive_labels.losses.label_smoothing import smooth_labels
from adaptive_labels.losses.mutual_learning import mutual_learning_kl
from adaptive_labels.losses.registry import register_method
from adaptive_labels.losses.targets import cross_entropy


def teacher_free_loss(
    logits: Tensor,
    target: Tensor,
    alpha: float = 0.1,
    temperature: float = 20.0,
    correct: float = 0.99,
    temper_student: bool = False,
) -> Tensor:
    r"""Teacher-free distillation: a virtual teacher that is nearly always right replaces the teacher.

    .. math:: L = (1-α)\,CE(z, t) + α\,KL(q^T \| p), \qquad
        q = a \text{ at the label}, (1-a)/(K-1) \text{ elsewhere}

    where q^T is the softmax of q / T (the authors' code uses the teacher's probabilities q as logits), and
    p = softmax(z). As in their code, only the teacher is tempered; their equation 9 tempers the student as well, which
    at T = 20 leaves almost no gradient. The loss is summed over classes; their code averages over them, and makes up
    for it with a multiplier.

    Args:
        logits: (N, K).
        target: class indices (N,) or class probabilities (N, K).
        alpha: α in [0, 1], the weight of the virtual teacher.
        temperature: T > 0.
        correct: a in [0, 1], the virtual teacher's confidence in the label.
        temper_student: divide the student's logits by T as well.

    Returns:
        (N,).

    >>> import torch
    >>> teacher_free_loss(torch.tensor([[4.0, 0.0]]), torch.tensor([0]), alpha=0.1)
    tensor([0.1440])

    Reference: Yuan et al. 2020, section 4, equation 9 (the virtual teacher).
    """
    teacher = smooth_labels(target, logits.shape[1], 1 - correct, over="others", dtype=logits.dtype)
    student = logits / temperature if temper_student else logits
    soft = mutual_learning_kl(student, teacher / temperature)
    return (1 - alpha) * cross_entropy(logits, target) + alpha * soft


@register_method("tf-kd", "teacher-free distillation from a virtual teacher", main_option="alpha", search=(0.02, 0.9))
@final
class TeacherFree(Criterion):
    """Teacher-free distillation with a virtual teacher; see :func:`teacher_free_loss`.

    Args:
        alpha: α in [0, 1], the weight of the virtual teacher.
        temperature: T > 0.
        correct: the virtual teacher's confidence in the label, in [0, 1].
        temper_student: divide the student's logits by T as well; the authors' code does not.
    """

    def __init__(
        self,
        num_classes: int,
        alpha: float = 0.1,
        *,
        temperature: float = 20.0,
        correct: float = 0.99,
        temper_student: bool = False,
        **common: Any,
    ) -> None:
        super().__init__(num_classes, **common)
        self.alpha = check_number("alpha", alpha, 0, 1)
        self.temperature = check_number("temperature", temperature, 0, open_low=True)
        self.correct = check_number("correct", correct, 0, 1)
        self.temper_student = temper_student

    def _terms(self, batch: Batch, world: int) -> Terms:
        loss = teacher_free_loss(
            batch.logits, batch.target, self.alpha, self.temperature, self.correct, self.temper_student
        )
        return Terms(loss, parts={"total": loss})

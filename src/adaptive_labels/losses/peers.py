"""The criteria that ALR is compared with and that keep no state: each a thin frame around one function.

All take the arguments of :class:`~adaptive_labels.losses.base.Criterion` (``weight``, ``ignore_index``,
``reduction``, …) by keyword beside their own.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor

from adaptive_labels import functional as AF
from adaptive_labels.losses.arguments import check_choice, check_number
from adaptive_labels.losses.base import Criterion, Terms
from adaptive_labels.losses.batch import Batch


@final
class CrossEntropy(Criterion):
    """Plain cross entropy: the baseline. With class probabilities as targets it is label refinery's loss, too.

    >>> CrossEntropy(2)(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor(0.1269)
    """

    torch_smoothing = 0.0

    def _terms(self, batch: Batch, world: int) -> Terms:
        hard = AF.cross_entropy(batch.logits, batch.target)
        return Terms(hard, parts={"hard": hard})


@final
class LabelSmoothing(Criterion):
    """Label smoothing (SLR in the paper's tables); see :func:`adaptive_labels.functional.smooth_labels`.

    Args:
        num_classes: K.
        label_smoothing: ε in [0, 1].
        smooth_over: ``"all"`` K classes, or the K−1 ``"others"``.
        **common: see :class:`Criterion`.

    >>> LabelSmoothing(2)(torch.tensor([[2.0, 0.0]], requires_grad=True), torch.tensor([0])).detach()
    tensor(0.2269)
    """

    def __init__(
        self, num_classes: int, label_smoothing: float = 0.1, *, smooth_over: str = "all", **common: Any
    ) -> None:
        super().__init__(num_classes, **common)
        self.label_smoothing = check_number("label_smoothing", label_smoothing, 0, 1)
        self.smooth_over = check_choice("smooth_over", smooth_over, ("all", "others"))
        self.torch_smoothing = self.label_smoothing if smooth_over == "all" else None

    def _terms(self, batch: Batch, world: int) -> Terms:
        hard = AF.hard_loss(batch.logits, batch.target, self.label_smoothing, self.smooth_over)
        return Terms(hard, parts={"hard": hard})

    def _own_repr(self) -> list[str]:
        return [f"label_smoothing={self.label_smoothing}", f"smooth_over={self.smooth_over!r}"]


@final
class DisturbLabel(Criterion):
    """DisturbLabel: a share of the labels is drawn anew in each step; see :func:`functional.disturb_labels`.

    It draws from torch's global generator, as dropout does. A class weight stays that of the original label.

    Args:
        num_classes: K.
        disturbance: α in [0, 1].
        **common: see :class:`Criterion`.
    """

    def __init__(self, num_classes: int, disturbance: float = 0.1, **common: Any) -> None:
        super().__init__(num_classes, **common)
        self.disturbance = check_number("disturbance", disturbance, 0, 1)

    def _terms(self, batch: Batch, world: int) -> Terms:
        hard = AF.cross_entropy(batch.logits, AF.disturb_labels(batch.target, batch.num_classes, self.disturbance))
        return Terms(hard, parts={"hard": hard})

    def _own_repr(self) -> list[str]:
        return [f"disturbance={self.disturbance}"]


@final
class ConfidencePenalty(Criterion):
    """Cross entropy minus β times the entropy of the prediction; see :func:`functional.confidence_penalty`.

    Args:
        num_classes: K.
        strength: β ≥ 0.
        **common: see :class:`Criterion`.
    """

    def __init__(self, num_classes: int, strength: float = 0.1, **common: Any) -> None:
        super().__init__(num_classes, **common)
        self.strength = check_number("strength", strength, 0)

    def _terms(self, batch: Batch, world: int) -> Terms:
        hard = AF.cross_entropy(batch.logits, batch.target)
        penalty = AF.confidence_penalty(batch.logits)
        return Terms(hard + self.strength * penalty, parts={"hard": hard, "penalty": penalty})

    def _own_repr(self) -> list[str]:
        return [f"strength={self.strength}"]


@final
class MaxSup(Criterion):
    """Cross entropy plus α times the largest logit above the mean; see :func:`functional.max_suppression`.

    Args:
        num_classes: K.
        strength: α ≥ 0.
        **common: see :class:`Criterion`.
    """

    def __init__(self, num_classes: int, strength: float = 0.1, **common: Any) -> None:
        super().__init__(num_classes, **common)
        self.strength = check_number("strength", strength, 0)

    def _terms(self, batch: Batch, world: int) -> Terms:
        hard = AF.cross_entropy(batch.logits, batch.target)
        penalty = AF.max_suppression(batch.logits)
        return Terms(hard + self.strength * penalty, parts={"hard": hard, "penalty": penalty})

    def _own_repr(self) -> list[str]:
        return [f"strength={self.strength}"]


@final
class ComplementEntropy(Criterion):
    """Complement objective training: cross entropy, and the entropy over the wrong classes maximised.

    In one step, CE − β·H(p_res)/(K−1). The original alternates: a step of the one, then a step of the other on the same
    batch; ``alternate=True`` makes every second forward the complement's, so call it twice a batch, with an optimizer's
    step after each.

    Args:
        num_classes: K.
        strength: β ≥ 0.
        alternate: alternate the two losses from forward to forward.
        **common: see :class:`Criterion`.
    """

    turn: Tensor

    def __init__(self, num_classes: int, strength: float = 1.0, *, alternate: bool = False, **common: Any) -> None:
        super().__init__(num_classes, **common)
        self.strength = check_number("strength", strength, 0)
        self.alternate = alternate
        self.register_buffer("turn", torch.zeros((), dtype=torch.long))

    def _terms(self, batch: Batch, world: int) -> Terms:
        hard = AF.cross_entropy(batch.logits, batch.target)
        entropy = AF.complement_entropy(batch.logits, batch.target)
        complement = -self.strength / (self.num_classes - 1) * entropy
        parts = {"hard": hard, "complement_entropy": entropy}
        if not self.alternate:
            return Terms(hard + complement, parts=parts)
        loss = torch.where(self.turn == 0, hard, complement)
        self.turn = 1 - self.turn
        return Terms(loss, parts=parts)

    def _own_repr(self) -> list[str]:
        return [f"strength={self.strength}"] + (["alternate=True"] if self.alternate else [])


@final
class TeacherFree(Criterion):
    """Teacher-free distillation with a virtual teacher; see :func:`functional.teacher_free_loss`.

    Args:
        num_classes: K.
        alpha: α in [0, 1], the weight of the virtual teacher.
        temperature: T > 0.
        correct: the virtual teacher's confidence in the label, in [0, 1].
        temper_student: divide the student's logits by T as well; the authors' code does not.
        **common: see :class:`Criterion`.
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
        loss = AF.teacher_free_loss(
            batch.logits, batch.target, self.alpha, self.temperature, self.correct, self.temper_student
        )
        return Terms(loss, parts={"total": loss})

    def _own_repr(self) -> list[str]:
        return [f"alpha={self.alpha}", f"temperature={self.temperature}", f"correct={self.correct}"]


@final
class Distillation(Criterion):
    """Knowledge distillation; the call needs ``guide``, the teacher's logits. See :func:`functional.distillation_loss`.

    Args:
        num_classes: K.
        alpha: α in [0, 1], the weight of the teacher.
        temperature: T > 0.
        temper_student: divide the student's logits by T as well.
        scale: multiply the soft part by T².
        **common: see :class:`Criterion`.

    >>> z, teacher = torch.tensor([[1.0, 0.0]], requires_grad=True), torch.tensor([[2.0, 0.0]])
    >>> Distillation(2, temperature=1.0)(z, torch.tensor([0]), guide=teacher)
    tensor(0.3729, grad_fn=<MeanBackward0>)
    """

    needs_guide = True

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
            AF.distillation_loss(
                batch.logits, batch.target, teacher, self.alpha, self.temperature, self.temper_student, self.scale
            )
            for teacher in batch.guides
        ]
        loss = torch.stack(losses).mean(0)
        return Terms(loss, parts={"hard": AF.cross_entropy(batch.logits.detach(), batch.target), "total": loss})

    def _own_repr(self) -> list[str]:
        return [f"alpha={self.alpha}", f"temperature={self.temperature}"]


@final
class MutualLearning(Criterion):
    """Deep mutual learning, one network's half; the call needs ``guide``, the logits of one or more peers.

    Cross entropy plus the mean of KL(peer ‖ network) over the peers; see :func:`functional.mutual_learning_kl`.

    Args:
        num_classes: K.
        strength: the weight of the divergence, ≥ 0; 1 in the original.
        **common: see :class:`Criterion`.
    """

    needs_guide = True

    def __init__(self, num_classes: int, strength: float = 1.0, **common: Any) -> None:
        super().__init__(num_classes, **common)
        self.strength = check_number("strength", strength, 0)

    def _terms(self, batch: Batch, world: int) -> Terms:
        hard = AF.cross_entropy(batch.logits, batch.target)
        divergence = torch.stack([AF.mutual_learning_kl(batch.logits, peer) for peer in batch.guides]).mean(0)
        return Terms(hard + self.strength * divergence, parts={"hard": hard, "divergence": divergence})

    def _own_repr(self) -> list[str]:
        return [f"strength={self.strength}"]

"""Slow, obvious references for every loss, written from the equations, one sample and one class at a time.

They work on Python lists of scalar tensors, so that autograd gives reference gradients too. Tests and benchmarks share
them; the package never imports them. Only moderate logits, please: a softmax here is exp over sum of exp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Scalars = list[Tensor]


def softmax(z: Scalars) -> Scalars:
    exps = [torch.exp(v) for v in z]
    total = sum(exps)
    return [e / total for e in exps]


def cross(q: list, p: Scalars) -> Tensor:
    """−Σ q log p."""
    total = torch.zeros((), dtype=torch.float64)
    for qi, pi in zip(q, p, strict=True):
        total = total - qi * torch.log(pi)
    return total


def without(values: list, k: int) -> list:
    return [v for i, v in enumerate(values) if i != k]


def one_hot(k: int, classes: int) -> list[float]:
    return [1.0 if i == k else 0.0 for i in range(classes)]


def hard(z: Scalars, t: list, eps: float = 0.0) -> Tensor:
    return cross([(1 - eps) * ti + eps / len(t) for ti in t], softmax(z))


def residual(z: Scalars, k: int, row: Scalars, tau: float = 1.0) -> Tensor:
    """The paper's L_res for label k, row k of S being ``row``; no gradient to S."""
    q = softmax([tau * s.detach() for s in row])
    return cross(q, softmax(without(z, k)))


def update(z: Scalars, k: int, row: Scalars) -> Tensor:
    """The paper's L_upd for label k; no gradient to z."""
    p = softmax([v.detach() for v in without(z, k)])
    return cross(p, softmax(row))


def mixture(t: list, loss_of_label: Callable[[int], Tensor]) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for k, tk in enumerate(t):
        if tk != 0:
            total = total + tk * loss_of_label(k)
    return total


@dataclass
class Sample:
    """One prediction: z (K scalars), t (K probabilities), its weights, and its teachers' logits."""

    z: Scalars
    t: list
    class_weight: Any
    sample_weight: Any
    teacher_logits: list[Scalars] = field(default_factory=list)

    @property
    def hit(self) -> Any:
        best = max(range(len(self.z)), key=lambda i: float(self.z[i].detach()))
        return self.t[best]


def samples(z: Tensor, target: Tensor, weight=None, ignore_index=-100, sample_weight=None, teacher_logits=()) -> list:
    """The samples of a batch in order, ``None`` where ignored. z is (N, K) or (N, K, d)."""
    out: list[Sample | None] = []
    classes = z.shape[1]
    positions = [(n,) for n in range(z.shape[0])]
    if z.dim() == 3:
        positions = [(n, d) for n in range(z.shape[0]) for d in range(z.shape[2])]
    for at in positions:
        pick = lambda x, at=at: [x[(at[0], i, *at[1:])] for i in range(classes)]  # noqa: E731
        if target.is_floating_point():
            t = pick(target.double())
        else:
            label = int(target[at])
            if label == ignore_index:
                out.append(None)
                continue
            t = one_hot(label, classes)
        class_weight = 1.0 if weight is None else sum(ti * float(w) for ti, w in zip(t, weight, strict=True))
        own = 1.0 if sample_weight is None else float(sample_weight[at])
        out.append(Sample(pick(z), t, class_weight, own, [pick(g) for g in teacher_logits]))
    return out


Loss = Callable[[Sample], tuple[Tensor, Tensor | None]]


def reduce(batch: list, loss: Loss, reduction: str) -> Tensor:
    """Σ w (prediction) / Σ w + Σ s (own) / Σ s, over the samples that are not ignored."""
    zero = torch.zeros((), dtype=torch.float64)
    each, weighted, own, total_weight, total_own = [], zero, zero, 0.0, 0.0
    for sample in batch:
        if sample is None:
            each.append(zero)
            continue
        prediction, mine = loss(sample)
        w = sample.class_weight * sample.sample_weight
        term = w * prediction + (sample.sample_weight * mine if mine is not None else 0.0)
        each.append(term)
        weighted = weighted + w * prediction
        own = own + (sample.sample_weight * mine if mine is not None else 0.0)
        total_weight, total_own = total_weight + w, total_own + sample.sample_weight
    if reduction == "none":
        return torch.stack(each)
    if reduction == "sum":
        return torch.stack(each).sum()
    return (weighted / total_weight if total_weight else zero) + (own / total_own if total_own else zero)


def accuracy(batch: list) -> float:
    kept = [s for s in batch if s is not None]
    total = sum(s.sample_weight for s in kept)
    return float(sum(s.sample_weight * s.hit for s in kept) / total) if total else 0.0


# One reference a method: options → loss of a sample.


def baseline(**_: Any) -> Loss:
    return lambda s: (hard(s.z, s.t), None)


def label_smoothing(label_smoothing: float = 0.1) -> Loss:
    return lambda s: (hard(s.z, s.t, label_smoothing), None)


def adaptive(S: Tensor, a: float, label_smoothing: float = 0.0, attraction: float = 1.0) -> Loss:
    """ALR's L_hard + a L_res, and L_upd."""

    def loss(s: Sample) -> tuple[Tensor, Tensor]:
        rows = [list(row) for row in S]
        l_res = mixture(s.t, lambda k: residual(s.z, k, rows[k], attraction))
        return hard(s.z, s.t, label_smoothing) + a * l_res, mixture(s.t, lambda k: update(s.z, k, rows[k]))

    return loss


def confidence(strength: float = 0.1) -> Loss:
    def loss(s: Sample) -> tuple[Tensor, None]:
        p = softmax(s.z)
        return hard(s.z, s.t) - strength * cross(p, p), None

    return loss


def max_sup(strength: float = 0.1) -> Loss:
    return lambda s: (
        hard(s.z, s.t) + strength * (max(s.z, key=lambda v: float(v.detach())) - sum(s.z) / len(s.z)),
        None,
    )


def complement(strength: float = 1.0) -> Loss:
    def loss(s: Sample) -> tuple[Tensor, None]:
        def entropy(k: int) -> Tensor:
            p = softmax(without(s.z, k))
            return cross(p, p)

        return hard(s.z, s.t) - strength / (len(s.z) - 1) * mixture(s.t, entropy), None

    return loss


def distillation(alpha: float = 0.5, temperature: float = 4.0, temper_student: bool = True, scale: bool = True) -> Loss:
    def loss(s: Sample) -> tuple[Tensor, None]:
        total = torch.zeros((), dtype=torch.float64)
        for teacher in s.teacher_logits:
            q = softmax([g.detach() / temperature for g in teacher])
            p = softmax([v / temperature if temper_student else v for v in s.z])
            factor = temperature**2 if scale else 1.0
            total = total + (1 - alpha) * hard(s.z, s.t) + alpha * factor * cross(q, p)
        return total / len(s.teacher_logits), None

    return loss


def kl(q: Scalars, p: Scalars) -> Tensor:
    return cross(q, p) - cross(q, q)


def mutual(strength: float = 1.0) -> Loss:
    def loss(s: Sample) -> tuple[Tensor, None]:
        divergences = [kl(softmax([g.detach() for g in teacher]), softmax(s.z)) for teacher in s.teacher_logits]
        return hard(s.z, s.t) + strength * sum(divergences) / len(divergences), None

    return loss


def teacher_free(
    alpha: float = 0.1, temperature: float = 20.0, correct: float = 0.99, temper_student: bool = False
) -> Loss:
    def loss(s: Sample) -> tuple[Tensor, None]:
        classes = len(s.z)
        teacher = [
            torch.as_tensor(correct * t + (1 - correct) * (1 - t) / (classes - 1), dtype=torch.float64) for t in s.t
        ]
        q = softmax([v / temperature for v in teacher])
        p = softmax([v / temperature if temper_student else v for v in s.z])
        return (1 - alpha) * hard(s.z, s.t) + alpha * kl(q, p), None

    return loss


def online(table: Tensor, hard_share: float = 0.5) -> Loss:
    def loss(s: Sample) -> tuple[Tensor, None]:
        soft = mixture(s.t, lambda k: cross(list(table[k]), softmax(s.z)))
        return hard_share * hard(s.z, s.t) + (1 - hard_share) * soft, None

    return loss


def plus_plus(C: Tensor, mass: float = 0.1) -> Loss:
    def target(k: int, detach: bool) -> list:
        row = softmax([c.detach() if detach else c for c in C[k]])
        spread = [mass * v for v in row]
        return [*spread[:k], torch.as_tensor(1 - mass, dtype=torch.float64), *spread[k:]]

    def loss(s: Sample) -> tuple[Tensor, Tensor]:
        p = softmax(s.z)
        stopped = [v.detach() for v in p]
        network = mixture(s.t, lambda k: cross(target(k, True), p))
        own = mixture(s.t, lambda k: cross(stopped, target(k, False)))
        return network, own

    return loss

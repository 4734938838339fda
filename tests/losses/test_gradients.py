"""The closed-form gradients of the paper, and the claims about distillation that it builds on."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from adaptive_labels import functional as AF

N, K = 5, 4
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def targets() -> list[Tensor]:
    return [torch.randint(K, (N,)), random(N, K).softmax(1)]


def grad(loss: Tensor, wrt: Tensor, upstream: Tensor) -> Tensor:
    return torch.autograd.grad((loss * upstream).sum(), wrt)[0]


@pytest.mark.parametrize("target", targets(), ids=["index", "mixture"])
@pytest.mark.parametrize("eps", [0.0, 0.1, 1.0])
def test_hard_loss_gradient(target: Tensor, eps: float) -> None:
    z, upstream = random(N, K).requires_grad_(), random(N)
    expected = upstream.unsqueeze(1) * AF.hard_loss_gradient(z, target, eps)
    torch.testing.assert_close(grad(AF.hard_loss(z, target, eps), z, upstream), expected, **CLOSE)


@pytest.mark.parametrize("target", targets(), ids=["index", "mixture"])
@pytest.mark.parametrize("tau", [-3.0, 0.0, 1.0])
def test_residual_loss_gradient(target: Tensor, tau: float) -> None:
    z, S, upstream = random(N, K).requires_grad_(), random(K, K - 1).requires_grad_(), random(N)
    loss = AF.residual_loss(z, target, S, tau)
    expected = upstream.unsqueeze(1) * AF.residual_loss_gradient(z, target, S, tau)
    torch.testing.assert_close(grad(loss, z, upstream), expected.detach(), **CLOSE)
    assert torch.autograd.grad(AF.residual_loss(z, target, S, tau).sum(), S, allow_unused=True)[0] is None


def test_residual_loss_leaves_the_true_logit_alone() -> None:
    z, y, S = random(N, K).requires_grad_(), torch.randint(K, (N,)), random(K, K - 1)
    gradient = grad(AF.residual_loss(z, y, S), z, torch.ones(N).double())
    assert torch.equal(gradient.gather(1, y.unsqueeze(1)), torch.zeros(N, 1).double())


def test_among_wrong_classes_the_residual_loss_is_the_hard_one_over_the_chance_of_being_wrong() -> None:
    """What docs/waiting.md derives its weight from, for a uniform S: the ratio of the two is 1/(1 − p_y)."""
    z, y = random(N, K).requires_grad_(), torch.randint(K, (N,))
    ones = torch.ones(N).double()
    hard = AF.erase(grad(AF.hard_loss(z, y), z, ones), y)
    residual = AF.erase(grad(AF.residual_loss(z, y, torch.zeros(K, K - 1).double()), z, ones), y)
    wrong = 1 - z.detach().softmax(1).gather(1, y.unsqueeze(1))
    torch.testing.assert_close(residual.diff(dim=1) * wrong, hard.diff(dim=1), **CLOSE)


@pytest.mark.parametrize("target", targets(), ids=["index", "mixture"])
def test_update_loss_gradient(target: Tensor) -> None:
    z, S = random(N, K).requires_grad_(), random(K, K - 1).requires_grad_()
    gradient = torch.autograd.grad(AF.update_loss(z, target, S).sum(), S)[0]
    torch.testing.assert_close(gradient, AF.update_loss_gradient(z, target, S).detach(), **CLOSE)
    assert torch.autograd.grad(AF.update_loss(z, target, S).sum(), z, allow_unused=True)[0] is None


def test_update_loss_touches_only_the_rows_of_the_batch() -> None:
    gradient = AF.update_loss_gradient(random(3, K), torch.tensor([1, 1, 3]), random(K, K - 1))
    assert torch.equal(gradient.abs().sum(1) > 0, torch.tensor([False, True, False, True]))


def test_s_converges_to_the_mean_residual_probabilities_of_a_class() -> None:
    z, y = random(8, K), torch.tensor([0, 0, 0, 1, 1, 2, 3, 3])
    S = torch.zeros(K, K - 1, dtype=torch.float64)
    for _ in range(4000):
        S = S - AF.update_loss_gradient(z, y, S)
    expected = AF.erase(z, y).softmax(1)[:3].mean(0)
    torch.testing.assert_close(S[0].softmax(0), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("target", targets(), ids=["index", "mixture"])
@pytest.mark.parametrize(
    "loss",
    [
        AF.cross_entropy,
        lambda z, t: AF.hard_loss(z, t, 0.1),
        lambda z, t: AF.residual_loss(z, t, torch.linspace(-1, 1, K * (K - 1)).double().reshape(K, K - 1)),
        lambda z, t: AF.complement_entropy(z, t),
        lambda z, t: AF.confidence_penalty(z),
        lambda z, t: AF.max_suppression(z),
        lambda z, t: AF.teacher_free_loss(z, t),
        lambda z, t: AF.distillation_loss(z, t, torch.linspace(-1, 1, N * K).double().reshape(N, K)),
        lambda z, t: AF.mutual_learning_kl(z, torch.linspace(-1, 1, N * K).double().reshape(N, K)),
        lambda z, t: AF.online_label_smoothing_loss(z, t, torch.eye(K).double() / 2 + 0.5 / K),
        lambda z, t: AF.label_smoothing_plus_plus_losses(z, t, torch.zeros(K, K - 1).double())[0],
    ],
)
def test_gradcheck_of_the_logits(loss, target: Tensor) -> None:
    z = (torch.arange(N * K).double().reshape(N, K) % 7 / 3).requires_grad_()  # no ties within a row
    assert gradcheck(lambda z: loss(z, target), (z,))


@pytest.mark.parametrize("target", targets(), ids=["index", "mixture"])
@pytest.mark.parametrize(
    "loss",
    [
        AF.update_loss,
        lambda z, t, S: AF.label_smoothing_plus_plus_losses(z, t, S)[1],
    ],
)
def test_gradcheck_of_the_learned_table(loss, target: Tensor) -> None:
    z, S = random(N, K), random(K, K - 1).requires_grad_()
    assert gradcheck(lambda S: loss(z, target, S), (S,))


# Distillation, in the two forms that the paper mixes (section 3.1).


@pytest.mark.parametrize("temper_student", [True, False])
@pytest.mark.parametrize(("alpha", "T"), [(0.3, 2.0), (0.7, 4.0), (0.5, 1.0)])
def test_the_true_gradient_of_distillation(alpha: float, T: float, temper_student: bool) -> None:
    z, teacher, y = random(N, K).requires_grad_(), random(N, K), torch.randint(K, (N,))
    upstream = random(N)
    loss = AF.distillation_loss(z, y, teacher, alpha, T, temper_student)
    p, q_hard, q_soft = z.softmax(1), AF.as_probabilities(y, K, torch.float64), (teacher / T).softmax(1)
    if temper_student:
        soft = T**2 * ((z / T).softmax(1) - q_soft) / T
    else:
        soft = T**2 * (p - q_soft)
    expected = upstream.unsqueeze(1) * ((1 - alpha) * (p - q_hard) + alpha * soft)
    torch.testing.assert_close(grad(loss, z, upstream), expected.detach(), **CLOSE)


def stationary(y: Tensor, teacher: Tensor, alpha: float, T: float, temper_student: bool) -> Tensor:
    z = torch.zeros(1, K, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [z], max_iter=500, tolerance_grad=1e-13, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = AF.distillation_loss(z, y, teacher, alpha, T, temper_student).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return z.softmax(1).detach()


@pytest.mark.parametrize("temper_student", [True, False])
def test_the_papers_stationary_point_holds_at_temperature_one_only(temper_student: bool) -> None:
    y, teacher, alpha = torch.tensor([1]), torch.tensor([[2.0, 1.0, 0.0, -1.0]]).double(), 0.4
    for T, holds in ((1.0, True), (3.0, False)):
        q_hard, q_soft = AF.as_probabilities(y, K, torch.float64), (teacher / T).softmax(1)
        claimed = ((1 - alpha) * q_hard + alpha * T * q_soft) / (1 - alpha + alpha * T)
        found = stationary(y, teacher, alpha, T, temper_student)
        assert torch.allclose(found, claimed, atol=1e-5) is holds
    if not temper_student:  # untempered, the weight of the teacher is T², not T
        right = ((1 - alpha) * q_hard + alpha * T**2 * q_soft) / (1 - alpha + alpha * T**2)
        torch.testing.assert_close(found, right, rtol=0, atol=1e-5)


def test_cat_dog_plane_two_targets_pull_apart_and_the_residual_loss_does_not() -> None:
    """The paper's example: p = (0.7, 0.2, 0.1) for a cat whose soft label is (0.6, 0.3, 0.1)."""
    p, soft = torch.tensor([[0.7, 0.2, 0.1]]).double(), torch.tensor([[0.6, 0.3, 0.1]]).double()
    z, cat = p.log().requires_grad_(), torch.tensor([0])
    one = torch.ones(1).double()
    towards_soft = -grad(AF.cross_entropy(z, soft), z, one)[0]
    towards_label = -grad(AF.cross_entropy(z, cat), z, one)[0]
    assert towards_soft[0] < 0 < towards_label[0]  # one lowers the cat, the other raises it
    S = AF.residual_logits_from_labels(torch.tensor([[0.0, 0.3, 0.1], [1, 0, 1], [1, 1, 0]]).double(), floor=0.0)
    residual = -grad(AF.residual_loss(z, cat, S), z, one)[0]
    assert residual[0] == 0  # says nothing about the cat,
    assert residual[1] > 0 > residual[2]  # and moves dog : plane from 2 : 1 towards 3 : 1


def test_no_gradient_reaches_a_teacher_or_a_peer() -> None:
    z, other, y = random(N, K), random(N, K).requires_grad_(), torch.randint(K, (N,))
    z.requires_grad_()
    for loss in (AF.distillation_loss(z, y, other), AF.mutual_learning_kl(z, other)):
        assert torch.autograd.grad(loss.sum(), other, allow_unused=True)[0] is None

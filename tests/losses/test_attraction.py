"""The τ family: L_res aims at softmax(τ·S). Its gradient, its limits, and the spring that it is to a class's mean."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from adaptive_labels import AdaptiveLabelLoss, functional as AF

TAUS = [-16.0, -8.0, -2.0, -1.0, 0.0, 0.5, 1.0]


def erased(matrix: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Each row without its label's column, one by one."""
    return torch.stack([torch.cat([row[:k], row[k + 1 :]]) for row, k in zip(matrix, labels.tolist(), strict=True)])


@pytest.mark.parametrize("tau", TAUS)
def test_the_gradient_is_the_residual_prediction_minus_the_aim(tau: float) -> None:
    torch.manual_seed(0)
    z = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 1, 2, 3, 4, 2])
    s = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    upstream = torch.rand(6, dtype=torch.float64) + 0.5
    (AF.residual_loss(z, y, s, tau) * upstream).sum().backward()
    p_res = F.softmax(erased(z.detach(), y), dim=1)
    expected = erased(z.grad, y)
    assert torch.allclose(expected, upstream[:, None] * (p_res - F.softmax(tau * s.detach()[y], dim=1)), atol=1e-12)
    assert torch.equal(z.grad.gather(1, y[:, None]), torch.zeros(6, 1, dtype=torch.float64))
    assert s.grad is None  # L_res never moves S


def test_no_attraction_is_the_uniform_aim_whatever_s_is() -> None:
    z, y = torch.randn(4, 6), torch.tensor([0, 1, 2, 5])
    value = AF.residual_loss(z, y, torch.randn(6, 5), 0.0)
    assert torch.allclose(value, AF.residual_loss(z, y, torch.zeros(6, 5)), atol=1e-6)
    assert torch.allclose(value, -F.log_softmax(erased(z, y), dim=1).mean(1), atol=1e-6)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_large_attraction_aims_at_one_class_the_most_or_the_least_confused(sign: float) -> None:
    torch.manual_seed(1)
    z, y, s = torch.randn(5, 4), torch.tensor([0, 1, 2, 3, 0]), torch.randn(4, 3)
    only = (sign * s[y]).argmax(1, keepdim=True)
    expected = -F.log_softmax(erased(z, y), dim=1).gather(1, only)[:, 0]
    assert torch.allclose(AF.residual_loss(z, y, s, sign * 1e4), expected, atol=1e-5)


@pytest.mark.parametrize("tau", TAUS)
def test_a_constant_added_to_a_row_of_s_changes_nothing(tau: float) -> None:
    z, y, s = torch.randn(4, 5).double(), torch.tensor([0, 1, 2, 3]), torch.randn(5, 4).double()
    shifted = s + torch.randn(5, 1).double()
    assert torch.allclose(AF.residual_loss(z, y, s, tau), AF.residual_loss(z, y, shifted, tau), atol=1e-12)


def test_what_s_learns_does_not_depend_on_what_is_done_with_it() -> None:
    torch.manual_seed(2)
    z, y = torch.randn(8, 4), torch.randint(0, 4, (8,))
    start = torch.rand(4, 4)
    gradients = []
    for tau in TAUS:
        criterion = AdaptiveLabelLoss(4, update="optimizer", attraction=tau, initial_labels=start)
        criterion(z.clone().requires_grad_(), y).backward()
        gradients.append(criterion.residual_logits.grad)
    assert all(torch.allclose(gradient, gradients[0]) for gradient in gradients)


@pytest.mark.parametrize("tau", [-4.0, -1.0, 0.0, 0.5])
def test_a_force_on_the_mean_meets_a_spring_of_one_minus_tau(tau: float) -> None:
    """One class whose samples are all pushed towards class 1 by a small force f: with a·L_res against it and S
    following, the mean residual logits come to rest at r = (K−1)·f / (a·(1 − τ)), to first order in f."""
    torch.manual_seed(3)
    classes, force, a = 5, 1e-3, 0.8
    f = torch.tensor([0.0, force, -force / 3, -force / 3, -force / 3], dtype=torch.float64)
    z = torch.zeros(16, classes, dtype=torch.float64, requires_grad=True)
    y = torch.zeros(16, dtype=torch.int64)
    s = torch.zeros(classes, classes - 1, dtype=torch.float64, requires_grad=True)
    for _ in range(4000):
        loss = a * AF.residual_loss(z, y, s, tau).sum() - (z * f).sum()
        (gradient,) = torch.autograd.grad(loss, z)
        (of_s,) = torch.autograd.grad(AF.update_loss(z.detach(), y, s).mean(), s)
        with torch.no_grad():
            z -= 0.2 * gradient
            s -= 0.2 * of_s
    r = z.detach()[0, 1:] - z.detach()[0, 1:].mean()
    expected = (classes - 1) * f[1:] / (a * (1 - tau))
    assert torch.allclose(r, expected, rtol=0.02, atol=1e-6)


def test_at_attraction_one_the_mean_is_free_and_only_the_spread_is_held() -> None:
    """The paper's τ = 1: once S has followed, a shift of a whole class's residual logits costs nothing, a sample's
    deviation from the others' still does."""
    z = torch.tensor([[0.0, 2.0, -1.0, 0.5]], dtype=torch.float64).repeat(6, 1).requires_grad_()
    y = torch.zeros(6, dtype=torch.int64)
    s = torch.zeros(4, 3, dtype=torch.float64)
    s[0] = F.log_softmax(z.detach()[0, 1:], dim=0)  # where L_upd comes to rest
    (gradient,) = torch.autograd.grad(AF.residual_loss(z, y, s, 1.0).sum(), z)
    assert torch.allclose(gradient, torch.zeros_like(gradient), atol=1e-12)
    (repelled,) = torch.autograd.grad(AF.residual_loss(z, y, s, -1.0).sum(), z)
    assert bool((repelled[:, 1] > 0.3).all())  # descent lowers the logit of the class it is confused with
    assert bool((repelled[:, 2] < -0.3).all())  # and raises that of the least confused one
    with torch.no_grad():
        z[0, 2] += 1.0
    (back,) = torch.autograd.grad(AF.residual_loss(z, y, s, 1.0).sum(), z)
    assert back[0, 2] > 0.01
    assert torch.allclose(back[1:], torch.zeros_like(back[1:]), atol=1e-12)

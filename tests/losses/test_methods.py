"""State and behaviour of the other criteria, beyond their formulas."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch

from adaptive_labels import losses
from adaptive_labels.losses import (
    METHODS,
    ComplementEntropy,
    Criterion,
    DisturbLabel,
    LabelSmoothing,
    LabelSmoothingPlusPlus,
    MaxSup,
    OnlineLabelSmoothing,
    TeacherFree,
    create_loss,
    online_label_smoothing,
)

K = 4


def batch(n: int = 6):
    return torch.randn(n, K, requires_grad=True), torch.randint(K, (n,))


def test_disturb_label_is_cross_entropy_with_labels_drawn_from_the_global_generator() -> None:
    z, y = torch.randn(500, K, requires_grad=True), torch.randint(K, (500,))
    criterion = DisturbLabel(K, 0.5, reduction="none")
    torch.manual_seed(4)
    loss = criterion(z, y)
    torch.manual_seed(4)
    drawn, disturbed = torch.randint(K, (500,)), torch.rand(500) < 0.5
    seen = torch.where(disturbed, drawn, y)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(z, seen, reduction="none"))
    assert 0.3 < (seen != y).float().mean() < 0.45  # 0.5 · 3/4


def test_online_table_is_the_mean_of_correct_predictions_and_other_rows_stay() -> None:
    criterion = OnlineLabelSmoothing(3)
    torch.testing.assert_close(criterion.table, torch.full((3, 3), 1 / 3))
    z = torch.tensor([[4.0, 1.0, 0.0], [3.0, 0.0, 1.0], [0.0, 3.0, 0.0], [1.0, 0.0, 2.0]], requires_grad=True)
    y = torch.tensor([0, 0, 2, -100])  # class 2 is never right, class 1 never seen
    criterion(z, y).backward()
    torch.testing.assert_close(criterion.table, torch.full((3, 3), 1 / 3))  # until the epoch ends
    criterion.epoch_end()
    torch.testing.assert_close(criterion.table[0], z[:2].softmax(1).mean(0).detach())
    torch.testing.assert_close(criterion.table[1:], torch.full((2, 3), 1 / 3))
    criterion(z, y).backward()
    criterion.epoch_end()
    criterion.epoch_end()  # an epoch without predictions changes nothing
    torch.testing.assert_close(criterion.table[0], z[:2].softmax(1).mean(0).detach())
    torch.testing.assert_close(criterion.table.sum(1), torch.ones(3))


@pytest.mark.parametrize("told", [False, True])
def test_online_label_smoothing_warns_once_that_no_epoch_has_ended(told: bool, monkeypatch) -> None:
    monkeypatch.setattr(online_label_smoothing, "STEPS_BEFORE_WARNING", 20)
    criterion = OnlineLabelSmoothing(K)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(50):
            criterion(*batch()).backward()
            if told and step == 10:
                criterion.epoch_end()
    messages = [str(one.message) for one in caught]
    assert len(messages) == (not told)
    assert told or "20 steps without epoch_end()" in messages[0]


def test_online_rows_without_a_hit_can_be_reset() -> None:
    """As in the authors' code."""
    z = torch.tensor([[4.0, 1.0, 0.0]], requires_grad=True)
    for reset in (False, True):
        criterion = OnlineLabelSmoothing(3, reset_missing=reset)
        criterion(z, torch.tensor([0])).backward()
        criterion.epoch_end()
        kept = criterion.table[0].clone()
        criterion.epoch_end()
        torch.testing.assert_close(criterion.table[0], torch.full((3,), 1 / 3) if reset else kept)


def test_alternating_complement_entropy_takes_turns() -> None:
    z, y = batch()
    criterion = ComplementEntropy(K, alternate=True)
    plain = torch.nn.functional.cross_entropy(z, y)
    both = ComplementEntropy(K)(z, y)
    first, second, third = (criterion(z.detach(), y) for _ in range(3))
    torch.testing.assert_close(first, plain)
    torch.testing.assert_close(first + second, both)
    torch.testing.assert_close(third, plain)
    restored = ComplementEntropy(K, alternate=True)
    restored.load_state_dict(criterion.state_dict())
    torch.testing.assert_close(restored(z, y), second)


def test_label_smoothing_plus_plus_learns_by_the_optimizer() -> None:
    criterion = LabelSmoothingPlusPlus(3)
    z = torch.tensor([[5.0, 4.0, 0.0]])
    optimizer = torch.optim.SGD(criterion.parameter_groups(), lr=5.0)
    for _ in range(200):
        optimizer.zero_grad()
        criterion(z.clone().requires_grad_(), torch.tensor([0])).backward()
        optimizer.step()
    torch.testing.assert_close(criterion.residual_labels()[0], torch.tensor([0.0, 0.982, 0.018]), rtol=0, atol=2e-3)
    assert "weight_decay" not in criterion.parameter_groups()[0]


def test_teacher_free_tempers_the_virtual_teacher_only() -> None:
    """The regulariser's gradient is p − q^T, as in the authors' code; with a tempered student it is nearly inert."""
    z, y = batch()
    q = (torch.nn.functional.one_hot(y, K) * (0.99 - 0.01 / 3) + 0.01 / 3).div(20).softmax(1)
    (gradient,) = torch.autograd.grad(TeacherFree(K, 1.0, reduction="sum")(z, y), z)
    torch.testing.assert_close(gradient, z.detach().softmax(1) - q)
    (tempered,) = torch.autograd.grad(TeacherFree(K, 1.0, reduction="sum", temper_student=True)(z, y), z)
    assert tempered.norm() < 0.02 * gradient.norm()
    both = [TeacherFree(K, 0.3, temperature=1.0, temper_student=temper)(z, y) for temper in (False, True)]
    torch.testing.assert_close(both[0], both[1])


def test_max_suppression_shares_the_gradient_among_ties() -> None:
    z = torch.zeros(1, 3, requires_grad=True)
    MaxSup(3, 1.0, reduction="sum")(z, torch.tensor([0])).backward()
    torch.testing.assert_close(z.grad[0, 1], z.grad[0, 2])


def test_class_weights_do_not_distort_the_smoothed_target() -> None:
    """torch weighs the classes inside the smoothed target; here a sample's weight multiplies its whole loss."""
    z, y = batch()
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0])
    ours = LabelSmoothing(K, 0.2, weight=weight)(z, y)
    each = torch.nn.functional.cross_entropy(z, y, label_smoothing=0.2, reduction="none")
    torch.testing.assert_close(ours, (each * weight[y]).sum() / weight[y].sum())
    assert not torch.allclose(ours, torch.nn.functional.cross_entropy(z, y, weight=weight, label_smoothing=0.2))


@pytest.mark.parametrize("name", METHODS)
def test_every_criterion_keeps_the_contract(name: str) -> None:
    criterion = create_loss(name, K)
    assert isinstance(criterion, Criterion)
    assert str(K) in repr(criterion)
    z, y = batch()
    teacher_logits = torch.randn(6, K) if criterion.needs_teacher_logits else None
    loss = criterion(z, y, teacher_logits=teacher_logits)
    loss.backward()
    assert loss.shape == ()
    assert bool(torch.isfinite(z.grad).all())
    assert criterion.parts
    assert all(part.dim() == 0 and not part.requires_grad for part in criterion.parts.values())
    criterion.epoch_end()
    with criterion.accumulation():
        criterion(z, y, teacher_logits=teacher_logits)
    assert isinstance(criterion.parameter_groups(lr=0.1), list)
    again = create_loss(name, K)
    again.load_state_dict(criterion.state_dict())
    torch.manual_seed(5)
    expected = copy.deepcopy(criterion)(z, y, teacher_logits=teacher_logits)
    torch.manual_seed(5)
    torch.testing.assert_close(again(z, y, teacher_logits=teacher_logits), expected)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_empty_and_all_ignored_batches(name: str, reduction: str) -> None:
    criterion = create_loss(name, K, reduction=reduction)
    for z, y in (
        (torch.zeros(0, K), torch.zeros(0, dtype=torch.long)),
        (torch.zeros(0, K), torch.zeros(0, K)),
        (torch.randn(3, K), torch.full((3,), -100)),
    ):
        z = z.requires_grad_()
        loss = criterion(z, y, teacher_logits=torch.zeros_like(z) if criterion.needs_teacher_logits else None)
        loss.sum().backward()
        assert float(loss.detach().sum()) == 0
        assert torch.equal(z.grad, torch.zeros_like(z))
    criterion.epoch_end()
    assert all(bool(torch.isfinite(value).all()) for value in criterion.state_dict().values())


@pytest.mark.parametrize(("given", "what"), [(lambda z: z.sum(), r"\(\)"), (lambda z: z, r"\(2, 3\)"), (len, "int")])
def test_a_function_that_gives_no_loss_per_sample_is_refused(given, what) -> None:
    losses.register_method("odd", "of a test")(lambda logits, target: given(logits))
    try:
        with pytest.raises(ValueError, match=rf"method 'odd' must return one loss per sample, \(2,\), not {what}"):
            losses.create_loss("odd", 3)(torch.zeros(2, 3), torch.tensor([0, 1]))
    finally:
        del losses.METHODS["odd"]


def test_one_trial_of_a_main_option_is_in_the_middle() -> None:
    assert METHODS["slr"].trials(1) == ("label_smoothing", [0.1])
    assert METHODS["dml"].trials(1) == ("strength", [0.447])

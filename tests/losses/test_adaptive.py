"""What AdaptiveLabelLoss promises beyond its formula: state, modes, and how S moves."""

from __future__ import annotations

import copy
import io
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import reference as R
from adaptive_labels import AdaptiveLabelLoss, functional as AF
from adaptive_labels.losses import create_loss

N, K = 6, 4


def batch(n: int = N, k: int = K, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    return torch.randn(n, k, dtype=dtype, requires_grad=True), torch.randint(k, (n,))


def accuracy(z: Tensor, y: Tensor) -> float:
    return (z.argmax(1) == y).float().mean().item()


# The weight on L_res.


def recent(accuracies: list[float], momentum: float) -> float:
    """The mean of a batch's accuracies, each counting ``momentum`` times as much as the next; 0 of none."""
    counts = [momentum**age for age in reversed(range(len(accuracies)))]
    return sum(n * a for n, a in zip(counts, accuracies, strict=True)) / sum(counts) if counts else 0.0


def test_running_weight_lags_by_one_step_and_starts_at_one() -> None:
    criterion = AdaptiveLabelLoss(K, update="optimizer", accuracy_momentum=0.9)
    seen: list[float] = []
    for _ in range(5):
        z, y = batch()
        criterion(z, y)
        assert criterion.parts["weight"].item() == pytest.approx(1 - recent(seen, 0.9))
        seen.append(accuracy(z, y))


def test_the_running_accuracy_is_that_of_the_batches_however_few_they_were() -> None:
    criterion = AdaptiveLabelLoss(K)
    for _ in range(3):
        criterion(10 * torch.eye(K), torch.arange(K))
    assert criterion.parts["weight"].item() == 0


@pytest.mark.parametrize("fused", [None, False])
def test_waiting_weight_rises_to_a_half_and_is_the_papers_from_there(fused: bool | None) -> None:
    criterion = create_loss("alr-wait", K, fused=fused, accuracy_momentum=0.5)
    y = torch.arange(K)
    weights, expected, seen = [], [], []
    for right in [*range(K + 1), K]:
        criterion(10 * torch.eye(K)[torch.where(y < right, y, (y + 1) % K)], y)
        weights.append(criterion.parts["weight"].item())
        expected.append(min(recent(seen, 0.5), 1 - recent(seen, 0.5)))
        seen.append(right / K)
    assert weights == pytest.approx(expected, abs=1e-6)
    assert weights[:2] == [0, 0]
    assert max(weights) > weights[-1] > 0


def test_batch_weight_is_of_this_batch_and_epoch_weight_of_the_last_epoch() -> None:
    by_batch, by_epoch = (
        AdaptiveLabelLoss(K, update="optimizer", residual_weight="batch"),
        AdaptiveLabelLoss(K, update="optimizer", residual_weight="epoch"),
    )
    seen = []
    for _ in range(4):
        z, y = batch()
        by_batch(z, y)
        by_epoch(z, y)
        seen.append(accuracy(z, y))
        assert by_batch.parts["weight"].item() == pytest.approx(1 - seen[-1])
        assert by_epoch.parts["weight"].item() == 1.0
    by_epoch.epoch_end()
    by_epoch(*batch())
    assert by_epoch.parts["weight"].item() == pytest.approx(1 - sum(seen) / 4)
    by_epoch.epoch_end()
    by_epoch.epoch_end()  # an epoch without a batch changes nothing
    before = by_epoch.accuracy.last_epoch.item()
    by_epoch(*batch())
    assert by_epoch.parts["weight"].item() == pytest.approx(1 - before)


def test_an_empty_batch_does_not_move_the_running_accuracy() -> None:
    criterion = AdaptiveLabelLoss(2, update="optimizer", accuracy_momentum=0.5)
    criterion(torch.tensor([[1.0, 0.0]], requires_grad=True), torch.tensor([0]))
    criterion(torch.zeros(0, 2, requires_grad=True), torch.zeros(0, dtype=torch.long))
    criterion(torch.zeros(1, 2, requires_grad=True), torch.tensor([-100]))
    criterion(torch.tensor([[1.0, 0.0]], requires_grad=True), torch.tensor([1]))
    criterion(*batch(2, 2))
    assert criterion.accuracy.running.item() == pytest.approx(recent([1, 0], 0.5))


def test_the_weight_sends_no_gradient() -> None:
    z, y = batch(dtype=torch.float64)
    criterion = AdaptiveLabelLoss(K, update="optimizer", residual_weight="batch").double()
    criterion(z, y).backward()
    a = criterion.parts["weight"]
    expected = AF.hard_loss_gradient(z, y) + a * AF.residual_loss_gradient(z, y, criterion.residual_logits)
    torch.testing.assert_close(z.grad, expected.detach() / N)


# Degenerate cases.


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("update", ["optimizer", "self"])
@pytest.mark.parametrize("form", ["index", "probabilities"])
def test_empty_batch(reduction: str, update: str, form: str) -> None:
    criterion = AdaptiveLabelLoss(K, reduction=reduction, update=update)
    z = torch.zeros(0, K, requires_grad=True)
    y = torch.zeros(0, dtype=torch.long) if form == "index" else torch.zeros(0, K)
    loss = criterion(z, y)
    assert loss.shape == ((0,) if reduction == "none" else ())
    loss.sum().backward()
    assert z.grad is not None
    assert float(loss.detach().sum()) == 0.0
    assert bool(torch.isfinite(criterion.residual_logits).all())


def test_all_ignored_is_zero_with_zero_gradients() -> None:
    for training in (True, False):
        criterion = AdaptiveLabelLoss(K, update="optimizer", label_smoothing=0.1).train(training)
        z = torch.randn(3, K, requires_grad=True)
        loss = criterion(z, torch.full((3,), -100))
        loss.backward()
        assert loss.item() == 0.0
        assert torch.equal(z.grad, torch.zeros_like(z))


@pytest.mark.parametrize("normalization", ["sum", "hybrid"])
def test_two_classes_have_an_empty_residual(normalization: str) -> None:
    z, y = batch(5, 2)
    criterion = AdaptiveLabelLoss(2, 0.1, update="optimizer", normalization=normalization)
    torch.testing.assert_close(criterion(z, y), nn.functional.cross_entropy(z, y, label_smoothing=0.1))


def test_one_sample_and_unbatched_logits() -> None:
    z, y = batch(1)
    criterion = AdaptiveLabelLoss(K, update="optimizer", residual_weight=1.0)
    torch.testing.assert_close(criterion(z[0], y[0]), criterion(z, y))
    assert AdaptiveLabelLoss(K, update="optimizer", reduction="none")(z[0], y[0]).shape == ()


def test_a_class_never_seen_keeps_its_uniform_row() -> None:
    criterion = AdaptiveLabelLoss(K, update="self", residual_lr=1.0)
    for _ in range(10):
        z, y = batch()
        criterion(z, y.clamp_max(K - 2))
    labels = criterion.residual_labels()
    torch.testing.assert_close(labels[K - 1], torch.tensor([1 / 3, 1 / 3, 1 / 3, 0.0]))
    assert not torch.allclose(labels[0, 1:], torch.full((3,), 1 / 3), atol=1e-3)


def test_integer_targets_of_any_width() -> None:
    z, y = batch()
    expected = AdaptiveLabelLoss(K, update="optimizer")(z, y)
    for dtype in (torch.uint8, torch.int16, torch.int32):
        torch.testing.assert_close(AdaptiveLabelLoss(K, update="optimizer")(z, y.to(dtype)), expected)


# How S moves.


def train(criterion: AdaptiveLabelLoss, optimizer_of, steps: int = 30, accumulate: int = 1) -> list[float]:
    torch.manual_seed(7)
    model = nn.Linear(8, K).double()
    criterion.double()
    optimizer = optimizer_of(model, criterion)
    losses = []
    for _ in range(steps):
        x, y = torch.randn(12, 8, dtype=torch.float64), torch.randint(K, (12,))
        optimizer.zero_grad()
        with criterion.accumulation():
            for part_x, part_y in zip(x.chunk(accumulate), y.chunk(accumulate), strict=True):
                loss = criterion(model(part_x), part_y) / accumulate
                loss.backward()
                losses.append(loss.item())
        optimizer.step()
    return losses


def sgd(model: nn.Module, criterion: AdaptiveLabelLoss) -> torch.optim.Optimizer:
    return torch.optim.SGD([{"params": model.parameters()}, *criterion.parameter_groups(lr=0.5)], lr=0.3)


@pytest.mark.parametrize("reduction", ["batch", "class"])
def test_self_update_is_the_optimizers_sgd_step(reduction: str) -> None:
    by_optimizer = AdaptiveLabelLoss(K, update="optimizer", residual_reduction=reduction)
    by_itself = AdaptiveLabelLoss(K, residual_reduction=reduction, update="self", residual_lr=0.5)
    first, second = train(by_optimizer, sgd), train(by_itself, sgd)
    assert first == pytest.approx(second, rel=1e-12)
    torch.testing.assert_close(by_optimizer.residual_logits, by_itself.residual_logits, check_stride=False)
    assert by_itself.parameter_groups() == []


def test_self_update_with_mixtures_and_weights_is_the_gradient_step() -> None:
    z, t = torch.randn(N, K, dtype=torch.float64, requires_grad=True), torch.rand(N, K).double().softmax(1)
    weights = torch.rand(N).double()
    for reduction in ("batch", "class"):
        options = {"residual_reduction": reduction, "normalization": "hybrid"}
        one = AdaptiveLabelLoss(K, update="optimizer", **options).double()
        two = AdaptiveLabelLoss(K, **options, update="self", residual_lr=2.0).double()
        one(z, t, weights).backward()
        two(z, t, weights)
        torch.testing.assert_close(two.residual_logits.data, -2.0 * one.residual_logits.grad)


def test_self_update_ignores_a_gradient_scaler() -> None:
    z, y = batch()
    plain, scaled = (AdaptiveLabelLoss(K, update="self") for _ in range(2))
    plain(z, y).backward()
    (65536.0 * scaled(z, y)).backward()
    assert torch.equal(plain.residual_logits, scaled.residual_logits)
    assert plain.residual_logits.abs().sum() > 0


@pytest.mark.parametrize("form", ["index", "mixture"])
def test_the_class_mean_is_a_mean_over_each_class_summed_over_classes(form: str) -> None:
    z = torch.randn(N, K, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, 0, 0, 1, 1, 3]) if form == "index" else torch.rand(N, K).double().softmax(1)
    weights = torch.rand(N).double()
    criterion = AdaptiveLabelLoss(K, update="optimizer", residual_weight=0.5, residual_reduction="class").double()
    with torch.no_grad():
        criterion.residual_logits.normal_()
    S = criterion.residual_logits.detach().clone().requires_grad_()
    batch = R.samples(z, target, sample_weight=weights)
    expected = torch.zeros((), dtype=torch.float64)
    for k in range(K):
        counts = sum(s.sample_weight * float(s.t[k]) for s in batch)
        if counts:
            each = [s.sample_weight * s.t[k] * R.update(s.z, k, list(S[k])) for s in batch]
            expected = expected + sum(each) / counts
    network = R.reduce(batch, lambda s: (R.adaptive(S, 0.5)(s)[0], None), "mean")
    loss = criterion(z, target, weights)
    torch.testing.assert_close(loss, network + expected, rtol=1e-10, atol=1e-10)
    loss.backward()
    gradient = torch.autograd.grad(expected, S)[0]
    torch.testing.assert_close(criterion.residual_logits.grad, gradient, rtol=1e-10, atol=1e-10)


def test_the_class_mean_does_not_shrink_with_the_number_of_classes() -> None:
    norms = {}
    for k in (4, 64):
        for reduction in ("batch", "class"):
            criterion = AdaptiveLabelLoss(k, update="optimizer", residual_reduction=reduction)
            z = torch.zeros(256, k)
            z[:, 1] = 5.0  # all are taken for class 1
            criterion(z.requires_grad_(), torch.arange(256) % k).backward()
            norms[k, reduction] = criterion.residual_logits.grad[2].abs().sum().item()
    assert norms[4, "batch"] / norms[64, "batch"] > 8
    assert norms[4, "class"] / norms[64, "class"] == pytest.approx(1, abs=0.4)


def test_accumulation_equals_the_big_batch() -> None:
    for weight in ("running", "epoch", "waiting", 0.5):
        whole = AdaptiveLabelLoss(K, update="optimizer", residual_weight=weight, accuracy_momentum=0.8)
        parts = AdaptiveLabelLoss(K, update="optimizer", residual_weight=weight, accuracy_momentum=0.8)
        losses = train(whole, sgd)
        chunks = train(parts, sgd, accumulate=3)
        summed = [sum(chunks[i : i + 3]) for i in range(0, len(chunks), 3)]
        assert losses == pytest.approx(summed, rel=1e-10)
        torch.testing.assert_close(whole.residual_logits, parts.residual_logits)
        torch.testing.assert_close(whole.accuracy.running, parts.accuracy.running)


def test_sparse_gradients_touch_the_rows_of_the_batch_and_train_the_same() -> None:
    dense, sparse = AdaptiveLabelLoss(K, update="optimizer"), AdaptiveLabelLoss(K, update="optimizer", sparse=True)
    assert train(dense, sgd) == pytest.approx(train(sparse, sgd), rel=1e-12)
    sparse.zero_grad()
    z, _ = batch(dtype=torch.float64)
    sparse(z, torch.tensor([1, 1, 3, 3, 1, 1])).backward()
    assert sparse.residual_logits.grad.is_sparse
    assert sparse.residual_logits.grad.coalesce().indices().tolist() == [[1, 3]]


def test_weight_decay_stays_off_s() -> None:
    criterion = AdaptiveLabelLoss(K, update="optimizer")
    (group,) = criterion.parameter_groups(lr=0.7)
    assert group["weight_decay"] == 0.0
    assert group["lr"] == 0.7
    assert group["params"] == [criterion.residual_logits]
    assert "lr" not in criterion.parameter_groups()[0]


def test_frozen_s_stays_and_l_upd_is_left_out() -> None:
    start = torch.rand(K, K)
    for criterion in (
        AdaptiveLabelLoss(K, initial_labels=start, update="frozen", residual_weight=1.0),
        AdaptiveLabelLoss(K, update="optimizer", initial_labels=start, residual_weight=1.0).requires_grad_(False),
    ):
        before = criterion.residual_logits.clone()
        z, y = batch()
        loss = criterion(z, y)
        loss.backward()
        expected = (AF.cross_entropy(z, y) + AF.residual_loss(z, y, before)).mean()
        torch.testing.assert_close(loss, expected)
        assert torch.equal(criterion.residual_logits, before)
        assert "update" not in criterion.parts
        assert criterion.parameter_groups() == []


def test_initial_labels_are_where_s_starts() -> None:
    earlier = AdaptiveLabelLoss(K, update="optimizer")
    with torch.no_grad():
        earlier.residual_logits.normal_()
    later = AdaptiveLabelLoss(K, update="optimizer", initial_labels=earlier.residual_labels())
    torch.testing.assert_close(later.residual_labels(), earlier.residual_labels(), rtol=0, atol=2e-3)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW"])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_no_warning_when_the_optimizer_has_s(optimizer: str, set_to_none: bool) -> None:
    model, criterion = nn.Linear(3, K), AdaptiveLabelLoss(K, update="optimizer")
    step = getattr(torch.optim, optimizer)([*model.parameters(), *criterion.parameters()], lr=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(110):
            loss = criterion(model(torch.randn(8, 3)), torch.randint(K, (8,)))
            step.zero_grad(set_to_none=set_to_none)  # between forward and backward: S has last step's gradient
            loss.backward()
            step.step()
        criterion.epoch_end()


def test_one_warning_when_s_was_left_out_of_the_optimizer() -> None:
    for epochs in (True, False):
        model, criterion = nn.Linear(3, K), AdaptiveLabelLoss(K, update="optimizer")
        step = torch.optim.SGD(model.parameters(), lr=0.1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for i in range(250):
                step.zero_grad()
                criterion(model(torch.randn(8, 3)), torch.randint(K, (8,))).backward()
                step.step()
                if epochs and i % 20 == 19:
                    criterion.epoch_end()
        assert len(caught) == 1
        assert "left out of the optimizer" in str(caught[0].message)
        assert "parameter_groups()" in str(caught[0].message)
        assert caught[0].filename == __file__


def steps_without_s(criterion: AdaptiveLabelLoss, steps: int, micro_batches: int = 1, clear: bool = False) -> None:
    """Train a network whose optimizer does not know S."""
    model = nn.Linear(3, criterion.num_classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        with criterion.accumulation():
            for _ in range(micro_batches):
                criterion(model(torch.randn(8, 3)), torch.randint(criterion.num_classes, (8,))).backward()
        optimizer.step()
        if clear:
            criterion.zero_grad(set_to_none=True)


@pytest.mark.parametrize("fused", [None, False])
def test_micro_batches_of_one_step_raise_no_warning(fused: bool | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steps_without_s(AdaptiveLabelLoss(K, update="optimizer", fused=fused), 1, micro_batches=128)


@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("clear", [True, False])
def test_short_runs_and_cleared_gradients_get_the_warning(fused: bool | None, clear: bool) -> None:
    for look in ("epoch_end", "residual_labels"):
        criterion = AdaptiveLabelLoss(K, update="optimizer", fused=fused)
        steps_without_s(criterion, 3, clear=clear)
        with pytest.warns(UserWarning, match="left out of the optimizer"):
            getattr(criterion, look)()
    with pytest.warns(UserWarning, match="left out of the optimizer") as caught:
        steps_without_s(AdaptiveLabelLoss(K, update="optimizer", fused=fused), 102, clear=clear)
    assert [one.filename for one in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for quiet in (AdaptiveLabelLoss(K, update="frozen"), AdaptiveLabelLoss(K, update="self"), AdaptiveLabelLoss(2)):
            steps_without_s(quiet, 3)
            quiet.epoch_end()


# State.


def test_save_load_and_the_next_step_is_the_same() -> None:
    def steps(criterion: AdaptiveLabelLoss, seed: int, count: int) -> list[float]:
        torch.manual_seed(seed)
        losses = []
        for _ in range(count):
            loss = criterion(*batch())
            losses.append(loss.item())
        return losses

    for weight in ("running", "epoch"):
        options = {"update": "self", "residual_weight": weight, "weight": torch.rand(K), "accuracy_momentum": 0.5}
        first = AdaptiveLabelLoss(K, 0.1, **options)
        steps(first, 1, 5)
        first.epoch_end()
        steps(first, 2, 3)
        file = io.BytesIO()
        torch.save(first.state_dict(), file)
        file.seek(0)
        second = AdaptiveLabelLoss(K, 0.1, **options)
        second.load_state_dict(torch.load(file, weights_only=True))
        third = copy.deepcopy(first)
        for criterion in (first, second, third):
            criterion.epoch_end()
        expected = steps(first, 3, 4)
        assert steps(second, 3, 4) == expected
        assert steps(third, 3, 4) == expected


def test_moving_and_halving_a_model_around_it_keeps_the_criterion_in_float32() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.criterion = nn.Linear(3, K), AdaptiveLabelLoss(K, update="optimizer", weight=torch.ones(K))

    for cast in ("half", "bfloat16"):
        both = getattr(Both(), cast)()
        assert both.model.weight.dtype in (torch.half, torch.bfloat16)
        assert {t.dtype for t in both.criterion.state_dict().values()} == {torch.float32}
        z = torch.randn(5, K).to(both.model.weight.dtype).requires_grad_()
        loss = both.criterion(z, torch.randint(K, (5,)))
        loss.backward()
        assert loss.dtype == torch.float32
        assert z.grad.dtype == z.dtype
    both = Both().to("meta")
    assert both.criterion.residual_logits.device.type == "meta"
    assert both.criterion.accuracy.running.device.type == "meta"


@pytest.mark.parametrize("form", ["index", "mixture"])
def test_autocast_changes_nothing(form: str) -> None:
    z = torch.randn(N, K, requires_grad=True)
    y = torch.randint(K, (N,)) if form == "index" else torch.rand(N, K).softmax(1)
    for method in (AdaptiveLabelLoss(K, update="optimizer"), AdaptiveLabelLoss(K, update="optimizer", rank=2)):
        expected = copy.deepcopy(method)(z, y)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = method(z, y)
        torch.testing.assert_close(loss, expected, rtol=0, atol=0)


def test_parts_add_up_to_the_loss() -> None:
    criterion = AdaptiveLabelLoss(K, 0.1, update="optimizer")
    for _ in range(3):
        loss = criterion(*batch())
        parts = criterion.parts
        assert all(not part.requires_grad and part.dim() == 0 for part in parts.values())
        total = parts["hard"] + parts["weight"] * parts["residual"] + parts["update"]
        torch.testing.assert_close(total, loss.detach())


def test_repr_shows_what_differs_from_the_defaults() -> None:
    text = repr(AdaptiveLabelLoss(10, 0.1, update="optimizer", attraction=-2.0, weight=torch.ones(10), reduction="sum"))
    for expected in ("10", "label_smoothing=0.1", "attraction=-2.0", "weight=…", "reduction='sum'"):
        assert expected in text
    options = {"normalization": "literal", "update": "frozen", "residual_lr": 0.3, "accuracy_momentum": 0.9, "rank": 2}
    options |= {"residual_weight": "epoch", "residual_reduction": "class", "fused": False, "check_finite": True}
    text = repr(AdaptiveLabelLoss(10, **options))
    for name, value in options.items():
        assert f"{name}={value!r}" in text
    assert "initial_labels=…" in repr(AdaptiveLabelLoss(3, update="optimizer", initial_labels=torch.ones(3, 3)))
    assert repr(AdaptiveLabelLoss(10)).splitlines()[1] == "  10"
    assert repr(create_loss("kd", 10, temper_student=False)) == "Distillation(10, temper_student=False)"


def test_residual_labels_and_most_confused() -> None:
    criterion = AdaptiveLabelLoss(K, update="optimizer")
    with torch.no_grad():
        criterion.residual_logits[2, 2] = 5.0  # row 2, column 2 without its own: class 3
    labels = criterion.residual_labels()
    assert labels.shape == (K, K)
    assert torch.equal(labels.diag(), torch.zeros(K))
    torch.testing.assert_close(labels.sum(1), torch.ones(K))
    torch.testing.assert_close(criterion.residual_labels(rows=[2, 0]), labels[[2, 0]])
    top = criterion.most_confused(1)[0]
    assert (top.label, top.taken_for) == (2, 3)
    assert top.probability == pytest.approx(labels[2, 3].item())
    assert criterion.most_confused(1, list("abcd"))[0][:2] == ("c", "d")
    assert len(criterion.most_confused(1000)) == K * (K - 1)


# A whole training, step by step, against the reference.


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", ["running", "batch", "waiting"])
def test_a_training_follows_the_reference_step_by_step(smoothing: float, weight: str) -> None:
    torch.manual_seed(3)
    x = torch.randn(24, 5, dtype=torch.float64)
    y = (x @ torch.randn(5, 3).double()).argmax(1)
    start = 0.3 * torch.randn(5, 3, dtype=torch.float64)

    def ours() -> list[float]:
        W = start.clone().requires_grad_()
        criterion = AdaptiveLabelLoss(
            3, smoothing, update="optimizer", residual_weight=weight, accuracy_momentum=0.8
        ).double()
        optimizer = torch.optim.SGD([W, *criterion.parameters()], lr=0.5, momentum=0.9)
        losses = []
        for step in range(40):
            pick = torch.arange(8) + 8 * (step % 3)
            optimizer.zero_grad()
            loss = criterion(x[pick] @ W, y[pick])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def slow() -> list[float]:
        W, S = start.clone().requires_grad_(), torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.SGD([W, S], lr=0.5, momentum=0.9)
        seen: list[float] = []
        losses = []
        for step in range(40):
            pick = torch.arange(8) + 8 * (step % 3)
            optimizer.zero_grad()
            rows = R.samples(x[pick] @ W, y[pick])
            running = recent(seen, 0.8)
            a = {"running": 1 - running, "batch": 1 - R.accuracy(rows), "waiting": min(running, 1 - running)}[weight]
            seen.append(R.accuracy(rows))
            loss = R.reduce(rows, R.adaptive(S, a, smoothing), "mean")
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    assert ours() == pytest.approx(slow(), rel=1e-6)  # float32 keeps the running average


# Low rank.


def test_low_rank_starts_uniform_and_its_gradient_is_that_of_the_product() -> None:
    criterion = AdaptiveLabelLoss(K, update="optimizer", rank=2, residual_weight=0.5).double()
    off = 1 / (K - 1)
    torch.testing.assert_close(criterion.residual_labels(), (torch.ones(K, K) - torch.eye(K)).double() * off)
    assert not hasattr(criterion, "residual_logits")
    with torch.no_grad():
        criterion.residual_left.normal_()
    for target in (torch.randint(K, (N,)), torch.rand(N, K).double().softmax(1)):
        z = torch.randn(N, K, dtype=torch.float64, requires_grad=True)
        criterion.zero_grad()
        loss = criterion(z, target)
        loss.backward()
        left, right = (p.detach().clone().requires_grad_() for p in criterion.parameters())
        S = AF.erase(left @ right.T, torch.arange(K))
        slow = R.reduce(R.samples(z, target), R.adaptive(S, 0.5), "mean")
        exact = {"rtol": 1e-10, "atol": 1e-10}
        torch.testing.assert_close(loss, slow, **exact)
        slow.backward()
        torch.testing.assert_close(criterion.residual_left.grad, left.grad, **exact)
        torch.testing.assert_close(criterion.residual_right.grad, right.grad, **exact)


def test_low_rank_self_update_is_the_gradient_step() -> None:
    torch.manual_seed(2)
    one = AdaptiveLabelLoss(K, update="optimizer", rank=2, residual_reduction="class").double()
    with torch.no_grad():
        one.residual_left.normal_()
    two = AdaptiveLabelLoss(K, rank=2, update="self", residual_lr=0.5).double()
    two.load_state_dict(one.state_dict())
    for target in (torch.randint(K, (N,)), torch.rand(N, K).double().softmax(1)):
        z = torch.randn(N, K, dtype=torch.float64, requires_grad=True)
        two.load_state_dict(one.state_dict())
        one.zero_grad()
        one(z, target).backward()
        two(z, target)
        for a, b in zip(one.parameters(), two.parameters(), strict=True):
            torch.testing.assert_close(b.detach(), (a - 0.5 * a.grad).detach())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("alr", {"update": "optimizer"}),
        ("alr", {"update": "optimizer", "fused": False}),
        ("alr", {"update": "self"}),
        ("alr", {"update": "self", "fused": False}),
        ("ols", {}),
        ("ls++", {}),
        ("complement-entropy", {"alternate": True}),
    ],
)
def test_activation_checkpointing_neither_counts_nor_moves_twice(name: str, options: dict) -> None:
    states = []
    for checkpointed in (False, True):
        torch.manual_seed(0)
        network, criterion = nn.Linear(5, K), create_loss(name, K, **options)
        for step in range(3):
            torch.manual_seed(step)
            x, y = torch.randn(N, 5), torch.randint(K, (N,))

            def loss_of(x: torch.Tensor, y: torch.Tensor = y, c: nn.Module = criterion, n: nn.Module = network):
                return c(n(x), y)

            loss = checkpoint(loss_of, x, use_reentrant=False) if checkpointed else loss_of(x)
            loss.backward()
        states.append({**criterion.state_dict(), "gradient": network.weight.grad})
        own = next(criterion.parameters(), None)
        if own is not None and own.requires_grad:
            states[-1]["own gradient"] = own.grad
    for key, value in states[0].items():
        # S of update="self" has made its step when the loss is computed again
        close = 2e-2 if key == "gradient" and options.get("update") == "self" else 1e-6
        torch.testing.assert_close(states[1][key], value, rtol=close, atol=close, msg=lambda m, k=key: f"{k}: {m}")


def test_reentrant_checkpointing_is_refused() -> None:
    criterion, (z, y) = AdaptiveLabelLoss(K, update="optimizer"), batch()
    with pytest.raises(ValueError, match="use_reentrant=False"):
        checkpoint(lambda z: criterion(z, y), z, use_reentrant=True).backward()


@pytest.mark.parametrize("name", ["alr", "ols", "ls++"])
def test_torch_func_is_refused_while_a_state_would_change(name: str) -> None:
    criterion, (z, y) = create_loss(name, K), batch()
    with pytest.raises(ValueError, match=r"torch\.func cannot follow"):
        torch.func.grad(lambda z: criterion(z, y))(z.detach())
    criterion.eval()
    expected = torch.func.grad(lambda z: nn.functional.cross_entropy(z, y))(z.detach())
    torch.testing.assert_close(torch.func.grad(lambda z: criterion(z, y))(z.detach()), expected)


@pytest.mark.parametrize(
    ("name", "options"), [("alr", {}), ("alr", {"rank": 2}), ("alr-wait", {}), ("ols", {}), ("ls++", {})]
)
def test_a_half_precision_model_leaves_the_criterion_wide(name: str, options: dict) -> None:
    torch.set_default_dtype(torch.float16)  # as Lightning's "16-true" does while a model is built
    try:
        criterion = create_loss(name, K, **options)
    finally:
        torch.set_default_dtype(torch.float32)
    criterion.half()
    (z, y), optimizer = batch(), torch.optim.SGD([torch.zeros(1, requires_grad=True), *criterion.parameters()], lr=0.1)
    for scale in (1.0, 10_000.0):
        criterion((z.detach() * scale).half().requires_grad_(), y).backward()
        optimizer.step()
    criterion.epoch_end()
    for key, value in criterion.state_dict().items():
        assert value.dtype == torch.float32, key
        assert value.isfinite().all(), key
    assert all(parameter.grad.isfinite().all() for parameter in criterion.parameters() if parameter.requires_grad)


def test_an_earlier_state_of_online_label_smoothing_is_taken_over() -> None:
    state = create_loss("ols", 2).state_dict()
    state |= {"sums": torch.ones(2, 2), "own_sums": torch.ones(2, 2), "own_counts": torch.ones(2)}
    criterion = create_loss("ols", 2)
    criterion.load_state_dict(state)
    assert criterion.sums.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert criterion.counts.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"residual_reduction": "class"}, {"weight": torch.tensor([1.0, 2.0, 0.5, 3.0])}]
)
def test_shares_of_micro_batches_add_up_to_the_whole_step(fused: bool | None, soft: bool, options: dict) -> None:
    def gradients_of(parts: list[slice], known: bool) -> list[Tensor]:
        torch.manual_seed(0)
        x, network, criterion = (
            torch.randn(10, K),
            nn.Linear(K, K),
            AdaptiveLabelLoss(K, update="optimizer", fused=fused, **options),
        )
        target = torch.rand(10, K).softmax(1) if soft else torch.tensor([0, 1, 2, 3, -100, 1, 1, 2, -100, 3])
        with criterion.accumulation([target[part] for part in parts] if known else None):
            losses = [criterion(network(x[part]), target[part]) for part in parts]
            for loss in losses:
                loss.backward()
        return [sum(losses).detach(), network.weight.grad, criterion.residual_logits.grad]

    whole = gradients_of([slice(0, 10)], known=False)
    for parts in ([slice(0, 10)], [slice(0, 1), slice(1, 7), slice(7, 10)]):
        for expected, found in zip(whole, gradients_of(parts, known=True), strict=True):
            torch.testing.assert_close(found, expected)


def test_targets_in_half_precision_are_counted_exactly() -> None:
    target = torch.tensor([[0.3, 0.7]], dtype=torch.bfloat16).repeat(1003, 1)
    criterion, logits = create_loss("baseline", 2), torch.zeros(1003, 2, requires_grad=True)
    with criterion.accumulation([target]):
        torch.testing.assert_close(criterion(logits, target).detach(), torch.tensor(2.0).log())


@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("update", ["optimizer", "self"])
def test_a_class_that_the_targets_of_the_step_did_not_name(fused: bool | None, update: str) -> None:
    logits, target = torch.randn(4, K, requires_grad=True), torch.tensor([0, 0, 1, 2])
    criterion = AdaptiveLabelLoss(K, update=update, residual_reduction="class", fused=fused)
    with criterion.accumulation([torch.zeros(4, dtype=torch.long)]):
        loss = criterion(logits, target)
    loss.backward()
    assert loss.isfinite()
    assert criterion.residual_logits.isfinite().all()

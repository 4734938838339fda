"""What AdaptiveLabelLoss promises beyond its formula: state, modes, and how S moves."""

from __future__ import annotations

import copy
import io
import math
import warnings
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import reference as R
from adaptive_labels import AdaptiveLabelLoss, functional as AF
from adaptive_labels.losses import LowRankAdaptiveLabelLoss, create_loss, low_rank
from adaptive_labels.losses.fused import kernel as kernels

N, K = 6, 4


def batch(n: int = N, k: int = K, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    return torch.randn(n, k, dtype=dtype, requires_grad=True), torch.randint(k, (n,))


def accuracy(z: Tensor, y: Tensor) -> float:
    return (z.argmax(1) == y).float().mean().item()


# The weight on L_res.


def recent(accuracies: list[float], momentum: float = 0.99) -> float:
    """The mean of a batch's accuracies, each counting ``momentum`` times as much as the next; 0 of none."""
    counts = [momentum**age for age in reversed(range(len(accuracies)))]
    return sum(n * a for n, a in zip(counts, accuracies, strict=True)) / sum(counts) if counts else 0.0


def test_running_weight_lags_by_one_step_and_starts_at_one() -> None:
    criterion, seen = AdaptiveLabelLoss(K), []
    for _ in range(5):
        z, y = batch()
        criterion(z, y).backward()
        assert criterion.parts["weight"].item() == pytest.approx(1 - recent(seen))
        seen.append(accuracy(z, y))


def test_the_running_accuracy_is_that_of_the_batches_however_few_they_were() -> None:
    criterion = AdaptiveLabelLoss(K)
    for _ in range(3):
        criterion(10 * torch.eye(K), torch.arange(K))
    assert criterion.parts["weight"].item() == 0


def test_waiting_weight_rises_to_a_half_and_is_the_papers_from_there() -> None:
    criterion = create_loss("alr-wait", K)
    y = torch.arange(K)
    weights, expected, seen = [], [], []
    for right in [*range(K + 1), K]:
        criterion(10 * torch.eye(K)[torch.where(y < right, y, (y + 1) % K)], y)
        weights.append(criterion.parts["weight"].item())
        expected.append(min(recent(seen), 1 - recent(seen)))
        seen.append(right / K)
    assert weights == pytest.approx(expected, abs=1e-6)
    assert weights[:2] == [0, 0]
    assert max(weights) > 0.4


def test_an_empty_batch_does_not_move_the_running_accuracy() -> None:
    criterion = AdaptiveLabelLoss(2)
    criterion(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    criterion(torch.zeros(0, 2), torch.zeros(0, dtype=torch.long))
    criterion(torch.zeros(1, 2), torch.tensor([-100]))
    criterion(torch.tensor([[1.0, 0.0]]), torch.tensor([1]))
    criterion(*batch(2, 2))
    assert criterion.accuracy.running.item() == pytest.approx(recent([1, 0]))


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


def test_two_classes_have_an_empty_residual() -> None:
    z, y = batch(5, 2)
    criterion = AdaptiveLabelLoss(2, 0.1)
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
        criterion(z, y.clamp_max(K - 2)).backward()
    labels = criterion.residual_labels()
    torch.testing.assert_close(labels[K - 1], torch.tensor([1 / 3, 1 / 3, 1 / 3, 0.0]))
    assert not torch.allclose(labels[0, 1:], torch.full((3,), 1 / 3), atol=1e-3)


def test_integer_targets_of_any_width() -> None:
    z, y = batch()
    expected = AdaptiveLabelLoss(K, update="optimizer")(z, y)
    for dtype in (torch.uint8, torch.int16, torch.int32):
        torch.testing.assert_close(AdaptiveLabelLoss(K, update="optimizer")(z, y.to(dtype)), expected)


# How S moves.


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW"])
@pytest.mark.parametrize("classes", [10, 100, 1000])
def test_the_one_line_learns_what_each_class_is_taken_for(optimizer: str, classes: int) -> None:
    """``criterion = AdaptiveLabelLoss(num_classes)`` in the place of cross entropy, and nothing else."""
    twins = nn.Embedding(classes // 2, classes)  # the network cannot tell a class from its twin
    nn.init.zeros_(twins.weight)
    criterion = AdaptiveLabelLoss(num_classes=classes)
    step = getattr(torch.optim, optimizer)(twins.parameters(), lr=classes if optimizer == "SGD" else 0.1)
    for _ in range(60 if classes == 1000 else 150):
        y = torch.randperm(classes).repeat(max(1, 60 // classes))
        loss = criterion(twins(y // 2), y)
        step.zero_grad()
        loss.backward()
        step.step()
    labels = criterion.residual_labels()
    entropy = -(labels * labels.clamp_min(1e-30).log()).sum(1).mean() / math.log(classes - 1)
    assert torch.equal(labels.argmax(1), torch.arange(classes) ^ 1)
    assert entropy < (0.95 if classes < 1000 else 1)


@pytest.mark.parametrize("form", ["index", "pair", "dense"])
@pytest.mark.parametrize("rank", [None, 2])
def test_s_moves_along_the_mean_gradient_of_each_class(form: str, rank: int | None) -> None:
    torch.manual_seed(1)
    weights, y = torch.rand(N).double(), torch.tensor([0, 0, 0, 1, 1, 3])
    target = {"index": y, "pair": (y, y.flip(0), 0.3), "dense": torch.rand(N, K).double().softmax(1)}[form]
    one = LowRankAdaptiveLabelLoss(K, rank) if rank else AdaptiveLabelLoss(K)
    criterion = one.double()
    held = [value for name, value in criterion.named_buffers() if name.startswith("residual")]
    for value in held:
        value.normal_()
    before = [value.clone().requires_grad_() for value in held]
    S = AF.erase(before[0] @ before[1].T, torch.arange(K)) if rank else before[0]
    z = torch.randn(N, K, dtype=torch.float64, requires_grad=True)
    t = torch.eye(K).double()[y] * 0.3 + torch.eye(K).double()[y.flip(0)] * 0.7 if form == "pair" else target
    samples = R.samples(z.detach(), t.double() if form == "pair" else t, sample_weight=weights)
    expected = torch.zeros((), dtype=torch.float64)
    for k in range(K):
        count = sum(s.sample_weight * float(s.t[k]) for s in samples)
        if count:
            each = [s.sample_weight * s.t[k] * R.update(s.z, k, list(S[k])) for s in samples]
            expected = expected + sum(each) / count
    (3.0 * criterion(z, target, weights)).backward()  # whatever the upstream gradient is
    for value, start, gradient in zip(held, before, torch.autograd.grad(expected, before), strict=True):
        torch.testing.assert_close(value, start.detach() - 0.1 * gradient, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rank", [None, 2])
@pytest.mark.parametrize("form", ["index", "pair", "dense"])
@pytest.mark.parametrize("update", ["self", "optimizer"])
def test_accumulating_equals_the_whole_batch(rank: int | None, form: str, update: str) -> None:
    def trained(parts: int, known: bool) -> tuple[list[float], dict[str, Tensor]]:
        torch.manual_seed(7)
        model = nn.Linear(8, K).double()
        options = {"update": update, "weight": torch.tensor([1.0, 2.0, 0.5, 3.0]) if known else None}
        criterion = LowRankAdaptiveLabelLoss(K, rank, **options) if rank else AdaptiveLabelLoss(K, **options)
        optimizer = torch.optim.SGD([*model.parameters(), *criterion.double().parameters()], lr=0.3)
        losses = []
        for _ in range(10):
            x, y, lam = torch.randn(12, 8).double(), torch.randint(K, (12,)), torch.rand(12)
            soft = torch.rand(12, K).double().softmax(1)
            optimizer.zero_grad()
            pieces = [slice(12 * part // parts, 12 * (part + 1) // parts) for part in range(parts)]
            targets = [{"index": y[p], "pair": (y[p], y.flip(0)[p], lam[p]), "dense": soft[p]}[form] for p in pieces]
            with criterion.accumulation(targets if known else None):
                found = []
                for piece, target in zip(pieces, targets, strict=True):
                    loss = criterion(model(x[piece]), target) / (1 if known else parts)
                    loss.backward()
                    found.append(loss.item())
            optimizer.step()
            losses.append(sum(found))
        criterion.accuracy.update_average()
        return losses, {**criterion.state_dict(), **model.state_dict()}

    for known in (False, True):
        if known and form == "pair":
            continue  # labels alone can be counted ahead
        whole, state = trained(1, False) if not known else trained(1, True)
        losses, found = trained(3, known)
        assert losses == pytest.approx(whole, rel=1e-10)
        for name, value in state.items():
            torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("form", ["index", "pair", "dense"])
@pytest.mark.parametrize("rank", [None, 2])
@pytest.mark.parametrize("kernel", [True, False])
def test_one_bad_batch_changes_nothing(bad: float, form: str, rank: int | None, kernel: bool) -> None:
    criterion = LowRankAdaptiveLabelLoss(K, rank) if rank else AdaptiveLabelLoss(K)
    y, soft = torch.randint(K, (N,)), torch.rand(N, K).softmax(1)

    def call(z: Tensor, rows: Tensor) -> Tensor:
        target = {"index": y[rows], "pair": (y[rows], y.flip(0)[rows], 0.3), "dense": soft[rows]}[form]
        with nullcontext() if kernel else kernels.switched_off():
            loss = criterion(z.requires_grad_(), target)
            loss.backward()
        return loss

    every, good = torch.arange(N), torch.tensor([0, 1, 3, 5])
    call(torch.randn(N, K), every)
    criterion.accuracy.update_average()
    before = copy.deepcopy(criterion.state_dict())
    z = torch.randn(N, K)
    z[:, 1] = bad
    assert not call(z, every).isfinite()
    for name, value in criterion.state_dict().items():
        assert torch.equal(value, before[name]), name
    z = torch.randn(N, K)
    z[[2, 4], 0] = bad
    call(z.clone(), every)  # a sample that is finite counts
    criterion.accuracy.update_average()
    found = copy.deepcopy(criterion.state_dict())
    criterion.load_state_dict(before)
    call(z[good], good)
    criterion.accuracy.update_average()
    for name, value in criterion.state_dict().items():
        torch.testing.assert_close(value, found[name])


def test_what_is_not_trained_on_changes_nothing() -> None:
    criterion, (z, y) = AdaptiveLabelLoss(K), batch()
    before = copy.deepcopy(criterion.state_dict())
    criterion(z, y)  # no backward pass
    with torch.no_grad():
        criterion(z, y)
    criterion.eval()(z, y).backward()
    for name, value in criterion.state_dict().items():
        assert torch.equal(value, before[name]), name
    criterion.train()(z, y).backward()
    assert not torch.equal(criterion.residual_logits, before["residual_logits"])
    alone = AdaptiveLabelLoss(K)
    alone(z.detach(), y)  # no backward pass is to come
    assert torch.equal(alone.residual_logits, criterion.residual_logits)


def test_the_value_is_what_the_network_is_trained_on() -> None:
    z, y = batch()
    for update in ("self", "optimizer", "frozen"):
        criterion = AdaptiveLabelLoss(K, 0.1, update=update)
        for _ in range(3):
            loss = criterion(z, y)
            loss.backward()
            parts = criterion.parts
            assert all(not part.requires_grad and part.dim() == 0 for part in parts.values())
            total = parts["hard"] + parts["weight"] * parts["residual"]
            if update == "optimizer":  # whose gradient moves S
                total = total + parts["update"]
            torch.testing.assert_close(total, loss.detach())
            assert ("update" in parts) == (update != "frozen")


def test_in_a_model_s_is_a_buffer_or_a_parameter() -> None:
    for rank, names in ((None, ["residual_logits"]), (2, ["residual_left", "residual_right"])):
        for update in ("self", "optimizer", "frozen"):
            options = {"update": update}
            criterion = LowRankAdaptiveLabelLoss(K, rank, **options) if rank else AdaptiveLabelLoss(K, **options)
            held = criterion.named_parameters() if update == "optimizer" else criterion.named_buffers()
            assert set(names) <= {name for name, _ in held}
            assert set(names) <= set(criterion.state_dict())
            assert bool(list(criterion.parameters())) == bool(criterion.parameter_groups()) == (update == "optimizer")


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


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("rank", [None, 2])
def test_a_warning_when_s_was_left_out_of_the_optimizer(compiled: bool, rank: int | None) -> None:
    for given in (False, True):
        options = {"update": "optimizer"}
        criterion = LowRankAdaptiveLabelLoss(K, rank, **options) if rank else AdaptiveLabelLoss(K, **options)
        model = nn.Linear(3, K)
        call = torch.compile(criterion, backend="eager") if compiled else criterion
        step = torch.optim.SGD([*model.parameters(), *(criterion.parameters() if given else ())], lr=0.1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(110):
                step.zero_grad()
                call(model(torch.randn(8, 3)), torch.randint(K, (8,))).backward()
                step.step()
        messages = [str(one.message) for one in caught if "left out of the optimizer" in str(one.message)]
        assert len(messages) == (0 if given else 2 if rank and not compiled else 1 + bool(rank))
        if messages:
            assert "parameter_groups()" in messages[0]


def test_micro_batches_of_one_step_raise_no_warning() -> None:
    model, criterion = nn.Linear(3, K), AdaptiveLabelLoss(K, update="optimizer")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with criterion.accumulation():
            for _ in range(128):
                criterion(model(torch.randn(8, 3)), torch.randint(K, (8,))).backward()


# State.


def test_save_load_and_the_next_step_is_the_same() -> None:
    def steps(criterion: AdaptiveLabelLoss, seed: int, count: int) -> list[float]:
        torch.manual_seed(seed)
        losses = []
        for _ in range(count):
            loss = criterion(*batch())
            loss.backward()
            losses.append(loss.item())
        return losses

    for update in ("self", "optimizer"):
        options = {"update": update, "weight": torch.rand(K)}
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
    for method in (AdaptiveLabelLoss(K, update="optimizer"), LowRankAdaptiveLabelLoss(K, 2)):
        expected = copy.deepcopy(method)(z, y)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = method(z, y)
        torch.testing.assert_close(loss, expected, rtol=0, atol=0)


def test_repr_shows_what_differs_from_the_defaults() -> None:
    text = repr(AdaptiveLabelLoss(10, 0.1, update="optimizer", attraction=-2.0, weight=torch.ones(10), reduction="sum"))
    for expected in ("10", "label_smoothing=0.1", "attraction=-2.0", "weight=…", "reduction='sum'"):
        assert expected in text
    options = {"update": "frozen", "residual_lr": 0.3, "residual_weight": "waiting"}
    for criterion in (AdaptiveLabelLoss(10, **options), LowRankAdaptiveLabelLoss(10, 3, **options)):
        for name, value in options.items():
            assert f"{name}={value!r}" in repr(criterion)
    assert "rank=3" in repr(criterion)
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
@pytest.mark.parametrize("weight", ["running", "waiting"])
def test_a_training_follows_the_reference_step_by_step(smoothing: float, weight: str) -> None:
    torch.manual_seed(3)
    x = torch.randn(24, 5, dtype=torch.float64)
    y = (x @ torch.randn(5, 3).double()).argmax(1)
    start = 0.3 * torch.randn(5, 3, dtype=torch.float64)

    def ours() -> list[float]:
        W = start.clone().requires_grad_()
        criterion = AdaptiveLabelLoss(3, smoothing, update="optimizer", residual_weight=weight).double()
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
            running = recent(seen)
            a = {"running": 1 - running, "waiting": min(running, 1 - running)}[weight]
            seen.append(R.accuracy(rows))
            loss = R.reduce(rows, R.adaptive(S, a, smoothing), "mean")
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    assert ours() == pytest.approx(slow(), rel=1e-6)  # float32 keeps the running average


# Low rank.


def test_low_rank_starts_uniform_and_its_gradient_is_that_of_the_product() -> None:
    criterion = LowRankAdaptiveLabelLoss(K, 2, update="optimizer", residual_weight=0.5).double()
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


@pytest.mark.parametrize("form", ["index", "pair", "dense"])
def test_low_rank_memory_is_that_of_its_factors_and_of_the_logits(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """K = 5,000 and 8 samples: no tensor is larger than a piece of S, in which class probabilities read it."""
    from torch.utils._python_dispatch import TorchDispatchMode

    monkeypatch.setattr(low_rank, "BLOCK", 2**17)

    class Largest(TorchDispatchMode):
        entries = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            sizes = [one.numel() for one in (made if isinstance(made, tuple) else (made,)) if isinstance(one, Tensor)]
            self.entries = max(self.entries, *sizes, 0)
            return made

    classes, samples = 5000, 8
    criterion = LowRankAdaptiveLabelLoss(classes, 4)
    assert sum(tensor.numel() for tensor in criterion.state_dict().values()) < 2 * 4 * classes + 10
    y = torch.randint(classes, (samples,))
    target = {"index": y, "pair": (y, y.flip(0), 0.4), "dense": torch.rand(samples, classes).softmax(1)}[form]
    z = torch.randn(samples, classes, requires_grad=True)
    with Largest() as largest:
        criterion(z, target).backward()
    assert largest.entries <= max(2**17, 2 * samples * classes)
    changed = criterion.residual_left.abs().sum(1) > 0
    assert torch.equal(changed.nonzero().squeeze(1), torch.unique(y)) or form == "dense"


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("alr", {}),
        ("alr", {"update": "optimizer"}),
        ("low-rank", {}),
        ("ols", {}),
        ("ls++", {}),
        ("complement-entropy", {"alternate": True}),
    ],
)
def test_activation_checkpointing_neither_counts_nor_moves_twice(name: str, options: dict, reentrant: bool) -> None:
    states = []
    for checkpointed in (False, True):
        torch.manual_seed(0)
        network = nn.Linear(5, K)
        criterion = LowRankAdaptiveLabelLoss(K, 2) if name == "low-rank" else create_loss(name, K, **options)
        for step in range(3):
            torch.manual_seed(step)
            x, y = torch.randn(N, 5, requires_grad=True), torch.randint(K, (N,))

            def loss_of(x: torch.Tensor, y: torch.Tensor = y, c: nn.Module = criterion, n: nn.Module = network):
                return c(n(x), y)

            loss = checkpoint(loss_of, x, use_reentrant=reentrant) if checkpointed else loss_of(x)
            (2 * loss).backward()
        states.append({**criterion.state_dict(), "gradient": network.weight.grad})
        states[-1] |= {f"{key}.grad": parameter.grad for key, parameter in criterion.named_parameters()}
    for key, value in states[0].items():
        torch.testing.assert_close(states[1][key], value, msg=lambda m, k=key: f"{k}: {m}")


def test_torch_func_is_refused_while_a_state_would_change() -> None:
    criterion, (z, y) = AdaptiveLabelLoss(K), batch()
    with pytest.raises(RuntimeError, match="functorch"):
        torch.func.grad(lambda z: criterion(z, y))(z.detach())
    criterion.eval()
    expected = torch.func.grad(lambda z: nn.functional.cross_entropy(z, y))(z.detach())
    torch.testing.assert_close(torch.func.grad(lambda z: criterion(z, y))(z.detach()), expected)


@pytest.mark.parametrize(
    ("name", "options"), [("alr", {}), ("alr", {"update": "optimizer"}), ("alr-wait", {}), ("ols", {}), ("ls++", {})]
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


def test_targets_in_half_precision_are_counted_exactly() -> None:
    target = torch.tensor([[0.3, 0.7]], dtype=torch.bfloat16).repeat(1003, 1)
    criterion, logits = create_loss("baseline", 2), torch.zeros(1003, 2, requires_grad=True)
    with criterion.accumulation([target]):
        torch.testing.assert_close(criterion(logits, target).detach(), torch.tensor(2.0).log())


def test_micro_batches_without_a_state_share_the_mean_as_well() -> None:
    z, y = batch()
    criterion, pieces = create_loss("slr", K), (slice(2), slice(2, None))
    with criterion.accumulation([y[piece] for piece in pieces]):
        parts = [criterion(z[piece], y[piece]) for piece in pieces]
    torch.testing.assert_close(sum(parts), criterion(z, y))


def test_an_accumulated_step_of_no_batch_moves_nothing() -> None:
    criterion = AdaptiveLabelLoss(K)
    with criterion.accumulation():
        pass
    assert not criterion.residual_logits.any()


def test_a_low_rank_read_in_blocks_is_moved_as_one_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    target = torch.rand(3, 6).softmax(1)
    z = torch.randn(3, 6).scatter(1, torch.tensor([[0], [3], [5]]), 4.0)  # predicted: the first and last of a block
    found = []
    for entries in (36, 1):
        monkeypatch.setattr(low_rank, "BLOCK", entries)
        assert len(low_rank._blocks(z, target)) == (1 if entries > 1 else 2)
        torch.manual_seed(0)
        criterion = LowRankAdaptiveLabelLoss(6, 2)
        for _ in range(2):  # U is 0 at first
            criterion(z.clone().requires_grad_(), target).backward()
        found.append((criterion.residual_left, criterion.residual_right))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training_parts import CLASSES, Bag, config_with

from adaptive_labels import AdaptiveLabelLoss
from adaptive_labels.lab.objectives import Supervised
from adaptive_labels.lab.training.optimizers import clip_gradients, make_optimizers, sparse_parameters
from adaptive_labels.lab.training.session import Session

TOKENS, OFFSETS = torch.tensor([0, 1, 1, 2, 7, 9]), torch.tensor([0, 2, 4])
TARGET = torch.tensor([0, 1, 2])


def bags(sparse: bool) -> Supervised:
    torch.manual_seed(0)
    return Supervised(Bag(sparse=sparse), nn.CrossEntropyLoss())


def step(optimizers: list[torch.optim.Optimizer], keep_gradients: bool = False) -> None:
    for optimizer in optimizers:
        optimizer.step()
        if not keep_gradients:
            optimizer.zero_grad()


def backward(objective: Supervised) -> None:
    objective((TOKENS, OFFSETS), TARGET)[0].backward()


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("sgd", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)),
        ("adam", lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.01)),
        ("adamw", lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.01)),
    ],
)
def test_dense_optimizers_are_torchs(name: str, reference: object) -> None:
    ours, theirs = bags(False), bags(False)
    optimizers = make_optimizers(ours, config_with(optimizer=name, weight_decay=0.01))
    expected = [reference(theirs.parameters())]  # type: ignore[operator]
    for _ in range(4):
        for objective, both in ((ours, optimizers), (theirs, expected)):
            backward(objective)
            step(both)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other)


def test_zero_momentum_is_plain_sgd() -> None:
    objective = bags(False)
    optimizers = make_optimizers(objective, config_with(momentum=0.0, weight_decay=0.0))
    before = copy.deepcopy(list(objective.parameters()))
    backward(objective)
    step(optimizers, keep_gradients=True)
    for old, new in zip(before, objective.parameters(), strict=True):
        assert new.grad is not None
        torch.testing.assert_close(new, old - 0.1 * new.grad)


def test_sparse_parameters_are_found_by_their_modules() -> None:
    objective = bags(True)
    assert sparse_parameters(objective) == {objective.model.embedding.weight}  # type: ignore[union-attr]
    assert sparse_parameters(bags(False)) == set()
    assert sparse_parameters(nn.Embedding(3, 2, sparse=True)) != set()


@pytest.mark.parametrize(("name", "kinds"), [("adam", ["Adam", "SparseAdam"]), ("sgd", ["SGD", "SGD"])])
def test_sparse_gradients_stay_sparse_and_move_only_their_rows(name: str, kinds: list[str]) -> None:
    objective = bags(True)
    optimizers = make_optimizers(objective, config_with(optimizer=name, weight_decay=0.1))
    assert [type(optimizer).__name__ for optimizer in optimizers] == kinds
    before = copy.deepcopy(objective.state_dict())
    backward(objective)
    weight = objective.model.embedding.weight  # type: ignore[union-attr]
    assert weight.grad.is_sparse  # type: ignore[union-attr]
    step(optimizers)
    moved = (before["model.embedding.weight"] != weight).any(dim=1).nonzero().flatten().tolist()  # type: ignore[operator]
    assert moved == [0, 1, 2, 7, 9]
    assert not torch.equal(before["model.head.weight"], objective.state_dict()["model.head.weight"])


def test_first_sparse_adam_step_equals_dense_adam_on_the_touched_rows() -> None:
    states = []
    for sparse in (True, False):
        objective = bags(sparse)
        optimizers = make_optimizers(objective, config_with(optimizer="adam", weight_decay=0.0))
        backward(objective)
        step(optimizers)
        states.append(objective.state_dict())
    for name in states[0]:
        # The two place their epsilon differently, which shows where a gradient is near 1e-5.
        torch.testing.assert_close(states[0][name], states[1][name], atol=3e-4, rtol=0)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_a_checkpoint_goes_on_where_it_was(tmp_path: Path, name: str, sparse: bool) -> None:
    config = config_with(optimizer=name)
    first = Session(bags(sparse), config)
    backward(first.objective)
    first.step()
    first.save(tmp_path, seconds=1.0, recorded={})
    second = Session(bags(sparse), config)
    second.restore(tmp_path, print)
    for session in (first, second):
        backward(session.objective)
        session.step()
    for mine, other in zip(first.objective.parameters(), second.objective.parameters(), strict=True):
        assert torch.equal(mine, other)


def rates(session: Session) -> list[float]:
    return [group["lr"] for optimizer in session.optimizers for group in optimizer.param_groups]


def test_rate_factor_acts_on_every_group_from_its_base() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(CLASSES))

    objective = Supervised(Bag(sparse=True), Scaled())
    session = Session(objective, config_with(optimizer="adam", lr=0.5, residual_lr=10.0))
    for factor in (0.5, 0.1):
        session.set_rate_factor(factor)
    assert sorted(rates(session)) == pytest.approx([0.05, 0.05, 0.5])


@pytest.mark.parametrize("max_norm", [0.01, 1e6])
def test_clipping_sparse_gradients_equals_clipping_dense_ones(max_norm: float) -> None:
    gradients = []
    for sparse in (True, False):
        objective = bags(sparse)
        backward(objective)
        if sparse:
            clip_gradients(objective.parameters(), max_norm)
        else:
            torch.nn.utils.clip_grad_norm_(objective.parameters(), max_norm)
        gradients.append([p.grad.to_dense() for p in objective.parameters() if p.grad is not None])
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other)


def test_parameters_without_a_gradient_are_left_out_of_clipping() -> None:
    layer = nn.Linear(2, 2)
    F.mse_loss(layer.weight, torch.ones(2, 2)).backward()
    clip_gradients(layer.parameters(), 1e-3)
    assert layer.weight.grad is not None
    assert layer.weight.grad.norm() == pytest.approx(1e-3, rel=1e-2)
    assert layer.bias.grad is None


def test_s_has_a_weight_decay_and_a_schedule_of_its_own() -> None:
    objective = Supervised(nn.Linear(4, 3), AdaptiveLabelLoss(3, update="optimizer"))
    config = config_with(
        weight_decay=0.01, residual_lr=10.0, residual_weight_decay=0.3, residual_schedule="constant", lr=0.1
    )
    session = Session(objective, config)
    network, criterion = session.optimizers[0].param_groups
    assert (network["weight_decay"], criterion["weight_decay"]) == (0.01, 0.3)
    session.set_rate_factor(0.25)
    assert rates(session) == [0.025, 1.0]
    following = Session(objective, config_with(residual_lr=10.0, lr=0.1))
    following.set_rate_factor(0.25)
    assert rates(following) == [0.025, 0.25]
    assert following.optimizers[0].param_groups[1]["weight_decay"] == 0.0


def test_weight_decay_on_s_draws_it_to_uniform() -> None:
    objective = Supervised(
        nn.Linear(4, 3), AdaptiveLabelLoss(3, update="optimizer", initial_labels=torch.eye(3)[[1, 2, 0]] + 0.1)
    )
    config = config_with(optimizer="sgd", momentum=0.0, weight_decay=0.0, residual_weight_decay=0.5, lr=0.1)
    optimizers = make_optimizers(objective, config)
    before = objective.criterion.residual_logits.detach().clone()  # type: ignore[operator, union-attr]
    loss, _ = objective(torch.randn(2, 4), torch.tensor([0, 0]))
    loss.backward()
    step(optimizers)
    after = objective.criterion.residual_logits.detach()  # type: ignore[operator, union-attr]
    torch.testing.assert_close(after[1:], before[1:] * (1 - 0.1 * 0.5))  # rows that the batch did not touch

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adaptive_labels.lab.objectives import Supervised
from adaptive_labels.losses import LabelSmoothingPlusPlus


class Pull(nn.Module):
    """Cross entropy, plus a learned part while active."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.ones(3))
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.parts: dict[str, Tensor] = {}
        self.calls: list[str] = []

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        hard = F.cross_entropy(logits, target)
        if not (self.training and torch.is_grad_enabled()):
            return hard
        self.parts = {"hard": hard, "one": torch.ones(1), "samples": torch.ones(len(target))}
        return hard + self.scores.sum()

    def parameter_groups(self, lr: float | None = None) -> list[dict[str, Any]]:
        return [{"params": [self.scores], "lr": lr}, {"params": [self.frozen]}]

    def epoch_end(self) -> None:
        self.calls.append("epoch")

    @contextmanager
    def accumulation(self) -> Iterator[None]:
        self.calls.append("in")
        yield
        self.calls.append("out")

    def residual_labels(self) -> Tensor:
        return self.scores.softmax(0)


INPUTS, TARGET = torch.ones(4, 5), torch.tensor([0, 1, 2, 0])


def test_forward_gives_loss_and_logits() -> None:
    model = nn.Linear(5, 3)
    objective = Supervised(model, Pull())
    loss, logits = objective(INPUTS, TARGET)
    torch.testing.assert_close(logits, model(INPUTS))
    torch.testing.assert_close(loss, F.cross_entropy(model(INPUTS), TARGET) + 3)


@pytest.mark.parametrize("mode", ["eval", "no_grad"])
def test_evaluation_is_plain_cross_entropy(mode: str) -> None:
    objective = Supervised(nn.Linear(5, 3), Pull()).train(mode != "eval")
    with torch.set_grad_enabled(mode != "no_grad"):
        loss, logits = objective(INPUTS, TARGET)
    torch.testing.assert_close(loss, F.cross_entropy(logits, TARGET))


def test_groups_hold_every_trained_parameter_once() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    model[0].bias.requires_grad_(False)
    criterion = Pull()
    groups = Supervised(model, criterion).parameter_groups(lr=0.5, weight_decay=0.1, residual_lr=4.0)
    assert [(group["lr"], group["weight_decay"]) for group in groups] == [(0.5, 0.1), (2.0, 0.0)]
    assert {id(parameter) for parameter in groups[0]["params"]} == {
        id(parameter) for parameter in model.parameters() if parameter is not model[0].bias
    }
    assert len(groups[1]["params"]) == 1
    assert groups[1]["params"][0] is criterion.scores


def test_biases_and_norms_can_be_left_undecayed() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))
    groups = Supervised(model, nn.CrossEntropyLoss()).parameter_groups(lr=1.0, weight_decay=0.1, decay_biases=False)
    assert [len(group["params"]) for group in groups] == [1, 3]
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert groups[0]["params"][0] is model[0].weight


def test_the_criterion_is_told_and_asked() -> None:
    criterion = Pull()
    objective = Supervised(nn.Linear(5, 3), criterion)
    with objective.accumulation():
        objective(INPUTS, TARGET)
    objective.epoch_end()
    assert criterion.calls == ["in", "out", "epoch"]
    assert set(objective.parts) == {"hard", "one"}
    assert all(part.shape == () and not part.requires_grad for part in objective.parts.values())
    labels = objective.residual_labels()
    assert labels is not None
    assert not labels.requires_grad


def test_a_torch_loss_is_a_criterion() -> None:
    objective = Supervised(nn.Linear(5, 3), nn.CrossEntropyLoss())
    with objective.accumulation():
        objective(INPUTS, TARGET)
    objective.epoch_end()
    assert objective.parts == {}
    assert objective.residual_labels() is None
    assert len(objective.parameter_groups(lr=1.0, weight_decay=0.0)) == 1


def test_parameters_of_a_criterion_without_groups_are_trained_undecayed() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

    groups = Supervised(nn.Linear(5, 3), Scaled()).parameter_groups(lr=1.0, weight_decay=0.3, residual_lr=0.5)
    assert (groups[1]["lr"], groups[1]["weight_decay"]) == (0.5, 0.0)


def test_biases_may_have_a_rate_of_their_own_and_decay_as_the_weights_do() -> None:
    model = nn.Linear(3, 2)
    objective = Supervised(model, nn.CrossEntropyLoss())
    weights, biases = objective.parameter_groups(lr=0.5, weight_decay=0.1, bias_lr=8.0)
    assert weights["params"][0] is model.weight
    assert biases["params"][0] is model.bias
    assert (weights["lr"], biases["lr"]) == (0.5, 4.0)
    assert weights["lr"] * weights["weight_decay"] == pytest.approx(biases["lr"] * biases["weight_decay"])
    undecayed = objective.parameter_groups(lr=0.5, weight_decay=0.1, bias_lr=8.0, decay_biases=False)[1]
    assert (undecayed["lr"], undecayed["weight_decay"]) == (4.0, 0.0)


def test_the_table_of_label_smoothing_plus_plus_is_trained_like_the_network() -> None:
    """As in the authors' code: the optimizer's own rate and weight decay, whatever residual labels get."""
    criterion = LabelSmoothingPlusPlus(3)
    groups = Supervised(nn.Linear(5, 3), criterion).parameter_groups(
        lr=0.5, weight_decay=0.1, residual_lr=100.0, decay_biases=False
    )
    table = next(g for g in groups if any(parameter is criterion.residual_logits for parameter in g["params"]))
    assert (table["lr"], table["weight_decay"]) == (0.5, 0.1)
    assert sum(len(group["params"]) for group in groups) == 3
    assert not any(group.get("criterion") for group in groups)

"""The layout of image networks changes how fast they are, not what they are."""

from __future__ import annotations

import dataclasses

import torch
from training_parts import config_with, objective_of

from adaptive_labels.lab.models import create_model
from adaptive_labels.lab.objectives import Supervised
from adaptive_labels.lab.training.session import Session
from adaptive_labels.losses import create_loss


def test_channels_last_changes_the_layout_and_not_the_logits() -> None:
    images = torch.randn(4, 3, 32, 32)
    logits = []
    for channels_last in (False, True):
        torch.manual_seed(0)
        objective = Supervised(create_model("preact-resnet18-w4", 5), create_loss("alr", 5))
        Session(objective, dataclasses.replace(config_with(), channels_last=channels_last))
        weight = objective.model.stem.weight  # type: ignore[union-attr]
        assert weight.is_contiguous(memory_format=torch.channels_last) == channels_last  # type: ignore[operator]
        logits.append(objective.model(images))
    torch.testing.assert_close(*logits, rtol=1e-3, atol=1e-4)


def test_weights_are_finite_unless_one_of_them_is_not() -> None:
    objective = objective_of()
    session = Session(objective, config_with())
    assert session.weights_are_finite()
    weight = next(objective.model.parameters())
    with torch.no_grad():
        weight.fill_(3e38)  # finite, but not its sum
        assert session.weights_are_finite()
        for bad in (float("nan"), float("inf"), -float("inf")):
            weight.fill_(0.0)
            weight.view(-1)[1] = bad
            assert not session.weights_are_finite()
        weight.view(-1)[0] = -bad  # opposite infinities, whose sum is NaN
        assert not session.weights_are_finite()

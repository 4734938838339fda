"""The classifier of examples/skorch_classifier.py: probabilities, micro-batches, saving and resuming."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from adapters.parts import K, assert_equal, load_example, state_of
from adaptive_labels import AdaptiveLabelLoss
from adaptive_labels.losses import find_method

pytest.importorskip("skorch")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the trainer's own
CRITERIA: dict[str, dict[str, Any]] = {
    "alr": {"criterion": AdaptiveLabelLoss},
    "weighted": {"criterion": AdaptiveLabelLoss, "criterion__weight": torch.tensor([1.0, 2.0, 0.5, 3.0])},
    "optimizer": {"criterion": AdaptiveLabelLoss, "criterion__update": "optimizer"},
    "ols": {"criterion": find_method("ols").criterion},
}


@pytest.fixture(scope="module")
def script() -> Any:
    return load_example("skorch_classifier")


def net_of(script: Any, name: str = "alr", **options: Any) -> Any:
    torch.manual_seed(0)
    return script.make_net(script.AccumulatingClassifier, **({"micro_batches": 4} | CRITERIA[name] | options))


def trained(net: Any) -> dict[str, Tensor]:
    return state_of(net.module_, net.criterion_)


@pytest.mark.parametrize("name", CRITERIA)
def test_a_resumed_run_ends_with_the_same_bits(script: Any, name: str, tmp_path: Path) -> None:
    data = script.make_points(256, seed=1)
    options = {"iterator_train__shuffle": False}
    whole = trained(net_of(script, name, max_epochs=4, **options).fit(*data))
    half = net_of(script, name, max_epochs=2, **options).fit(*data)
    half.save_params(**script.files(tmp_path))
    again = net_of(script, name, max_epochs=2, **options).initialize()
    again.load_params(**script.files(tmp_path))
    assert_equal(trained(again.partial_fit(*data)), whole)
    assert_equal(trained(pickle.loads(pickle.dumps(half)).partial_fit(*data)), whole)
    assert len(again.history) == 4


@pytest.mark.parametrize("name", CRITERIA)
def test_micro_batches_equal_the_whole_batch(script: Any, name: str) -> None:
    data = script.make_points(250, seed=1)  # the last batch has other sizes
    options = {"optimizer": torch.optim.SGD, "lr": 0.1, "max_epochs": 3}
    states = [trained(net_of(script, name, micro_batches=count, **options).fit(*data)) for count in (1, 4)]
    assert_equal(states[1], states[0], 1e-4)


def test_probabilities_and_the_validation_loss(script: Any) -> None:
    points, labels = script.make_points(256, seed=1)
    net = net_of(script, max_epochs=1).fit(points, labels)
    inputs, targets = (np.stack(part) for part in zip(*net.get_split_datasets(points, labels)[1], strict=True))
    with torch.no_grad():
        logits = net.module_(torch.from_numpy(inputs))
    np.testing.assert_allclose(net.predict_proba(inputs), logits.softmax(1), atol=1e-6)
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor(targets))
    assert net.history[-1, "valid_loss"] == pytest.approx(expected.item(), abs=1e-5)
    assert net.criterion_.num_classes == K


def test_the_example(script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.main(tmp_path)
    printed = capsys.readouterr().out
    assert "accuracy 9" in printed
    assert "after 10 epochs" in printed
    assert "cloud 0 is taken for cloud 1" in printed

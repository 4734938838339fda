"""The classifier of examples/skorch_classifier.py: probabilities, no decay of S, epochs, saving and resuming."""

from __future__ import annotations

import importlib.util
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from adapters.parts import assert_equal, run_script
from adaptive_labels import AdaptiveLabelLoss
from adaptive_labels.losses.online_label_smoothing import OnlineLabelSmoothing

pytest.importorskip("skorch")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # the trainer's own
]

SCRIPT = Path(__file__).parent.parent.parent / "examples" / "skorch_classifier.py"


@pytest.fixture(scope="module")
def script() -> Any:
    """The example as a module that pickle can find."""
    found = importlib.util.spec_from_file_location("skorch_classifier", SCRIPT)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["skorch_classifier"] = module
    found.loader.exec_module(module)
    yield module
    del sys.modules["skorch_classifier"]


@pytest.fixture
def make_net(script: Any) -> Any:
    def make(**options: Any) -> Any:
        torch.manual_seed(0)
        return script.make_net(script.AccumulatingClassifier, **({"micro_batches": 4} | options))

    return make


def state_of(net: Any) -> dict[str, Tensor]:
    parts = {"module": net.module_, "criterion": net.criterion_}
    return {f"{owner}.{name}": value.clone() for owner, m in parts.items() for name, value in m.state_dict().items()}


CRITERIA = {
    "alr": {},
    "epoch": {"criterion__residual_weight": "epoch"},
    "weighted": {"criterion__weight": torch.tensor([1.0, 2.0, 0.5, 3.0])},
    "ols": {"criterion": OnlineLabelSmoothing},
}


def test_probabilities_are_probabilities(script: Any, make_net: Any) -> None:
    points, labels = script.make_points(256, seed=1)
    net = make_net(max_epochs=3).fit(points, labels)
    found = net.predict_proba(points)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(1), 1.0, atol=1e-5)
    with torch.no_grad():
        expected = net.module_(torch.from_numpy(points)).softmax(1).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert (net.predict(points) == found.argmax(1)).all()


def test_s_is_trained_and_not_decayed(script: Any, make_net: Any) -> None:
    net = make_net(max_epochs=2).fit(*script.make_points(256, seed=1))
    groups = net.optimizer_.param_groups
    decays = [g["weight_decay"] for g in groups if any(p is net.criterion_.residual_logits for p in g["params"])]
    assert decays == [0.0]
    assert sorted(group["weight_decay"] for group in groups) == [0.0, 0.01]
    assert net.criterion_.residual_logits.abs().max() > 1e-2


@pytest.mark.parametrize("name", CRITERIA)
def test_a_resumed_run_ends_with_the_same_bits(script: Any, make_net: Any, name: str, tmp_path: Path) -> None:
    points, labels = script.make_points(256, seed=1)
    options = CRITERIA[name] | {"iterator_train__shuffle": False}
    whole = make_net(**options, max_epochs=4).fit(points, labels)
    half = make_net(**options, max_epochs=2).fit(points, labels)
    half.save_params(**script.files(tmp_path))
    again = make_net(**options, max_epochs=2).initialize()
    again.load_params(**script.files(tmp_path))
    again.partial_fit(points, labels)
    assert_equal(state_of(again), state_of(whole))
    pickled = pickle.loads(pickle.dumps(half))
    pickled.partial_fit(points, labels)
    assert_equal(state_of(pickled), state_of(whole))
    assert len(again.history) == 4


@pytest.mark.parametrize("name", CRITERIA)
def test_micro_batches_equal_the_whole_batch(script: Any, make_net: Any, name: str) -> None:
    data = script.make_points(250, seed=1)  # the last batch has other sizes
    options = CRITERIA[name] | {"optimizer": torch.optim.SGD, "lr": 0.1, "max_epochs": 3}
    states = [state_of(make_net(**options, micro_batches=count).fit(*data)) for count in (1, 4)]
    assert_equal(states[1], states[0], 1e-4)


def test_epochs_end_and_steps_are_folded_once(script: Any, make_net: Any) -> None:
    net = make_net(criterion__residual_weight="epoch", max_epochs=2, train_split=None).initialize()
    accuracy, folds = net.criterion_.accuracy, []
    fold = accuracy.fold
    accuracy.fold = lambda: folds.append(float(accuracy.pending_counts[1])) or fold()
    net.partial_fit(*script.make_points(256, seed=1))
    assert [count for count in folds if count] == [64.0] * 8
    assert accuracy.last_epoch > 0


def test_the_validation_loss_is_plain_cross_entropy(script: Any, make_net: Any) -> None:
    points, labels = script.make_points(256, seed=1)
    net = make_net(max_epochs=1).fit(points, labels)
    assert isinstance(net.criterion_, AdaptiveLabelLoss)
    _, held_out = net.get_split_datasets(points, labels)
    inputs, targets = zip(*held_out, strict=True)
    with torch.no_grad():
        logits = net.module_(torch.from_numpy(np.stack(inputs)))
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor(np.array(targets)))
    assert net.history[-1, "valid_loss"] == pytest.approx(expected.item(), abs=1e-5)


def test_the_script(tmp_path: Path) -> None:
    printed = run_script(SCRIPT, tmp_path)
    assert "accuracy 9" in printed
    assert "after 10 epochs" in printed
    assert "cloud 0 is taken for cloud 1" in printed

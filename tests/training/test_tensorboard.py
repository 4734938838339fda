import importlib.util
from pathlib import Path

import pytest
from training_parts import Memory, blobs, config_with, objective_of

from adaptive_labels.config import ConfigError
from adaptive_labels.training.loop import fit
from adaptive_labels.training.progress import SilentReporter
from adaptive_labels.training.recorders import TensorBoardRecorder

INSTALLED = importlib.util.find_spec("tensorboard") is not None


@pytest.mark.skipif(INSTALLED, reason="TensorBoard is installed")
def test_a_missing_tensorboard_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"TensorBoard is not installed: pip install 'adaptive-labels\[tensorboard\]'"
    ):
        TensorBoardRecorder(Memory(), tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not INSTALLED, reason="TensorBoard is not installed")
@pytest.mark.filterwarnings("ignore")
def test_the_history_is_written(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    inner = Memory()
    recorder = TensorBoardRecorder(inner, tmp_path)
    train, labels, validation = blobs()
    result = fit(
        objective_of(), train, labels, validation, config_with(), 0, recorder=recorder, reporter=SilentReporter()
    )
    events = EventAccumulator(str(tmp_path)).Reload()
    losses = [(event.step, event.value) for event in events.Scalars("train_loss")]
    assert losses == [(record["epoch"], pytest.approx(record["train_loss"])) for record in result.history]
    assert "parts/update" in events.Tags()["scalars"]
    assert [event.step for event in events.Images("residual labels")] == [1, 2, 3]
    assert inner.records == list(result.history)

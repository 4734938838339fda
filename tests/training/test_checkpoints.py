import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from training_parts import CLASSES, Bag, Memory, Ragged, Similarities, blobs, config_with, objective_of

from adaptive_labels.config import TrainingConfig
from adaptive_labels.objectives import Supervised
from adaptive_labels.training.checkpoints import CheckpointError, read_checkpoint, write_checkpoint
from adaptive_labels.training.loop import FitResult, Interrupted, fit
from adaptive_labels.training.progress import SilentReporter


class PullPlugError(Exception):
    """Stands for a process that ends in the middle of an epoch."""


class Until(SilentReporter):
    """Raises when an epoch begins, after its first step."""

    def __init__(self, epoch: int, error: type[BaseException]) -> None:
        self.last, self.error = epoch, error

    def progress(self, now: Any) -> None:
        if now.epoch == self.last:
            raise self.error


def train(
    objective: Supervised, config: TrainingConfig, folder: Path, recorder: Memory, reporter: SilentReporter
) -> FitResult:
    examples, labels, validation = blobs()
    return fit(
        objective,
        examples,
        labels,
        validation,
        config,
        5,
        recorder=recorder,
        reporter=reporter,
        checkpoint_dir=folder,
        checkpoint_seconds=0.0,
    )


def without_seconds(records: Any) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": "adam", "schedule": "one-cycle"},
        {"optimizer": "adamw", "ema": 0.95, "accumulate": 2, "clip_norm": 1.0},
    ],
    ids=["sgd", "adam", "adamw with average"],
)
def test_a_resumed_run_is_the_same_run_to_the_bit(tmp_path: Path, changes: dict[str, Any]) -> None:
    config = config_with(epochs=5, **changes)
    whole, cut = objective_of(dropout=0.2), objective_of(dropout=0.2)
    uninterrupted = train(whole, config, tmp_path / "whole", Memory(), SilentReporter())
    recorder = Memory()
    for epoch in (3, 4):
        with pytest.raises(PullPlugError):
            train(objective_of(dropout=0.2), config, tmp_path / "cut", recorder, Until(epoch, PullPlugError))
    recorder.epoch({"epoch": 4, "written": "before the checkpoint"})
    # Other initial weights: everything must come from the checkpoint.
    cut = objective_of(seed=99, dropout=0.2)
    resumed = train(cut, config, tmp_path / "cut", recorder, SilentReporter())
    for (name, mine), other in zip(whole.state_dict().items(), cut.state_dict().values(), strict=True):
        assert torch.equal(mine, other), name
    assert without_seconds(resumed.history) == without_seconds(uninterrupted.history)
    assert recorder.records == list(resumed.history)
    assert sorted(recorder.matrices) == [1, 2, 5]


def test_sparse_optimizers_resume_to_the_bit(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 9, (90,), generator=generator)
    examples = Ragged(torch.randint(0, 50, (int(lengths.sum()),), generator=generator), lengths)
    labels = torch.randint(0, CLASSES, (90,), generator=generator)
    config = config_with(optimizer="adam", epochs=3)

    def text_run(folder: str, seed: int, reporter: SilentReporter) -> Supervised:
        torch.manual_seed(seed)
        objective = Supervised(Bag(sparse=True), Similarities())
        options: dict[str, Any] = {"recorder": Memory(), "checkpoint_dir": tmp_path / folder, "checkpoint_seconds": 0.0}
        fit(objective, examples, labels, (examples, labels), config, 0, reporter=reporter, **options)
        return objective

    whole = text_run("whole", 0, SilentReporter())
    with pytest.raises(PullPlugError):
        text_run("cut", 0, Until(2, PullPlugError))
    resumed = text_run("cut", 1, SilentReporter())
    for mine, other in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True):
        assert torch.equal(mine, other)


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first, again = objective_of(), objective_of(seed=7)
    train(first, config_with(ema=0.5), tmp_path, Memory(), SilentReporter())
    result = train(again, config_with(ema=0.5), tmp_path, Memory(), Until(1, PullPlugError))
    assert result.status == "finished"
    assert result.epochs == 3
    assert torch.equal(first.model[0].weight, again.model[0].weight)  # type: ignore[index]


def test_an_early_stop_stays_stopped(tmp_path: Path) -> None:
    config = config_with(epochs=60, early_stop=2, lr=1.0, schedule="constant")
    first = train(objective_of(), config, tmp_path, Memory(), SilentReporter())
    again = train(objective_of(), config, tmp_path, Memory(), SilentReporter())
    assert again.status == first.status == "stopped-early"
    assert again.history == first.history


def test_an_interruption_says_what_is_kept(tmp_path: Path) -> None:
    with pytest.raises(Interrupted) as stopped:
        train(objective_of(), config_with(), tmp_path, Memory(), Until(1, KeyboardInterrupt))
    assert str(stopped.value) == "stopped in epoch 1; nothing is kept yet: the same command starts again"
    with pytest.raises(KeyboardInterrupt) as stopped_later:
        train(objective_of(), config_with(), tmp_path, Memory(), Until(3, KeyboardInterrupt))
    assert str(stopped_later.value) == (
        "stopped in epoch 3; what was learnt up to epoch 2 is kept: the same command goes on from there"
    )
    kept = read_checkpoint(tmp_path)
    assert kept is not None
    assert kept.epoch == 2


class Interrupting:
    """Ctrl-C falls into its finaliser, where Python prints and drops what is raised."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


class InterruptsOnce(SilentReporter):
    """Lets an interruption get lost after the first step."""

    lost = False

    def progress(self, now: Any) -> None:
        if not self.lost:
            self.lost = True
            Interrupting()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interruption_that_python_drops_stops_the_run_all_the_same(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted):
        train(objective_of(), config_with(), tmp_path, Memory(), InterruptsOnce())
    assert signal.getsignal(signal.SIGINT) is before


def test_where_interruptions_are_ignored_they_stay_so(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        result = train(objective_of(), config_with(), tmp_path, Memory(), InterruptsOnce())
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.status == "finished"


def test_sigint_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    """A real process with a real signal."""
    code = textwrap.dedent(
        f"""
        import sys, time
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from training_parts import *
        from adaptive_labels.training.loop import fit
        from adaptive_labels.training.progress import LineReporter

        class Slow(Rows):
            def batch(self, indices):
                time.sleep(0.01)
                return super().batch(indices)

        train, labels, validation = blobs()
        try:
            fit(objective_of(), Slow(train.rows), labels, validation, config_with(epochs=500), 0, recorder=Memory(),
                reporter=LineReporter(), checkpoint_dir=Path({str(tmp_path)!r}), checkpoint_seconds=0.0)
        except KeyboardInterrupt as stopped:
            print(stopped)
        """
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    lines = [child.stdout.readline(), child.stdout.readline()]
    assert lines[1].startswith("epoch 2/500  loss ")
    os.kill(child.pid, signal.SIGINT)
    rest, _ = child.communicate(timeout=60)
    assert "is kept: the same command goes on from there" in rest.splitlines()[-1]
    kept = read_checkpoint(tmp_path)
    assert kept is not None
    assert kept.epoch >= 1


def test_there_may_be_no_checkpoint(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path) is None
    assert read_checkpoint(tmp_path / "missing") is None
    train_without = objective_of()
    examples, labels, validation = blobs()
    fit(
        train_without,
        examples,
        labels,
        validation,
        config_with(epochs=1),
        0,
        recorder=Memory(),
        reporter=SilentReporter(),
        checkpoint_dir=tmp_path,
        checkpoint_seconds=3600.0,
    )
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_is_safetensors_and_plain_json(tmp_path: Path) -> None:
    shared = torch.ones(2, 3)
    tensors = {"a": shared, "b": shared, "c": shared.t(), "d": torch.tensor(3)}
    write_checkpoint(tmp_path, 1, tensors, {"x": [1, None]})
    write_checkpoint(tmp_path, 2, tensors, {"x": [1, None]})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-2.safetensors", "state.json"]
    assert json.loads((tmp_path / "state.json").read_text())["epoch"] == 2
    back = read_checkpoint(tmp_path)
    assert back is not None
    assert back.plain == {"x": [1, None]}
    for name, tensor in tensors.items():
        assert torch.equal(back.tensors[name], tensor)


def test_a_write_that_ends_half_way_keeps_the_one_before(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1, {"a": torch.ones(2)}, {})
    # What a process ended at each of its moments leaves behind.
    (tmp_path / "tensors.part").write_bytes(b"half")
    (tmp_path / "epoch-2.safetensors").write_bytes((tmp_path / "epoch-1.safetensors").read_bytes())
    (tmp_path / "state.part").write_text('{"for')
    kept = read_checkpoint(tmp_path)
    assert kept is not None
    assert kept.epoch == 1
    write_checkpoint(tmp_path, 3, {"a": torch.ones(2)}, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-3.safetensors", "state.json"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("state.json", b"{"),
        ("state.json", b"[]"),
        ("state.json", b'{"format": 1}'),
        ("epoch-1.safetensors", b"nonsense"),
        ("epoch-1.safetensors", None),
    ],
)
def test_broken_checkpoints_are_named(tmp_path: Path, name: str, content: bytes | None) -> None:
    write_checkpoint(tmp_path, 1, {"a": torch.ones(2)}, {})
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError) as refused:
        read_checkpoint(tmp_path)
    assert f"the checkpoint in {tmp_path} cannot be read" in str(refused.value)
    assert "remove the folder to start again" in str(refused.value)


def test_another_format_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1, {}, {})
    state = json.loads((tmp_path / "state.json").read_text())
    (tmp_path / "state.json").write_text(json.dumps(state | {"format": 2}))
    with pytest.raises(CheckpointError, match="has format 2, this version reads format 1"):
        read_checkpoint(tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=f"epoch 1 cannot be written to {tmp_path}/file/checkpoint"):
        write_checkpoint(tmp_path / "file" / "checkpoint", 1, {}, {})


@pytest.mark.parametrize(
    ("other", "changes"),
    [
        (Supervised(nn.Linear(6, CLASSES), nn.CrossEntropyLoss()), {}),
        (objective_of(), {"ema": 0.5}),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, other: Supervised, changes: dict[str, Any]) -> None:
    train(objective_of(), config_with(), tmp_path, Memory(), SilentReporter())
    with pytest.raises(CheckpointError, match="belongs to another model, criterion or optimizer"):
        train(other, config_with(**changes), tmp_path, Memory(), SilentReporter())


def test_the_seconds_of_all_sittings_are_summed(tmp_path: Path) -> None:
    """A run that went on after an interruption has taken as long as its sittings together."""

    def seconds(epochs: int, before: float | None) -> float:
        state = json.loads((tmp_path / "state.json").read_text())
        state["plain"].pop("seconds")  # earlier versions did not write it
        if before is not None:
            state["plain"]["seconds"] = before
        (tmp_path / "state.json").write_text(json.dumps(state))
        return train(objective_of(), config_with(epochs=epochs), tmp_path, Memory(), SilentReporter()).seconds

    first = train(objective_of(), config_with(epochs=2), tmp_path, Memory(), SilentReporter())
    assert 0 < json.loads((tmp_path / "state.json").read_text())["plain"]["seconds"] <= first.seconds
    assert 1000.0 < seconds(4, before=1000.0) < 1100.0
    of_epochs = sum(record["seconds"] for record in first.history)
    assert of_epochs < seconds(5, before=None) < 100.0

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from training_parts import CLASSES, Bag, Memory, Ragged, Rows, Similarities, blobs, config_with, objective_of

from adaptive_labels.lab.config import TrainingConfig
from adaptive_labels.lab.objectives import Supervised
from adaptive_labels.lab.runs import integrity
from adaptive_labels.lab.training.checkpoints import CheckpointError, kept_up_to, read_checkpoint, write_checkpoint
from adaptive_labels.lab.training.loop import FitResult, Interrupted, fit
from adaptive_labels.lab.training.progress import Reporter


class PullPlugError(Exception):
    """Stands for a process that ends in the middle of an epoch."""


class Until(Reporter):
    """Raises when an epoch begins, after its first step."""

    def __init__(self, epoch: int, error: type[BaseException]) -> None:
        self.last, self.error = epoch, error

    def progress(self, now: Any) -> None:
        if now.epoch == self.last:
            raise self.error


def train(
    objective: Supervised, config: TrainingConfig, folder: Path, recorder: Memory, reporter: Reporter
) -> FitResult:
    examples, labels, validation = blobs()
    return fit(
        objective,
        examples,
        labels,
        validation,
        replace(config, checkpoint_seconds=0.0),
        5,
        recorder=recorder,
        reporter=reporter,
        checkpoint_dir=folder,
    )


def without_seconds(records: Any) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def test_sparse_optimizers_resume_to_the_bit(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 9, (90,), generator=generator)
    examples = Ragged(torch.randint(0, 50, (int(lengths.sum()),), generator=generator), lengths)
    labels = torch.randint(0, CLASSES, (90,), generator=generator)
    config = config_with(optimizer="adam", epochs=3, checkpoint_seconds=0.0)

    def text_run(folder: str, seed: int, reporter: Reporter) -> Supervised:
        torch.manual_seed(seed)
        objective = Supervised(Bag(sparse=True), Similarities())
        options: dict[str, Any] = {"recorder": Memory(), "checkpoint_dir": tmp_path / folder}
        fit(objective, examples, labels, (examples, labels), config, 0, reporter=reporter, **options)
        return objective

    whole = text_run("whole", 0, Reporter())
    with pytest.raises(PullPlugError):
        text_run("cut", 0, Until(2, PullPlugError))
    resumed = text_run("cut", 1, Reporter())
    for mine, other in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True):
        assert torch.equal(mine, other)


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first, again = objective_of(), objective_of(seed=7)
    train(first, config_with(ema=0.5), tmp_path, Memory(), Reporter())
    result = train(again, config_with(ema=0.5), tmp_path, Memory(), Until(1, PullPlugError))
    assert result.status == "finished"
    assert result.epochs == 3
    assert torch.equal(first.model[0].weight, again.model[0].weight)  # type: ignore[index]


def test_an_early_stop_stays_stopped(tmp_path: Path) -> None:
    config = config_with(epochs=60, early_stop=2, lr=1.0, schedule="constant")
    first = train(objective_of(), config, tmp_path, Memory(), Reporter())
    again = train(objective_of(), config, tmp_path, Memory(), Reporter())
    assert again.status == first.status == "stopped-early"
    assert again.history == first.history


def test_an_interruption_says_what_is_kept(tmp_path: Path) -> None:
    with pytest.raises(Interrupted) as stopped:
        train(objective_of(), config_with(), tmp_path, Memory(), Until(1, KeyboardInterrupt))
    assert str(stopped.value) == "stopped in epoch 1; nothing is kept yet: the same command starts again"
    with pytest.raises(
        KeyboardInterrupt, match=r"^stopped in epoch 3; what was learnt up to (epoch 2|step \d of epoch 3) "
    ):
        train(objective_of(), config_with(), tmp_path, Memory(), Until(3, KeyboardInterrupt))
    kept = read_checkpoint(tmp_path)
    assert kept is not None
    assert kept.epoch == 2


class Ending(Rows):
    """Examples whose so manieth batch ends the process, or lets a signal come."""

    def __init__(self, rows: torch.Tensor, end: int, blow: Callable[[], None]) -> None:
        super().__init__(rows)
        self.left, self.blow = end, blow

    def batch(self, indices: torch.Tensor) -> torch.Tensor:
        self.left -= 1
        if self.left == 0:
            self.blow()
        return super().batch(indices)


def pull_plug() -> None:
    raise PullPlugError


def noisy(inputs: torch.Tensor, generator: torch.Generator, epoch: int, part: Any) -> torch.Tensor:
    return inputs + 0.1 * torch.randn(inputs.shape, generator=generator)


EVERYTHING = {"optimizer": "adamw", "ema": 0.95, "accumulate": 2, "clip_norm": 1.0, "early_stop": 4}
CUTS = [  # a plug or a signal, at which batch (an epoch has 9, or 17 parts), and the configuration
    *((None, end, EVERYTHING) for end in (3, 9, 10, 27)),
    (None, 14, {"optimizer": "adam", "schedule": "one-cycle"}),
    *((signal.SIGTERM, end, {}) for end in (1, 9, 10, 27)),
    (signal.SIGTERM, 14, EVERYTHING),
    *((number, 14, {}) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)),
]


@pytest.mark.parametrize(("number", "end", "changes"), CUTS)
def test_a_run_stopped_within_an_epoch_ends_with_the_same_bits(
    tmp_path: Path, changes: dict[str, Any], end: int, number: int | None
) -> None:
    config = config_with(epochs=3, **{"checkpoint_seconds": 3600.0 if number else 0.0, **changes})
    examples, labels, validation = blobs()

    def run(train: Rows, validation: Any, seed: int, folder: Path | None) -> tuple[Supervised, Any, Memory]:
        objective, memory = objective_of(seed, dropout=0.2), Memory()
        options: dict[str, Any] = {"recorder": memory, "reporter": Reporter(), "augment": noisy}
        return objective, fit(objective, train, labels, validation, config, 5, **options, checkpoint_dir=folder), memory

    every: list[torch.Tensor] = []
    whole, expected, kept = run(Watched(examples.rows, every), validation, 0, None)
    blow = pull_plug if number is None else lambda: signal.raise_signal(number)
    ending = Ending(examples.rows, end, blow)
    with pytest.raises(PullPlugError if number is None else Interrupted) as stopped:
        run(ending, validation, 0, tmp_path)
    if number is not None:
        assert stopped.value.number == number
        place = f"step {(end - 1) % 9 + 1} of epoch {(end - 1) // 9 + 1} is kept"
        assert changes or f"what was learnt up to {place}: the same command goes on from there" in str(stopped.value)
    seen: list[torch.Tensor] = []
    cut, found, again = run(Watched(examples.rows, seen), validation, 99, tmp_path)
    for (name, mine), other in zip(whole.state_dict().items(), cut.state_dict().values(), strict=True):
        assert torch.equal(mine, other), name
    assert without_seconds(found.history) == without_seconds(expected.history)
    assert again.matrices.keys() == kept.matrices.keys()
    assert all(torch.equal(mine, other) for mine, other in zip(seen, every[len(every) - len(seen) :], strict=True))
    assert len(every) - len(seen) >= end - config.accumulate  # at most one step is done again


class Watched(Rows):
    def __init__(self, rows: torch.Tensor, seen: list[torch.Tensor]) -> None:
        super().__init__(rows)
        self.seen = seen

    def batch(self, indices: torch.Tensor) -> torch.Tensor:
        self.seen.append(indices)
        return super().batch(indices)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_evaluation_keeps_the_whole_epoch(tmp_path: Path, number: int) -> None:
    examples, labels, (held_out, held_out_labels) = blobs()
    config = config_with(epochs=2)
    whole, cut = objective_of(dropout=0.2), objective_of(3, dropout=0.2)
    options: dict[str, Any] = {"reporter": Reporter(), "checkpoint_dir": tmp_path}
    fit(whole, examples, labels, (held_out, held_out_labels), config, 5, recorder=Memory(), reporter=Reporter())
    # Two batches of validation, of which the first brings the signal.
    many = Ending(held_out.rows.repeat(9, 1), 1, lambda: signal.raise_signal(number))
    start = objective_of(dropout=0.2)
    with pytest.raises(Interrupted, match="up to step 9 of epoch 1 is kept"):
        fit(start, examples, labels, (many, held_out_labels.repeat(9)), config, 5, recorder=Memory(), **options)
    fit(cut, examples, labels, (held_out, held_out_labels), config, 5, recorder=Memory(), **options)
    for mine, other in zip(whole.state_dict().values(), cut.state_dict().values(), strict=True):
        assert torch.equal(mine, other)


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    examples, labels, validation = blobs()
    steps: list[torch.Tensor] = []

    class Impatient(Watched):
        def batch(self, indices: torch.Tensor) -> torch.Tensor:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            return super().batch(indices)

    before = signal.getsignal(signal.SIGINT)
    options: dict[str, Any] = {"recorder": Memory(), "reporter": Reporter(), "checkpoint_dir": tmp_path}
    with pytest.raises(Interrupted, match="nothing is kept yet"):
        fit(objective_of(), Impatient(examples.rows, steps), labels, validation, config_with(), 5, **options)
    assert steps == []
    assert signal.getsignal(signal.SIGINT) is before


class Interrupting:
    """Ctrl-C falls into its finaliser, where Python prints and drops what is raised."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


class InterruptsOnce(Reporter):
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


def test_there_may_be_no_checkpoint(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path) is None
    assert read_checkpoint(tmp_path / "missing") is None
    options: dict[str, Any] = {"recorder": Memory(), "reporter": Reporter(), "checkpoint_dir": tmp_path}
    fit(objective_of(), *blobs(), config_with(epochs=1), 0, **options)
    assert list(tmp_path.iterdir()) == []


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_is_safetensors_and_plain_json_and_two_are_kept(tmp_path: Path) -> None:
    shared = torch.ones(2, 3)
    tensors = {"a": shared, "b": shared, "c": shared.t(), "d": torch.tensor(3)}
    for epoch in (8, 9, 10):
        write_checkpoint(tmp_path, epoch, tensors, {"x": [1, None]})
    assert names(tmp_path) == ["epoch-10.json", "epoch-10.safetensors", "epoch-9.json", "epoch-9.safetensors"]
    assert json.loads((tmp_path / "epoch-10.json").read_text())["epoch"] == 10
    assert kept_up_to(tmp_path) == "epoch 10"
    back = read_checkpoint(tmp_path)
    assert back is not None
    assert back.plain == {"x": [1, None]}
    for name, tensor in tensors.items():
        assert torch.equal(back.tensors[name], tensor)


def test_a_write_that_ends_half_way_keeps_the_one_before(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1, {"a": torch.ones(2)}, {})
    # What a process ended at each of its moments leaves behind.
    (tmp_path / ".epoch-2.safetensors.1-ab.tmp").write_bytes(b"half")
    (tmp_path / "epoch-2.safetensors").write_bytes((tmp_path / "epoch-1.safetensors").read_bytes())
    (tmp_path / ".epoch-2.json.1-ab.tmp").write_text('{"for')
    kept = read_checkpoint(tmp_path)
    assert kept is not None
    assert kept.epoch == 1
    write_checkpoint(tmp_path, 3, {"a": torch.ones(2)}, {})
    assert names(tmp_path) == ["epoch-1.json", "epoch-1.safetensors", "epoch-3.json", "epoch-3.safetensors"]


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize("name", ["epoch-2.json", "epoch-2.safetensors"])
@pytest.mark.parametrize("kind", ["missing", "empty", "half", "nonsense", "first", "middle", "last"])
def test_a_damaged_checkpoint_is_named_and_set_aside_and_the_one_before_is_read(
    tmp_path: Path, name: str, kind: str
) -> None:
    for epoch in (1, 2):
        write_checkpoint(tmp_path, epoch, {"a": torch.full((8,), 0.1)}, {"seconds": 1.25})
    data = (tmp_path / name).read_bytes()
    damages = {
        "empty": b"",
        "half": data[: len(data) // 2],
        "nonsense": b"nonsense",
        "first": flipped(data, 0),
        "middle": flipped(data, len(data) // 2),
        "last": flipped(data, len(data) - 1),
    }
    (tmp_path / name).unlink()
    if kind != "missing":
        (tmp_path / name).write_bytes(damages[kind])
    notes: list[str] = []
    kept = read_checkpoint(tmp_path, notes.append)
    assert kept is not None
    assert kept.epoch == 1
    if name == "epoch-2.json" and kind == "missing":  # as after a write that was cut short
        return
    assert len(notes) == 1
    assert notes[0].startswith(f"the checkpoint {tmp_path / 'epoch-2.json'} cannot be used (")
    assert notes[0].endswith("): it was set aside, and the run goes on after epoch 1")
    assert "epoch-2.json.damaged" in names(tmp_path)
    assert kept_up_to(tmp_path) == "epoch 1"
    assert read_checkpoint(tmp_path, notes.append) is not None
    assert len(notes) == 1
    write_checkpoint(tmp_path, 2, {"a": torch.ones(2)}, {})
    assert {"epoch-2.json.damaged", "epoch-1.json", "epoch-2.json"} <= set(names(tmp_path))


def test_a_run_whose_only_checkpoint_is_damaged_starts_again(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1, {"a": torch.ones(2)}, {})
    (tmp_path / "epoch-1.safetensors").write_bytes(b"")
    notes: list[str] = []
    assert read_checkpoint(tmp_path, notes.append) is None
    assert notes[0].endswith("it was set aside, and the run starts again")


def test_a_damaged_checkpoint_does_not_change_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, cut, recorder = objective_of(), objective_of(seed=9), Memory()
    train(whole, config_with(epochs=5), tmp_path / "whole", Memory(), Reporter())
    with pytest.raises(PullPlugError):
        train(objective_of(), config_with(epochs=5), tmp_path / "cut", recorder, Until(4, PullPlugError))
    path = max((tmp_path / "cut").glob("epoch-3*.safetensors"), key=lambda file: file.stat().st_mtime_ns)
    path.write_bytes(flipped(path.read_bytes(), path.stat().st_size - 2))
    train(cut, config_with(epochs=5), tmp_path / "cut", recorder, Reporter())
    for mine, other in zip(whole.state_dict().values(), cut.state_dict().values(), strict=True):
        assert torch.equal(mine, other)
    assert f"{path.with_suffix('.json').name} cannot be used" in capsys.readouterr().err
    assert [record["epoch"] for record in recorder.records] == [1, 2, 3, 4, 5]
    assert sorted(recorder.matrices) == [1, 2, 5]


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
    train(objective_of(), config_with(), tmp_path, Memory(), Reporter())
    with pytest.raises(CheckpointError, match="belongs to another model, criterion or optimizer"):
        train(other, config_with(**changes), tmp_path, Memory(), Reporter())


def test_the_seconds_of_all_sittings_are_summed(tmp_path: Path) -> None:
    """A run that went on after an interruption has taken as long as its sittings together."""

    first = train(objective_of(), config_with(epochs=2), tmp_path, Memory(), Reporter())
    path = tmp_path / "epoch-2.json"
    content, files = integrity.read_sealed(path)
    assert 0 < content["plain"]["seconds"] <= first.seconds
    content["plain"]["seconds"] = 1000.0
    path.write_text(json.dumps(integrity.seal(content, files)))
    again = train(objective_of(), config_with(epochs=4), tmp_path, Memory(), Reporter())
    assert 1000.0 < again.seconds < 1100.0

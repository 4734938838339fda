"""Averages, means, precision, progress: each on its own."""

import dataclasses
import io
import math
import pickle
import time
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn
from training_parts import Memory, blobs, config_with, network, objective_of

from adaptive_labels.lab.config import ConfigError
from adaptive_labels.lab.training.evaluation import RunningMeans
from adaptive_labels.lab.training.loop import fit
from adaptive_labels.lab.training.optimizers import WeightAverage
from adaptive_labels.lab.training.precision import check_precision, choose_device
from adaptive_labels.lab.training.progress import (
    BarReporter,
    LineReporter,
    Progress,
    Reporter,
    make_reporter,
)

CPU = torch.device("cpu")
RECORD = {
    "epoch": 2,
    "train_loss": 0.51234,
    "train_accuracy": 0.8125,
    "validation_accuracy": 0.75,
    "learning_rate": 0.05,
    "seconds": 1.26,
}
NOW = Progress(2, 10, 130, 1000, 0.5, 0.8125, 0.05, 12345.6, 3725.0)


def test_the_average_follows_its_formula() -> None:
    layer = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(layer.weight)
    average = WeightAverage(layer, decay=0.9)
    expected = 0.0
    for update in range(1, 200):
        with torch.no_grad():
            layer.weight.fill_(float(update))
        average.update()
        decay = min(0.9, (1 + update) / (10 + update))
        expected = decay * expected + (1 - decay) * update
    assert float(average.average["weight"]) == pytest.approx(expected, rel=1e-5)


def test_tied_weights_are_lent_and_given_back_once() -> None:
    first, last = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    last.weight = first.weight
    average = WeightAverage(nn.Sequential(first, last), decay=0.5)
    start, moved = first.weight.detach().clone(), first.weight.detach() + 1.0
    with torch.no_grad():
        first.weight.copy_(moved)
    average.exchange()
    assert torch.equal(last.weight, start)
    average.exchange()
    assert torch.equal(last.weight, moved)


def test_the_average_is_lent_and_given_back() -> None:
    model = network()
    average = WeightAverage(model, decay=0.5)
    before = {name: tensor.clone() for name, tensor in average.average.items()}
    model(torch.randn(8, 6))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    moved = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    average.exchange()
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())
    average.exchange()
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in moved.items())
    assert all(torch.equal(average.average[name], tensor) for name, tensor in before.items())
    average.update()
    assert int(average.average["1.num_batches_tracked"]) == 1
    averaged = {name: tensor.clone() for name, tensor in average.average.items()}
    average.exchange()  # as at the end of a run
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in averaged.items())


def test_means_weigh_by_examples_and_by_name() -> None:
    means = RunningMeans()
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 0.0]])
    means.fetch()
    assert (means.loss, means.accuracy, means.parts) == (0.0, 0.0, {})
    means.add(0, torch.tensor(1.0), logits, torch.tensor([0, 0, 0]), {"a": torch.tensor(2.0)})
    means.fetch()
    means.add(1, torch.tensor(5.0), logits[:1], torch.tensor([0]), {"a": torch.tensor(6.0), "b": torch.tensor(1.0)})
    means.fetch()
    means.fetch()
    assert means.loss == 2.0
    assert means.accuracy == 0.75
    assert means.parts == {"a": 3.0, "b": 1.0}
    assert means.bad_step is None


@pytest.mark.parametrize("held", [1, 100, 10**6], ids=["at once", "in groups", "at the end"])
def test_means_count_what_is_right_however_long_it_is_kept(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr("adaptive_labels.lab.training.evaluation.HELD_LOGITS", held)
    means, right = RunningMeans(), 0
    for step in range(20):
        logits, target = torch.randn(1 + step, 3), torch.randint(3, (1 + step,))
        right += int((logits.argmax(1) == target).sum())
        means.add(step, torch.tensor(1.0), logits, target, {})
        if step in (9, 19):
            means.fetch()
            assert (means.correct, means.examples) == (right, (step + 1) * (step + 2) // 2)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("often", [True, False])
def test_means_know_the_first_bad_step(bad: float, often: bool) -> None:
    means = RunningMeans()
    for step, loss in enumerate((1.0, 2.0, bad, 1.0, -bad)):
        means.add(step, torch.tensor(loss), torch.ones(1, 2), torch.tensor([0]), {})
        if often:
            means.fetch()
    means.fetch()
    assert means.bad_step == 2
    assert not math.isfinite(means.loss)


def test_devices() -> None:
    assert choose_device("cpu") == CPU
    assert choose_device("auto").type in {"cpu", "cuda", "mps"}
    count = torch.cuda.device_count()
    with pytest.raises(ConfigError, match=rf"training\.device is 'cuda:{count}': this machine has {count} CUDA"):
        choose_device(f"cuda:{count}")
    if not torch.backends.mps.is_available():
        with pytest.raises(ConfigError, match="torch finds no MPS device here"):
            choose_device("mps")


def test_bfloat16_on_a_cpu_says_what_an_illegal_instruction_means(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    check_precision("32", CPU)
    assert capsys.readouterr().err == ""
    check_precision("bf16-mixed", CPU)
    assert "set the environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="needs a GPU"):
        check_precision("16-mixed", CPU)


def test_lines() -> None:
    stream = io.StringIO()
    reporter = LineReporter(stream, every=0.0)
    reporter.epoch(RECORD, 10)
    reporter.progress(NOW)
    reporter.close()
    assert stream.getvalue().splitlines() == [
        "epoch 2/10  loss 0.5123  train accuracy 81.25%  validation accuracy 75.00%  rate 0.05  1.3 s",
        "epoch 2/10  13% of the run  loss 0.5000  accuracy 81.25%  rate 0.05  12,346/s  1:02:05 left",
    ]
    quiet = io.StringIO()
    LineReporter(quiet).progress(NOW)
    assert quiet.getvalue() == ""


@pytest.mark.parametrize(
    ("width", "room_for"), [(80, ()), (96, ("rate 0.05",)), (126, ("rate 0.05", "12,346/s", "━" * 30))]
)
def test_the_bar_shows_what_it_has_room_for(width: int, room_for: tuple[str, ...]) -> None:
    stream = io.StringIO()
    # Whatever terminal the tests run in: a dumb one leaves out the part of the bar that is still to come.
    terminal = {"TERM": "xterm-256color"}
    reporter = BarReporter(Console(file=stream, force_terminal=True, color_system=None, width=width, _environ=terminal))
    reporter.epoch(RECORD, 10)
    reporter.progress(dataclasses.replace(NOW, epoch=99, epochs=100, accuracy=1.0))
    reporter.close()
    shown = stream.getvalue()
    for text in ("epoch 99/100", " 13%", "loss 0.500", "train 100.0%", "validation 75.0%", "1:02:05 left", *room_for):
        assert text in shown
    assert "…" not in shown


def test_an_error_before_training_leaves_the_cursor_visible() -> None:
    stream = io.StringIO()
    reporter = BarReporter(Console(file=stream, force_terminal=True, _environ={"TERM": "xterm-256color"}))
    assert "\x1b[?25l" not in stream.getvalue()
    reporter.progress(NOW)
    assert "\x1b[?25l" in stream.getvalue()
    reporter.close()
    assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l")


def test_a_terminal_gets_the_bar_and_a_file_gets_lines() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    bar = make_reporter(Terminal())
    assert isinstance(bar, BarReporter)
    bar.close()
    assert isinstance(make_reporter(io.StringIO()), LineReporter)


def test_the_loop_reports_and_closes() -> None:
    class Listener(Reporter):
        def __init__(self) -> None:
            self.seen: list[Progress] = []
            self.epochs: list[int] = []
            self.closed = 0

        def progress(self, now: Progress) -> None:
            self.seen.append(pickle.loads(pickle.dumps(now)))

        def epoch(self, record: Any, epochs: int) -> None:
            self.epochs.append(record["epoch"])

        def close(self) -> None:
            self.closed += 1

    listener = Listener()
    train, labels, validation = blobs()
    fit(objective_of(), train, labels, validation, config_with(), 0, recorder=Memory(), reporter=listener)
    assert listener.closed == 1
    assert listener.epochs == [1, 2, 3]
    assert {(now.epochs, now.steps) for now in listener.seen} == {(3, 27)}
    assert [now.steps_done for now in listener.seen if now.steps_done % 9 == 0] == [9, 18, 27]
    assert listener.seen[-1].seconds_left == 0.0
    assert all(now.examples_per_second > 0 for now in listener.seen)


def test_time_left_is_the_pace_since_the_first_look_times_the_rest() -> None:
    seen: list[tuple[float, Progress]] = []

    class Listener(Reporter):
        def progress(self, now: Progress) -> None:
            seen.append((time.perf_counter(), now))

        def epoch(self, record: Any, epochs: int) -> None:
            time.sleep(0.05)

    train, labels, validation = blobs()
    fit(objective_of(), train, labels, validation, config_with(), 0, recorder=Memory(), reporter=Listener())
    (began, first), *_ = seen
    now, second = next(one for one in seen if one[1].steps_done == 18)
    assert (first.steps_done, first.seconds_left) == (1, None)
    assert second.seconds_left == pytest.approx((now - began) / 17 * 9, rel=0.1)

"""What is printed of many runs while they are done."""

from __future__ import annotations

import pytest

from adaptive_labels.lab.cli import progress
from adaptive_labels.lab.cli.progress import make_listener
from adaptive_labels.lab.jobs import Event

NOW = {"epoch": 2, "epochs": 4, "train_loss": 0.5, "validation_accuracy": 0.75}


def test_a_line_when_a_run_ends_and_one_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_listener() as listener:
        listener(Event(0, "plan", ["alr seed 0", "alr seed 1"]))
        listener(Event(0, "progress", NOW))  # too soon
        listener(Event(1, "failed", "no reason"))
        monkeypatch.setattr(progress, "HEARTBEAT_SECONDS", -1.0)
        listener(Event(0, "progress", NOW))
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("[1/2, ")
    assert first.endswith("alr seed 1: failed: no reason")
    assert second.endswith("alr seed 0: epoch 2/4, loss 0.500, validation accuracy 75.0%")


def test_a_bar_for_all_runs_and_one_for_each_under_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with make_listener() as listener:
        listener(Event(0, "plan", ["slr seed 0", "slr seed 1"]))
        listener(Event(1, "progress", {"epoch": 0, "epochs": 4}))
        listener(Event(1, "progress", NOW))
        whole, one = listener.bars.tasks  # type: ignore[attr-defined]
        assert (whole.description, whole.total, whole.completed) == ("all runs", 2, 0.5)
        assert (one.description, one.completed) == ("slr seed 1", 0.5)
        listener(Event(1, "failed", "no reason"))
        assert not one.visible
    capsys.readouterr()

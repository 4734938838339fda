"""What is printed of many runs while they are done."""

from __future__ import annotations

import pytest

from adaptive_labels.lab.cli.progress import make_listener
from adaptive_labels.lab.experiments.executors import Event


def test_runs_that_are_planned_again_are_named_and_counted_anew(capsys: pytest.CaptureFixture[str]) -> None:
    with make_listener() as listener:
        listener(Event(0, "plan", ["alr seed 1"]))  # one seed was finished before
        listener(Event(0, "late", "too slow"))
        listener(Event(0, "plan", ["alr seed 0", "alr seed 1"]))  # with fewer epochs both are to be done
        listener(Event(1, "failed", "no reason"))
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("[0/1, ")
    assert first.endswith("alr seed 1: too slow")
    assert second.startswith("[1/2, ")
    assert second.endswith("alr seed 1: failed: no reason")


def test_bars_are_those_of_the_latest_plan(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with make_listener() as listener:
        listener(Event(0, "plan", ["alr seed 0"]))
        listener(Event(0, "start"))
        listener(Event(0, "plan", ["slr seed 0", "slr seed 1"]))
        listener(Event(1, "start"))
        bars = listener.bars  # type: ignore[attr-defined]
        assert [task.description for task in bars.tasks] == ["all runs", "slr seed 1"]
        assert bars.tasks[0].total == 2
    capsys.readouterr()

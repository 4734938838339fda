"""A time budget: fewer epochs if not one seed of every method fits, and nothing begun that cannot end in time."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adaptive_labels.lab import machine
from adaptive_labels.lab.config import ConfigError, RunConfig, from_dict
from adaptive_labels.lab.data import Dataset
from adaptive_labels.lab.experiments import budget as budgets
from adaptive_labels.lab.experiments.comparison import make_plan, run_plan
from adaptive_labels.lab.experiments.plan import Plan
from adaptive_labels.lab.machine import TimeBudget


class Clock:
    """A clock that is set by hand, in the place of the module `time`."""

    now = 1000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    set_by_hand = Clock()
    monkeypatch.setattr(machine, "time", set_by_hand)
    return set_by_hand


def quick(data: Path, **training: Any) -> RunConfig:
    options = {"buckets": 128, "dim": 8}
    training = {"epochs": 20, "threads": 1, "batch_size": 16, **training}
    return from_dict({"data": {"name": str(data)}, "training": training, "model": {"options": options}})


Planned = Callable[..., Plan]


@pytest.fixture
def planned(tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch) -> Planned:
    """A plan of two methods with two seeds, of which each epoch is said to take so many seconds, in 100 s."""

    def plan(seconds: float, budget: float | TimeBudget = 100.0, **training: Any) -> Plan:
        def cost(config: RunConfig, dataset: Dataset, threads: int) -> float:
            return seconds * (config.training.epochs or 0)

        monkeypatch.setattr(budgets, "seconds_of_run", cost)
        config = quick(table, **training)
        limit = budget if isinstance(budget, TimeBudget) else TimeBudget(budget, machine.time.time())
        return make_plan(config, ["baseline", "alr"], [0, 1], tmp_path / "runs", workers=1, budget=limit)

    return plan


def test_if_one_seed_of_every_method_does_not_fit_there_are_fewer_epochs(planned: Planned) -> None:
    recipe = {"epochs": 40, "schedule": "step", "milestones": [20], "warmup": 4}
    plan = planned(4.0, **recipe)  # 320 s for the first seed
    training = plan.own[0].config.training
    assert training.epochs == 9  # as many as fit into 80 of the 100 s, of which a few moments have passed
    assert training.milestones == pytest.approx((4.5,))
    assert training.warmup == pytest.approx(0.9)
    assert plan.notes[-1] == "To stay within the time budget, every run has 9 instead of 40 epochs."
    assert plan.seconds == pytest.approx(4 * 9 * 4.0)
    whole = planned(0.9, **recipe)  # 72 s for the first seed: the second is not begun rather than both shortened
    assert whole.own[0].config.training.epochs == 40
    assert {entry.config.seed for entry in whole.own} == {0, 1}
    with pytest.raises(ConfigError, match=r"even one epoch and one seed of every method take longer: about 1,0\d\d s"):
        planned(400.0)


def test_every_method_has_its_first_seed_before_any_has_its_second(planned: Planned) -> None:
    order = [(0, "baseline"), (0, "alr"), (1, "baseline"), (1, "alr")]
    assert [(e.config.seed, e.config.method.name) for stage in planned(1.0).stages for e in stage] == order


def test_nothing_is_begun_that_cannot_end_in_time(planned: Planned, clock: Clock) -> None:
    plan = planned(0.5)
    first, second = plan.stages  # 20 s for each seed
    clock.now += 40
    assert budgets.fits(plan, second, slowness=2.9)
    assert not budgets.fits(plan, second, slowness=3.1)
    clock.now += 61
    assert not budgets.fits(plan, first, slowness=0.0)
    assert budgets.fits(dataclasses.replace(plan, budget=None), first, slowness=1e9)


def test_a_slower_machine_leaves_the_later_seeds_to_the_same_command(planned: Planned, clock: Clock) -> None:
    plan = planned(0.5, epochs=1)
    told = []

    def slow(event: Any) -> None:
        told.append(event.kind)
        clock.now += 55 if event.kind == "done" else 0

    runs, failed = run_plan(plan, slow, ["test"])
    assert (failed, told.count("done")) == ([], 2)
    assert {(run.config.method.name, run.config.seed) for run in runs} == {("baseline", 0), ("alr", 0)}


def test_what_a_budget_led_to_is_found_again(planned: Planned, tmp_path: Path) -> None:
    plan = planned(10.0)
    assert plan.own[0].config.training.epochs == 3
    assert not (tmp_path / "runs").exists()  # a plan alone leaves nothing behind
    budgets.keep_choice(plan)
    assert planned(20.0).own == plan.own
    assert planned(10.0, budget=200.0).own[0].config.training.epochs == 7  # another budget is another comparison
    for content in ("[]", "{", json.dumps({plan.budget.key: "x"} if plan.budget else {})):
        (tmp_path / "runs" / budgets.BUDGETS).write_text(content)
        assert planned(20.0).own[0].config.training.epochs == 1


def test_a_budget_begins_with_the_command(planned: Planned) -> None:
    plan = planned(2.0, budget=TimeBudget(100.0, time.time() - 50))  # the command has taken 50 s to start
    assert plan.own[0].config.training.epochs == 9
    with pytest.raises(ConfigError, match="time-budget is 60 s, but even one epoch"):
        planned(1.0, budget=TimeBudget(60.0, time.time() - 65))


def test_steps_are_measured_once_for_each_kind_of_run(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[RunConfig] = []
    monkeypatch.setattr(budgets, "seconds_of_step", lambda config, *_: measured.append(config) or 0.1)
    config = quick(table)
    plan = make_plan(config, ["baseline", "alr", "kd"], [0, 1], tmp_path, workers=1)
    assert len(measured) == 2  # kd asks a teacher as well; without its runs, baseline and alr cost the same
    data = plan.dataset
    steps, looked_at = 20 * -(-len(data.train) // 16), 20 * len(data.validation) + len(data.test)
    expected = 20 * budgets.EPOCH_SECONDS + 0.1 * (steps + looked_at / 16 / 3)
    assert plan.costs is not None
    assert [*plan.costs.values()] == pytest.approx([expected] * 2)


def test_a_step_is_measured(table: Path, tmp_path: Path) -> None:
    plan = make_plan(quick(table), ["baseline"], [0], tmp_path, workers=1, estimate=False)
    assert 0 < budgets.seconds_of_step(plan.own[0].config, plan.dataset, threads=1) < 1
    assert budgets.seconds_of_encoding(plan.own[0].config, plan.dataset) == 0.0

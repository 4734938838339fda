"""A time budget: what is made smaller before a comparison begins, and what happens when the machine is slower."""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from adaptive_labels.lab.cli.app import began
from adaptive_labels.lab.cli.compare import at_a_time
from adaptive_labels.lab.config import ConfigError, RunConfig, from_dict, to_dict
from adaptive_labels.lab.data import DataError, Dataset, load_dataset, read_once
from adaptive_labels.lab.data.encoders import embeddings
from adaptive_labels.lab.data.sources import images
from adaptive_labels.lab.experiments import budget as budgets, comparison, estimate
from adaptive_labels.lab.experiments.comparison import make_plan, run_plan
from adaptive_labels.lab.experiments.executors import Event, Job, LateError, Teller
from adaptive_labels.lab.experiments.plan import Budget, Plan, cost_key
from adaptive_labels.lab.models.pretrained import efficientnet_lite
from adaptive_labels.lab.models.pretrained.packages import is_offered
from adaptive_labels.lab.runs import list_runs, run_id
from adaptive_labels.lab.training.progress import Progress

WORDS = {"food": "bread soup rice", "music": "drum flute song", "sport": "ball goal race"}


class Clock:
    """A clock that is set by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.csv"
    pairs = [(word, label) for label, words in WORDS.items() for word in words.split()]
    rows = [f"{word} {number},{label}" for number in range(10) for word, label in pairs]
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(40):
            pixels = draw.integers(0, 255, (64, 64, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


def quick(data: Path, **training: Any) -> RunConfig:
    options = {"buckets": 128, "dim": 8}
    training = {"epochs": 20, "threads": 1, "batch_size": 16, **training}
    return from_dict({"data": {"name": str(data)}, "training": training, "model": {"options": options}})


def costing(seconds: Callable[[RunConfig, Dataset], float]) -> Callable[..., float]:
    """In the place of a measurement: what a run is said to cost."""
    return lambda config, dataset, *_: seconds(config, dataset)


def planned(config: RunConfig, seconds: Any, out: Path, monkeypatch: Any, **more: Any) -> Plan:
    monkeypatch.setattr(comparison, "seconds_of_run", costing(seconds))
    return make_plan(config, ["baseline", "alr"], [0, 1], out, workers=1, time_budget=100.0, **more)


def by_epochs(config: RunConfig, dataset: Dataset) -> float:
    return float(config.training.epochs or 0)


def test_epochs_are_cut_first_and_the_whole_recipe_with_them(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = {"epochs": 40, "schedule": "step", "milestones": [20], "warmup": 4}
    plan = planned(quick(texts, **recipe), by_epochs, tmp_path, monkeypatch)
    training = plan.configs[0].training
    assert 15 <= (training.epochs or 0) <= 20  # 4 runs of as many seconds in 80 of the 100
    assert training.milestones == pytest.approx(((training.epochs or 0) / 2,))
    assert training.warmup == pytest.approx((training.epochs or 0) / 10)
    assert "every run has" in plan.notes[-1]


def test_images_then_the_network_then_the_examples_then_the_seeds_are_made_smaller(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at(speed: float) -> Plan:
        def seconds(config: RunConfig, dataset: Dataset) -> float:
            size = dataset.train.inputs.shape[-1]  # type: ignore[union-attr]
            width = 8 if "w8" in str(config.model.name) else 16
            return (config.training.epochs or 0) * len(dataset.train) * size**2 * width / speed

        config = from_dict({"data": {"name": str(photos)}, "training": {"threads": 1}})
        return planned(config, seconds, tmp_path, monkeypatch)

    whole, pixels, network, share = at(1e8), at(5e5), at(4e4), at(1e4)
    assert whole.dataset.train.inputs.shape[-1] == 64  # type: ignore[union-attr]
    assert whole.configs[0].training.epochs == 20
    assert pixels.dataset.train.inputs.shape[-1] < 64  # type: ignore[union-attr]
    assert pixels.configs[0].model.name == "preact-resnet18-w16"
    assert any("images are 32 pixels wide and high" in note for note in pixels.notes)
    assert network.configs[0].model.name == "preact-resnet18-w8"
    assert share.configs[0].data.train_fraction < 1
    assert {config.seed for config in share.configs} == {0, 1}
    least = at(300)
    assert {config.seed for config in least.configs} == {0}
    (note,) = (note for note in least.notes if "there is one seed" in note)
    assert note == (
        "To stay within the time budget, images are 16 pixels wide and high, the network is preact-resnet18-w8, "
        "a share of 0.01 of the training examples is used, there is one seed."
    )
    with pytest.raises(ConfigError, match="even one epoch and one seed of the smallest comparison take longer"):
        at(1.0)


def test_a_smaller_comparison_that_is_finished_is_named_and_found_again(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seconds(config: RunConfig, dataset: Dataset) -> float:
        return 1.0 if dataset.train.inputs.shape[-1] < 64 else 100.0  # type: ignore[union-attr]

    config = from_dict({"data": {"name": str(photos)}, "training": {"threads": 1}})
    for one in planned(config, seconds, tmp_path, monkeypatch).configs:  # as another command has left them
        folder = tmp_path / run_id(to_dict(one))
        folder.mkdir()
        (folder / "result.json").touch()
    done = planned(config, seconds, tmp_path, monkeypatch)
    assert not done.todo
    assert any("images are 32 pixels wide and high" in note for note in done.notes)
    budgets.keep_choice(done)
    assert planned(config, seconds, tmp_path, monkeypatch).configs == done.configs


def test_what_the_user_gave_is_kept(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(config: RunConfig, dataset: Dataset) -> float:
        return (config.training.epochs or 0) * len(dataset.train) / 10

    values = {"data": {"name": str(photos), "image_size": 40}, "model": {"name": "resnet32-w8"}}
    plan = planned(from_dict(values), seconds, tmp_path, monkeypatch)
    assert plan.dataset.train.inputs.shape[-1] == 40  # type: ignore[union-attr]
    assert plan.configs[0].model.name == "resnet32-w8"
    assert plan.configs[0].data.train_fraction < 1


def test_every_method_has_its_first_seed_before_any_has_its_second(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(quick(texts), by_epochs, tmp_path, monkeypatch)
    assert [(run.seed, run.method.name) for run in plan.jobs] == [
        (0, "baseline"),
        (0, "alr"),
        (1, "baseline"),
        (1, "alr"),
    ]


def at_step(done: int, seconds_left: float) -> Progress:
    return Progress(1, 10, done, 100, 1.0, 0.5, 0.1, 100.0, seconds_left)


def test_a_run_that_cannot_end_in_its_time_stops_as_soon_as_that_is_clear() -> None:
    clock = Clock()
    heard: list[Event] = []
    job = Job("run", {}, "out", (), allowed=60.0, latest=1200.0)
    teller = Teller(3, job, heard.append, clock)
    clock.now += 1
    teller.progress(at_step(1, 500.0))  # the first steps say little
    clock.now += 10
    teller.progress(at_step(20, 45.0))
    with pytest.raises(LateError, match="about 81 s instead of the 60 s that are left") as late:
        teller.progress(at_step(21, 70.0))
    assert late.value.seconds == pytest.approx(81.0)
    clock.now = 1201.0
    with pytest.raises(LateError, match="the time budget is used up"):
        Teller(3, job, heard.append, clock).progress(at_step(99, 0.1))
    assert len(heard) == 4


def test_a_slower_machine_leads_to_fewer_epochs_then_to_fewer_seeds(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    config = quick(texts, schedule="step", milestones=[10])
    plan = planned(config, lambda *given: by_epochs(*given) / 2, tmp_path, monkeypatch)
    plan = dataclasses.replace(plan, budget=Budget(100.0, clock.now, "key", clock))
    first, _ = plan.stages  # one for each seed
    assert budgets.stretch(plan, first) == pytest.approx(100 / 20)  # the second seed can be left out
    assert budgets.stretch(plan, plan.stages[1]) is None
    clock.now += 40
    assert budgets.fits(plan, plan.stages[1], slowness=2.9)
    assert not budgets.fits(plan, plan.stages[1], slowness=3.1)
    slower = budgets.replanned(plan, [(first[0], 50.0)])  # instead of 10 s: five times as slow
    assert slower.configs[0].training.epochs == 9  # 80% of 60 s, at 100 s for the first seed with 20
    assert slower.configs[0].training.milestones == (4.5,)
    assert slower.costs is not None
    assert slower.costs[cost_key(first[0])] == pytest.approx(22.5)  # five times as much, for 9 of 20 epochs
    clock.now += 100
    assert not budgets.fits(plan, first, slowness=1.0)
    assert budgets.replanned(plan, [(first[0], 100.0)]).configs[0].training.epochs == 1


def test_a_comparison_on_a_slower_machine_is_planned_again_while_it_runs(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = comparison.seconds_of_run
    monkeypatch.setattr(comparison, "seconds_of_run", lambda *given: real(*given) / 30)  # far too hopeful
    out = tmp_path / "runs"
    make_plan(quick(texts), ["baseline"], [0], out)  # what has to be imported is
    config = quick(texts, epochs=1_000_000)
    plan = make_plan(config, ["baseline", "slr"], [0, 1], out, workers=1, time_budget=12.0)
    hopeful = plan.configs[0].training.epochs
    heard: list[Event] = []
    runs, failed = run_plan(plan, heard.append, ["test"])
    assert failed == []
    assert any(event.kind == "late" for event in heard)
    plans = [place for place, event in enumerate(heard) if event.kind == "plan"]
    assert plans[0] == 0
    for begin, end in itertools.pairwise([*plans, len(heard)]):  # every event is of a job of the plan before it
        assert all(event.job < len(heard[begin].data) for event in heard[begin + 1 : end])
    assert len(plans) > 1
    (kept,) = json.loads((out / "time-budgets.json").read_text()).values()
    assert kept["epochs"] < hopeful
    assert {(run.result or {})["epochs"] for run in runs} <= {kept["epochs"]}
    others = [run for run in list_runs(out) if run.config.training.epochs != kept["epochs"]]
    assert all(run.finished for run in others)  # what was only begun with more epochs is gone
    again = make_plan(config, ["baseline", "slr"], [0, 1], out, workers=1, time_budget=12.0)
    assert again.configs[0].training.epochs == kept["epochs"]
    assert len(again.configs) - len(again.todo) == len(runs)


def test_a_budget_kept_by_an_earlier_version_is_understood(texts: Path, tmp_path: Path) -> None:
    config = quick(texts, epochs=100_000)
    plan = make_plan(config, ["baseline"], [0], tmp_path, workers=1, time_budget=30.0)
    assert plan.budget is not None
    (tmp_path / budgets.BUDGETS).write_text(json.dumps({plan.budget.key: 3}))
    assert make_plan(config, ["baseline"], [0], tmp_path, time_budget=30.0).configs[0].training.epochs == 3
    (tmp_path / budgets.BUDGETS).write_text(json.dumps({plan.budget.key: {"epochs": "x"}}))
    assert (make_plan(config, ["baseline"], [0], tmp_path, time_budget=30.0).configs[0].training.epochs or 0) > 3


def test_a_budget_begins_with_the_command(texts: Path, tmp_path: Path) -> None:
    _, budget, _ = at_a_time(None, 60.0, None)
    assert budget is not None
    assert budget.began == began()
    late = Budget(60.0, time.time() - 20)  # the command has taken 20 s to start
    plan = make_plan(quick(texts), ["baseline"], [0], tmp_path, workers=1, time_budget=late)
    assert plan.importing >= 20  # another process takes as long
    assert plan.budget is not None
    assert plan.budget.left < 40


def test_files_are_read_and_steps_measured_once_however_much_is_tried(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, measured = [], []
    real = images.decode_files
    monkeypatch.setattr(images, "decode_files", lambda *given, **more: read.append(more) or real(*given, **more))
    monkeypatch.setattr(estimate, "_seconds_of_step", lambda config, *_: measured.append(config) or 400.0)
    values = {"data": {"name": str(photos), "image_size": 16}, "model": {"name": "resnet32-w8"}}
    with pytest.raises(ConfigError, match="even one epoch"):
        make_plan(from_dict(values), ["baseline"], [0, 1], tmp_path, workers=1, time_budget=100.0)
    assert len(read) == 1
    assert len(measured) == 1  # for four shares of the examples


def test_small_images_are_read_once_for_a_pretrained_network_and_one_from_scratch(photos: Path) -> None:
    with read_once():
        first = load_dataset(str(photos), largest_size=224)
        for path in photos.rglob("*.png"):
            path.unlink()
        assert load_dataset(str(photos)).fingerprint == first.fingerprint
        with pytest.raises(DataError):
            load_dataset(str(photos), image_size=32)
    with pytest.raises(DataError):
        load_dataset(str(photos))


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ALR_ENCODERS", "on")
    if not is_offered(efficientnet_lite.PACKAGE):
        pytest.skip(f"{efficientnet_lite.PACKAGE} is not installed")
    monkeypatch.setenv("ALR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(comparison, "seconds_of_run", costing(lambda *_: 1.0))


@pytest.mark.usefixtures("encoder")
def test_a_pretrained_network_sees_smaller_images_before_it_is_given_up(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pixels(config: RunConfig, dataset: Dataset, *_: Any) -> float:
        size = config.model.options.get("input_size", 160)
        return 0.003 * size**2 if config.model.name == "efficientnet-lite0" else 0.0

    monkeypatch.setattr(comparison, "seconds_of_encoding", pixels)
    config = from_dict({"data": {"name": str(photos)}, "training": {"threads": 1}})
    plan = make_plan(config, ["baseline"], [0], tmp_path, workers=1, time_budget=100.0, encode=False)
    assert plan.configs[0].model.options["input_size"] == 112
    assert "To stay within the time budget, the pretrained network sees images of 112 pixels." in plan.notes
    assert not (tmp_path / "cache").exists()  # a plan alone leaves nothing behind


@pytest.mark.usefixtures("encoder")
def test_an_encoder_that_is_slower_than_it_seemed_is_given_up_in_time(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "seconds_of_encoding", lambda config, *_: float("net-lite" in str(config.model)))

    clock = Clock()
    monkeypatch.setattr(embeddings, "time", SimpleNamespace(time=clock))

    class Slow(torch.nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            clock.now += 0.4 * len(inputs)
            return torch.zeros(len(inputs), efficientnet_lite.FEATURES)

    backbone = dataclasses.replace(efficientnet_lite.BACKBONE, load=Slow)
    monkeypatch.setattr(efficientnet_lite, "BACKBONE", backbone)
    config = from_dict({"data": {"name": str(photos)}, "training": {"threads": 1}})
    budget = Budget(40.0, clock.now, "", clock)  # all 80 images take 32 s, and there are three sizes of them
    plan = make_plan(config, ["baseline"], [0], tmp_path, workers=1, time_budget=budget)
    assert plan.configs[0].model.name == budgets.SMALLEST_NETWORK
    assert budget.left > 7  # encoding was tried once at most
    assert any("the network is preact-resnet18-w8" in note for note in plan.notes)


def test_a_budget_that_is_used_up_before_training_is_refused_at_once(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison.build, "load_data", lambda *_: pytest.fail("the data is read"))
    words = r"time-budget is 60 s, but 6\d s have passed before anything could be trained"
    with pytest.raises(ConfigError, match=words):
        make_plan(quick(texts), ["baseline"], [0], tmp_path, time_budget=Budget(60.0, time.time() - 65))


@pytest.mark.parametrize(("seconds", "importing", "end"), [(100, 3, 112), (20, 3, 21), (20, 6, 18), (20, 15, 16)])
def test_what_ends_the_command_has_its_time(
    texts: Path, tmp_path: Path, seconds: float, importing: float, end: float
) -> None:
    plan = make_plan(quick(texts), ["baseline"], [0], tmp_path, estimate=False)
    assert budgets.latest_moment(plan) is None
    plan = dataclasses.replace(plan, budget=Budget(seconds, 1000.0), importing=importing)
    assert budgets.latest_moment(plan) == pytest.approx(1000 + end)

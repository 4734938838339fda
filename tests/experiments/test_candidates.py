"""The network is chosen by the baseline on validation, before any method is trained; choosing again costs nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import adaptive_labels
from adaptive_labels.lab.config import RunConfig, changed, from_dict
from adaptive_labels.lab.experiments import budget as budgets, build, candidates
from adaptive_labels.lab.experiments.candidates import choose_network
from adaptive_labels.lab.machine import TimeBudget
from adaptive_labels.lab.runs import CANDIDATES, list_runs
from run_maker import sealed_again

WORDS = {"food": "bread soup rice", "music": "drum flute song", "sport": "ball goal race"}
QUICK: dict[str, Any] = {"training": {"epochs": 1, "threads": 1}}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "texts.csv"
    pairs = [(word, label) for label, words in WORDS.items() for word in words.split()]
    rows = [f"{word} {number},{label}" for number in range(10) for word, label in pairs]
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def compared(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished comparison of networks that were tried first, and then of methods. Tests read it."""
    out = tmp_path_factory.mktemp("compared")
    adaptive_labels.compare(table, ["baseline", "slr"], 1, out=out, settings=QUICK)
    return out


def chosen(table: Path, out: Path, train: Any = None, **more: Any) -> tuple[str | None, str]:
    config = changed(from_dict(QUICK), "data", name=str(table))
    found, _, why = choose_network(config, 0, build.load_data(config.data), out, train, **more)
    return found.model.name, " ".join(why)


def never(plan: Any) -> None:
    raise AssertionError(f"{len(plan.todo)} runs are trained again")


def reached(folder: Path) -> float:
    found: float = json.loads((folder / "result.json").read_text())["metrics"]["validation"]["top1"]
    return found


def test_the_best_on_validation_is_compared_and_its_run_is_the_comparison_s_own(table: Path, compared: Path) -> None:
    tried = {run.config.model.name: run.path for run in list_runs(compared / CANDIDATES)}
    assert set(tried) == {"linear", "fasttext"}
    runs = list_runs(compared)  # without those that were tried
    (best,) = {str(run.config.model.name) for run in runs}
    assert reached(tried[best]) == max(map(reached, tried.values()))
    assert [run.config.method.name for run in runs] == ["baseline", "slr"]
    assert (runs[0].path / "result.json").read_bytes() == (tried[best] / "result.json").read_bytes()

    again = adaptive_labels.compare(table, ["baseline", "slr"], 1, out=compared, settings=QUICK)
    said = f"The network is the best of 2 by the baseline on validation: {best} {100 * reached(tried[best]):.1f}% and "
    assert said in str(again)
    name, why = chosen(table, compared, never)
    assert name == best
    assert why.startswith(f"The network is {best}: with it the baseline reaches {100 * reached(tried[best]):.1f}%")
    assert "--model skips this" in why


def test_only_validation_decides(table: Path, compared: Path, tmp_path: Path) -> None:
    """The same two runs, with figures of our own."""
    out = tmp_path / "runs"
    (out / CANDIDATES).mkdir(parents=True)
    for run in list_runs(compared / CANDIDATES):
        run.path.rename(out / CANDIDATES / run.name)
    try:
        for best in ("fasttext", "linear"):
            for run in list_runs(out / CANDIDATES):
                ahead = run.config.model.name == best
                metrics = {"validation": {"top1": 0.75 if ahead else 0.5}, "test": {"top1": 0.1 if ahead else 0.9}}
                sealed_again(run.path, metrics=metrics)
            name, why = chosen(table, out, never)
            assert name == best
            assert "75.0% on validation" in why
            assert "10.0" not in why
    finally:
        for run in list_runs(out / CANDIDATES):
            run.path.rename(compared / CANDIDATES / run.name)


def test_a_candidate_that_diverged_is_not_chosen(table: Path, tmp_path: Path) -> None:
    settings = {"training": {**QUICK["training"], "lr": 1e9}}
    runs = adaptive_labels.compare(table, ["baseline"], 1, out=tmp_path, settings=settings)
    assert [run.config.model.name for run in runs] == ["linear"]  # the first, where none is better


def test_a_dry_run_and_a_given_network_train_none(table: Path, tmp_path: Path) -> None:
    name, why = chosen(table, tmp_path)
    assert (name, list(tmp_path.iterdir())) == ("linear", [])
    assert why == "linear and fasttext would be tried first, with the baseline and one seed; this is linear."
    config = changed(RunConfig(), "data", name=str(table))
    for section, values in (("model", {"name": "fasttext"}), ("model", {"options": {"buckets": 64}})):
        given = changed(config, section, **values)
        assert choose_network(given, 0, build.load_data(given.data), tmp_path, never)[0] == given


@pytest.mark.parametrize(("seconds", "tried"), [(60.0, 2), (6.0, 0)])
def test_a_time_budget_leaves_a_fifth_to_the_candidates(
    table: Path, tmp_path: Path, monkeypatch: Any, seconds: float, tried: int
) -> None:
    monkeypatch.setattr(budgets, "seconds_of_run", lambda *_: 1.0)  # each, of 12 s or of 1.2 s
    plans: list[Any] = []
    _, why = chosen(table, tmp_path, plans.append, budget=TimeBudget(seconds))
    assert [len(plan.todo) for plan in plans] == [tried] * bool(tried)
    assert ("no room to try several networks" in why) == (not tried)


def test_large_images_are_read_as_large_as_each_network_wants_them(tmp_path: Path, monkeypatch: Any) -> None:
    from PIL import Image

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(8):
            size = (90 + number, 120)
            Image.new("RGB", size, (30 * number, 10, 99)).save(tmp_path / name / f"{name}{number}.png")
    monkeypatch.setattr(candidates, "candidates", lambda *_: ("preact-resnet18-w16", "linear-pixels"))
    config = changed(from_dict(QUICK), "data", name=str(tmp_path))
    large = build.load_dataset(str(tmp_path), largest_size=224)
    plans: list[Any] = []
    choose_network(config, 0, large, tmp_path / "runs", plans.append)
    assert {plan.dataset.train.inputs.shape[2:] for plan in plans} == {(64, 64)}

"""The parts of a comparison: its methods as a text, shorter recipes, a plan that is plain data."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import adaptive_labels
from adaptive_labels.lab.analysis import read_run_records
from adaptive_labels.lab.config import ConfigError, TrainingConfig, from_dict
from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.experiments.budget import shortened
from adaptive_labels.lab.experiments.comparison import make_plan, parse_methods, run_plan
from adaptive_labels.lab.experiments.plan import Plan
from adaptive_labels.lab.experiments.resolve import resolve_for
from adaptive_labels.lab.experiments.run import execute
from adaptive_labels.lab.runs import RunFolder
from adaptive_labels.lab.training.schedules import make_schedule
from run_maker import Maker

QUICK: dict[str, Any] = {
    "training": {"epochs": 2, "threads": 1, "batch_size": 16},
    "model": {"options": {"buckets": 128, "dim": 8, "dropout": 0.5}},
}


@pytest.mark.parametrize(
    ("text", "methods"),
    [
        ("baseline, alr ,alr", ["baseline", "alr"]),
        ("alr,alr:attraction=-2,alr:attraction=-2", ["alr", ("alr", {"attraction": -2})]),
        ("alr:attraction=-2:label_smoothing=0.1", [("alr", {"attraction": -2, "label_smoothing": 0.1})]),
        ("alr:update=self:residual_lr=0.5,", [("alr", {"update": "self", "residual_lr": 0.5})]),
        ("dml:peer_models=[a-w8,b],slr", [("dml", {"peer_models": ["a-w8", "b"]}), "slr"]),
        ("kd:teacher=C:/runs/t:alpha=0.3", [("kd", {"teacher": "C:/runs/t", "alpha": 0.3})]),
        ("kd:teacher_options.dim=32", [("kd", {"teacher_options": {"dim": 32}})]),
    ],
)
def test_methods_are_read_from_a_text(text: str, methods: list[Any]) -> None:
    assert parse_methods(text) == methods


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" , ", "methods is empty"),
        ("alr,:attraction=2", "':attraction=2': options are written as NAME:OPTION=VALUE"),
        ("alr:attraction", "'alr:attraction': options are written as NAME:OPTION=VALUE"),
    ],
)
def test_methods_that_cannot_be_read_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_methods(text)


def test_an_option_that_a_method_does_not_have_is_a_sentence(table: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"method: .*atraction"):
        adaptive_labels.compare(table, "baseline,alr:atraction=-2", 1, out=tmp_path / "runs", settings=QUICK)
    assert not (tmp_path / "runs").exists()


def test_one_method_with_several_options_is_several_rows(table: Path, tmp_path: Path) -> None:
    methods = "alr,alr:attraction=-2,slr:label_smoothing=0.3"
    runs = adaptive_labels.compare(table, methods, 1, out=tmp_path / "runs", settings=QUICK)
    labels = {record.label for record in read_run_records(runs)}
    assert labels == {"alr", "alr (attraction=-2)", "slr"}


def test_a_shorter_run_falls_and_warms_up_at_the_same_share() -> None:
    long = TrainingConfig(
        epochs=200, batch_size=8, optimizer="sgd", lr=0.1, weight_decay=0.0, schedule="step",
        milestones=(60, 120), warmup=20, augment=False,
    )  # fmt: skip
    short = shortened(long, 10)
    assert (short.epochs, short.milestones, short.warmup) == (10, (3.0, 6.0), 1.0)
    factors = make_schedule(short, 100), make_schedule(long, 100)
    for share in (0.0, 0.2, 0.29, 0.31, 0.59, 0.61, 0.999):
        ours, theirs = (factor(int(share * epochs * 100)) for factor, epochs in zip(factors, (10, 200), strict=True))
        assert ours == pytest.approx(theirs, abs=0.02)
    assert factors[0](999) == pytest.approx(0.01)


def test_a_plan_does_not_read_the_disk(table: Path, tmp_path: Path) -> None:
    config = from_dict({**QUICK, "data": {"name": str(table)}})
    plan = make_plan(config, ["baseline", "slr"], [0], tmp_path / "runs", workers=1, estimate=False)
    assert [entry.config.method.name for entry in plan.todo] == ["baseline", "slr"]
    runs, failed = run_plan(plan, lambda event: None, ["test"])
    assert (len(runs), failed) == (2, [])
    assert len(plan.todo) == 2  # as it was when the plan was made
    again = make_plan(config, ["baseline", "slr"], [0], tmp_path / "runs", workers=1, estimate=False)
    assert (again.todo, again.stages) == ((), ())


def test_a_plan_orders_what_its_runs_learn_from(table: Path, tmp_path: Path) -> None:
    config = from_dict({**QUICK, "data": {"name": str(table)}})
    methods = [("label-refinery", {"generations": 2}), "kd", "baseline"]

    def plan() -> Plan:
        return make_plan(config, methods, [0], tmp_path, workers=1, estimate=False)

    refinery, kd, baseline = plan().own
    (first,) = plan().first  # the baseline is asked for, and so is not among them
    assert (first.config.method.options, first.teacher) == ({"generations": 1}, baseline.folder)
    assert (refinery.teacher, kd.teacher, baseline.teacher) == (first.folder, baseline.folder, None)
    assert [[entry.folder for entry in stage] for stage in plan().stages] == [
        [baseline.folder],
        [first.folder, kd.folder],
        [refinery.folder],
    ]
    Maker(tmp_path).finish(RunFolder.create(first.folder, first.config), {})
    assert {entry.folder for entry in plan().todo} == {baseline.folder, kd.folder, refinery.folder}
    methods.pop()  # then the baseline is needed for kd alone
    assert [entry.folder for entry in plan().first] == [baseline.folder, first.folder]
    Maker(tmp_path).finish(RunFolder.create(kd.folder, kd.config), {})
    assert [entry.folder for entry in plan().todo] == [refinery.folder]


def test_a_run_does_not_do_the_run_that_it_learns_from(table: Path, tmp_path: Path) -> None:
    config = from_dict({**QUICK, "data": {"name": str(table)}})
    plan = make_plan(config, ["kd"], [0], tmp_path, workers=1, estimate=False)
    with pytest.raises(ConfigError, match="kd learns from another run: there is no folder"):
        execute(plan.job(plan.own[0], []), build.prepare_data(plan.own[0].config, plan.dataset))
    assert not plan.own[0].folder.exists()


def test_the_encoder_is_fitted_once_for_all_methods(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = []
    real = build.fit_encoder
    monkeypatch.setattr(build, "fit_encoder", lambda *given: fitted.append(given) or real(*given))
    config = from_dict({**QUICK, "data": {"name": str(table)}})
    run_plan(make_plan(config, ["baseline", "slr", "alr"], [0, 1], tmp_path, workers=1), lambda event: None, [])
    assert len(fitted) == 1


def test_prepared_data_is_shared_as_a_memory_map(table: Path, tmp_path: Path) -> None:
    config = from_dict({**QUICK, "data": {"name": str(table)}})
    dataset = build.load_data(config.data)
    resolved, _ = resolve_for(config, dataset)
    prepared = build.prepare_data(resolved, dataset)
    assert build.save_prepared(prepared, tmp_path / "data.pt")
    loaded = build.load_prepared(str(tmp_path / "data.pt"))
    assert loaded.dataset.fingerprint == dataset.fingerprint
    assert loaded.dataset.test.inputs == dataset.test.inputs
    assert loaded.dataset.train.labels.equal(dataset.train.labels)
    assert str(tmp_path / "data.pt") in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, pytest.param(ProcessPoolExecutor, marks=pytest.mark.slow)])
def test_any_executor_gives_the_same_figures(table: Path, tmp_path: Path, kind: Any) -> None:
    def figures(runs: Any) -> list[Any]:
        return [(run.name, (run.result or {})["metrics"]) for run in runs]

    expected = adaptive_labels.compare(table, "baseline,alr", 2, out=tmp_path / "here", settings=QUICK)
    context = {"mp_context": get_context("spawn")} if kind is ProcessPoolExecutor else {}
    with kind(2, **context) as executor:
        found = adaptive_labels.compare(
            table, "baseline,alr", 2, out=tmp_path / "there", executor=executor, settings=QUICK
        )
    assert figures(found) == figures(expected)
    assert not list((tmp_path / "there").glob(".*"))


def test_methods_that_are_the_same_run_are_planned_once(table: Path, tmp_path: Path) -> None:
    config = from_dict({**QUICK, "data": {"name": str(table)}})
    methods = ["dml", ("dml", {"peers": 2})]  # as many as without the option
    plan = make_plan(config, methods, [0, 1, 1], tmp_path / "runs", estimate=False)
    assert [entry.config.seed for entry in plan.own] == [0, 1]

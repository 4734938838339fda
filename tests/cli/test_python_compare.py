"""`adaptive_labels.compare`: in Python what `alr compare` does."""

from __future__ import annotations

import json

import pytest
from cli_parts import metrics

import adaptive_labels
from adaptive_labels.lab.analysis import read_run_records
from adaptive_labels.lab.config import ConfigError
from adaptive_labels.lab.experiments import comparison
from adaptive_labels.lab.runs import list_runs

QUICK = {"training": {"epochs": 1, "threads": 1}, "model": {"options": {"buckets": 512, "dim": 16}}}


def test_the_name_is_lazy():
    assert "compare" in adaptive_labels.__all__
    assert adaptive_labels.compare is adaptive_labels.lab.experiments.comparison.compare


def test_it_returns_the_runs(texts, tmp_path):
    methods = ["baseline", ("alr", {"attraction": -2.0})]
    runs = adaptive_labels.compare(str(texts), methods, seeds=[3, 5], out=tmp_path, settings=QUICK)
    assert [(run.config.method.name, run.config.seed) for run in runs] == [
        ("baseline", 3),
        ("baseline", 5),
        ("alr", 3),
        ("alr", 5),
    ]
    assert runs[2].config.method.options == {"attraction": -2.0}
    assert len(read_run_records(runs)) == 4
    before = metrics(tmp_path)
    again = adaptive_labels.compare(texts, methods, seeds=[3, 5], out=tmp_path, settings=QUICK)
    assert [run.path for run in again] == [run.path for run in runs]
    assert metrics(tmp_path) == before


def test_it_has_the_table_and_the_verdict(compared):
    runs = comparison.Compared(list_runs(compared))
    table = runs.table()
    assert "baseline" in table
    assert "alr" in table
    rows = [row for row in json.loads(runs.table("json")) if row["status"] == "finished"]
    assert [row["method"] for row in rows] == ["baseline", "alr"]
    assert "validation" in runs.verdict
    assert str(runs) == f"{table}\n{runs.verdict}"


def test_a_budget_in_which_no_run_was_finished_is_no_empty_table(texts, tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "run_plan", lambda *given, **more: ([], []))
    with pytest.raises(RuntimeError, match="no run was finished in 1e\\+06 s; the same call goes on"):
        adaptive_labels.compare(texts, "baseline", 1, out=tmp_path, settings=QUICK, time_budget=1e6)


def test_a_failed_run_is_raised_and_the_others_are_kept(texts, tmp_path):
    def call(out):
        return adaptive_labels.compare(texts, "baseline, slr", 1, out=out, settings=QUICK)

    first, second = call(tmp_path / "elsewhere")
    again = tmp_path / "again"
    locked = adaptive_labels.lab.runs.RunFolder.create(again / first.name, first.config)
    with locked.lock(), pytest.raises(RuntimeError, match=r"1 of 2 runs failed: baseline seed 0: .* is being written"):
        call(again)
    assert list(metrics(again)) == [second.name]
    assert len(call(again)) == 2
    assert metrics(again) == metrics(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"methods": ["arl"]}, "unknown method 'arl'; did you mean alr?"),
        ({"methods": []}, "there is nothing to compare: 0 methods and 5 seeds are given"),
        ({"seeds": 0}, "there is nothing to compare: 4 methods and 0 seeds are given"),
        ({"settings": {"training": {"epoch": 1}}}, "training.epoch"),
        ({"settings": {"data": 3}}, "data is 3: allowed is a table of settings"),
    ],
)
def test_bad_arguments(texts, tmp_path, arguments, message):
    with pytest.raises(ConfigError) as error:
        adaptive_labels.compare(texts, out=tmp_path / "runs", **arguments)
    assert message in str(error.value)
    assert not (tmp_path / "runs").exists()

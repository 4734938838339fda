"""`alr compare` and `alr tune`: all runs, whatever happens to one of them, the same figures however they are run."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from pathlib import Path

import pytest
from cli_parts import QUICK, files, is_running, metrics, results, wait_for, wait_until

FOUR_RUNS = ["--methods", "baseline,alr", "--seeds", 2, "--epochs", 4, *QUICK]


def test_everything_is_run_and_shown(alr, texts, tmp_path, compared):
    ended = alr("compare", texts, *FOUR_RUNS, "--workers", 1)
    assert (ended.status, ended.err) == (0, "")
    assert "Runs: 2 methods × 2 seeds, 4 in all, one after the other; about " in ended.out
    for count, name in enumerate(("baseline seed 0", "baseline seed 1", "alr seed 0", "alr seed 1"), start=1):
        (line,) = [line for line in ended.out.splitlines() if f"] {name}: validation accuracy " in line]
        assert line.startswith(f"[{count}/4, ")
        assert line.endswith(" after 4 epochs")
    assert "class  taken for  residual label %  test rate %  test examples" in ended.out
    assert "\n\n\n" not in ended.out
    report, blank, heading, *commands = ended.out.splitlines()[-6:]
    assert (report, blank, heading) == ("Report: runs/report.html", "", "Next:")
    suspects, predict, export = (shlex.split(command, comments=True) for command in commands)
    assert suspects == ["alr", "suspects", str(texts)]
    assert predict[:2] == ["alr", "predict"]
    assert alr(*predict[1:]).status == 0  # ready to paste
    assert alr(*export[1:], "-o", "exported", "--format", "safetensors").status == 0
    page = (tmp_path / "runs" / "report.html").read_text()
    assert "<html" in page
    assert "baseline" in page
    # The library does the same, to the last digit.
    assert metrics(tmp_path / "runs") == metrics(compared)

    before = files(tmp_path / "runs")
    again = alr("compare", texts, *FOUR_RUNS)
    assert again.status == 0
    assert "Runs: 2 methods × 2 seeds, 4 in all, all finished already.\n" in again.out
    assert "seed 0: validation accuracy" not in again.out
    assert files(tmp_path / "runs") == before

    told = alr("compare", texts, *FOUR_RUNS, "--json")  # all that is printed
    assert (told.err, {row["method"] for row in told.json if row["status"] == "finished"}) == ("", {"baseline", "alr"})

    more = alr("compare", texts, *FOUR_RUNS, "--seeds", 3, "--workers", 1)
    assert "6 in all, 4 of them finished already, one after the other" in more.out
    assert len(results(tmp_path / "runs")) == 6


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_dry_run_writes_nothing(alr, texts, tmp_path, as_json):
    ended = alr("compare", texts, *FOUR_RUNS, "--dry-run", *as_json)
    assert (ended.status, ended.err) == (0, "")
    assert list(tmp_path.iterdir()) == []
    if as_json:
        assert [(run["config"]["method"]["name"], run["config"]["seed"]) for run in ended.json["runs"]] == [
            ("baseline", 0),
            ("baseline", 1),
            ("alr", 0),
            ("alr", 1),
        ]
        assert ended.json["seconds"] > 0
    else:
        assert ended.out.count("\n  runs/small-fasttext-") == 4


def test_one_failed_run_does_not_lose_the_others(alr, texts, tmp_path, compared):
    from adaptive_labels.lab.runs import RunLock

    third = alr("compare", texts, *FOUR_RUNS, "--dry-run", "--json").json["runs"][2]
    Path(third["folder"]).mkdir(parents=True)
    with RunLock(third["folder"]):  # as if someone else were at it
        ended = alr("compare", texts, *FOUR_RUNS, "--workers", 1)
    assert ended.status == 1
    assert "[3/4, " in ended.out
    assert f"alr seed 0: failed: {third['folder']} is being written by this process" in ended.out
    assert ended.err.startswith(f"alr: 1 of 4 runs failed (alr seed 0: {third['folder']} is being written by ")
    assert ended.err.endswith("; the same command does what is missing\n")
    assert len(ended.err.splitlines()) == 1
    assert len(results(tmp_path / "runs")) == 3
    assert "baseline  2" in ended.out  # the table of what there is
    again = alr("compare", texts, *FOUR_RUNS, "--workers", 1)
    assert (again.status, again.err) == (0, "")
    assert "3 of them finished already" in again.out
    assert metrics(tmp_path / "runs") == metrics(compared)


def test_when_no_run_is_left_there_is_still_json(alr, texts):
    from adaptive_labels.lab.runs import RunLock

    command = ["compare", texts, "--methods", "slr", "--seeds", 1, "--epochs", 1, *QUICK, "--json"]
    (only,) = alr(*command, "--dry-run").json["runs"]
    Path(only["folder"]).mkdir(parents=True)
    with RunLock(only["folder"]):
        ended = alr(*command)
    assert (ended.status, ended.json) == (1, [])


def test_diverged_runs_are_left_out_and_said(alr, texts, tmp_path):
    ended = alr("compare", texts, "--methods", "baseline,slr", "--seeds", 1, "--epochs", 1, "--set", "lr=1e9", *QUICK)
    assert ended.status == 1
    assert ended.err == "alr: 2 of 2 runs diverged; the table says which and why\n"
    assert "Left out: baseline, seed 0: diverged: " in ended.out
    assert "] slr seed 0: diverged: " in ended.out


def test_an_interrupted_comparison_goes_on(start_alr, alr, texts, tmp_path):
    command = ["compare", texts, "--methods", "baseline,alr", "--seeds", 1, "--epochs", 40, *QUICK]
    process = start_alr(*command, "--workers", 2, "--out", "stopped", "--set", "checkpoint_seconds=0")
    wait_for(lambda: list((tmp_path / "stopped").glob("*/checkpoint/epoch-*.json")), process)
    workers = children_of(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C on a terminal does
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert err == "alr: stopped; the same command goes on from where it was\n"
    wait_until(lambda: not any(map(is_running, workers)))
    assert alr(*command, "--workers", 1, "--out", "stopped").status == 0
    assert alr(*command, "--workers", 1, "--out", "whole").status == 0
    assert metrics(tmp_path / "stopped") == metrics(tmp_path / "whole")


@pytest.mark.slow
def test_a_comparison_stopped_by_a_scheduler_keeps_what_its_workers_have_learnt(start_alr, texts, tmp_path):
    command = ["compare", texts, "--methods", "baseline,alr,slr", "--seeds", 1, "--epochs", 5000, *QUICK]
    process = start_alr(*command, "--workers", 2, "--set", "checkpoint_seconds=3600")
    wait_for(lambda: len(list((tmp_path / "runs").glob("*/history.jsonl"))) == 2, process)
    workers = children_of(process.pid)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 143
    assert err == "alr: stopped; the same command goes on from where it was\n"
    wait_until(lambda: not any(map(is_running, workers)))
    assert len({path.parent for path in (tmp_path / "runs").glob("*/checkpoint/epoch-*.json")}) == 2


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# ------------------------------------------------------------------------------------------------------- time budgets


def test_a_time_budget_shortens_all_runs_and_is_remembered(alr, texts, tmp_path):
    command = ["compare", texts, "--methods", "baseline,slr", "--seeds", 1, "--workers", 1, *QUICK]
    for _ in range(3):  # on a busy machine the budget can be over before the runs are; the same command goes on
        ended = alr(*command, "--epochs", 1000000, "--time-budget", "10s")
        if ended.status == 0:
            break
        assert (ended.status, "the same command goes on" in ended.err) == (1, True)
    assert (ended.status, ended.err) == (0, "")
    # Another measurement would give another number; the same command must find its own runs.
    again = alr(*command, "--epochs", 1000000, "--time-budget", "10s")
    assert "all finished already" in again.out
    (epochs,) = {result["epochs"] for result in results(tmp_path / "runs").values()}
    assert f"every run has {epochs} instead of 1000000 epochs." in again.out


def test_a_time_budget_that_nothing_fits_into_is_refused(alr, texts, tmp_path):
    ended = alr("compare", texts, "--seeds", 40, "--workers", 1, "--time-budget", "0.001s", *QUICK)
    assert ended.status == 2
    assert re.match(r"alr: time-budget is 0\.001 s, but even one epoch ", ended.err)
    assert len(ended.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


# --------------------------------------------------------------------------------------------------------------- tune


def test_tune_chooses_on_validation_and_says_how_to_use_it(alr, texts, tmp_path):
    command = ["tune", texts, "--method", "slr", "--trials", 3, "--epochs", 4, "--workers", 1, *QUICK]
    ended = alr(*command)
    assert (ended.status, ended.err) == (0, "")
    assert "Runs: slr with label_smoothing = 0.02, 0.1, 0.5, 1 seed each, 3 in all" in ended.out
    assert "] slr label_smoothing 0.5 seed 0: validation accuracy " in ended.out
    found = {
        json.loads((tmp_path / "runs" / name / "config.json").read_text())["method"]["options"]["label_smoothing"]: run
        for name, run in results(tmp_path / "runs").items()
    }
    assert set(found) == {0.02, 0.1, 0.5}
    best = max(found.values(), key=lambda run: run["metrics"]["validation"]["top1"])["metrics"]
    told = alr(*command, "--json").json
    assert found[told["best"]]["metrics"]["validation"]["top1"] == best["validation"]["top1"]
    assert told["test_top1"] == found[told["best"]]["metrics"]["test"]["top1"]
    assert ended.out.endswith(f"To use it: --set method.options.label_smoothing={told['best']:g}\n")


def test_when_no_trial_is_finished_it_is_said_why_and_there_is_still_json(alr, texts):
    from adaptive_labels.lab.runs import RunLock

    command = ["tune", texts, "--method", "slr", "--trials", 1, "--epochs", 1, *QUICK, "--json"]
    (only,) = alr(*command, "--dry-run").json["runs"]
    Path(only["folder"]).mkdir(parents=True)
    with RunLock(only["folder"]):
        ended = alr(*command)
    assert (ended.status, ended.json["trials"], ended.json["best"]) == (1, [], None)
    assert ended.err.startswith("alr: no trial finished\nalr: 1 of 1 run failed (slr seed 0: ")
    assert "is being written by" in ended.err


# ---------------------------------------------------------------------------------------------------------- executors


def test_an_executor_of_one_s_own_does_the_runs(alr, texts, tmp_path, compared):
    from concurrent.futures import ThreadPoolExecutor

    from adaptive_labels.lab.jobs import EXECUTORS, register_executor

    asked = []

    @register_executor("own")
    def make(workers):
        asked.append(workers)
        return ThreadPoolExecutor(1)

    try:
        ended = alr("compare", texts, *FOUR_RUNS, "--workers", 1, "--executor", "own")
    finally:
        del EXECUTORS["own"]
    assert (ended.status, ended.err) == (0, "")
    assert asked == [1]
    assert metrics(tmp_path / "runs") == metrics(compared)

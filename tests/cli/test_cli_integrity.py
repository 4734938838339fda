"""Every byte of a run that decides a result is checked when it is read."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from cli_parts import QUICK, metrics, results

from adaptive_labels.lab import files
from adaptive_labels.lab.runs import RunFolder, check, integrity

FIXTURES = Path(__file__).parents[1] / "runs" / "fixtures"
SETTINGS = {
    "model.options.buckets": 16, "model.options.dim": 2, "model.options.hidden": 0, "model.options.dropout": 0,
    "training.batch_size": 32, "training.lr": 0.05, "training.threads": 1,
}  # fmt: skip
SET = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
FILES = (
    "config.json", "encoder.json", "environment.json", "examples.json", "history.jsonl", "model.safetensors",
    "predictions.npz", "residual_labels.npz", "result.json",
)  # fmt: skip


def damages(data: bytes) -> dict[str, bytes]:
    middle = len(data) // 2
    return {
        "empty": b"",
        "half": data[:middle],
        "zeroed": data[:middle] + bytes(16) + data[middle + 16 :],
        "flipped at the start": bytes([data[0] ^ 1]) + data[1:],
        "flipped in the middle": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "longer": data + b"\0",
    }


@pytest.fixture
def mine(compared, tmp_path):
    """A copy of finished runs; the second is a run of alr, whose folder is given too."""
    shutil.copytree(compared, tmp_path / "mine")
    return tmp_path / "mine", next(iter(sorted((tmp_path / "mine").glob("*-alr-s0-*"))))


def test_check_names_every_damage_to_every_file(mine):
    run = RunFolder(mine[1])
    assert check(run) == []
    assert set(run.hashes) == {*FILES} - {"result.json"}
    for name in FILES:
        path = run.path / name
        data = path.read_bytes()
        for kind, damaged in damages(data).items():
            path.write_bytes(damaged)
            assert any(name in problem for problem in check(run)), (name, kind)
        path.unlink()
        if name not in ("result.json", "config.json"):  # without the one it is unfinished, without the other no run
            assert any(f"{name} is missing" in problem for problem in check(run)), name
        path.write_bytes(data)
    assert check(run) == []


def test_a_changed_digit_of_a_result_is_noticed(alr, mine):
    path = mine[1] / "result.json"
    result = json.loads(path.read_text())
    result["metrics"]["test"]["top1"] = 0.99
    path.write_text(json.dumps(result))
    assert "result.json is damaged: its content is not what was written." in alr("runs", "check", mine[0]).out
    assert "damaged (see alr runs check)" in alr("runs", "list", mine[0]).out
    table = alr("table", mine[0])
    assert "99.00" not in table.out
    assert "result.json is damaged" in table.out


@pytest.mark.parametrize("name", ["config.json", "encoder.json", "model.safetensors", "predictions.npz"])
def test_a_damaged_run_neither_predicts_nor_teaches(alr, mine, texts, name):
    path = mine[1] / name
    path.write_bytes(path.read_bytes().replace(b"1", b"2") + b" ")
    teach = ["train", texts, *QUICK, "--method", "kd", "--set", f"method.options.teacher={mine[1]}"]
    for command in (["predict", mine[1], "bread"], teach):
        ended = alr(*command)
        assert (ended.status, len(ended.err.splitlines())) == (2, 1)
        assert f"{name} is damaged: its content is not what was written. Run its command again after" in ended.err


@pytest.mark.parametrize("name", ["history.jsonl", "predictions.npz", "residual_labels.npz"])
def test_a_report_is_not_made_of_damaged_files(alr, mine, name):
    path = mine[1] / name
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    assert alr("report", mine[0]).status == 0
    page = Path("report.html").read_text()
    assert re.search(f"Left out of the figures: [^<]*{name} is damaged", page)
    assert f"{name} is damaged" in alr("runs", "check", mine[0]).out


def test_a_command_hashes_a_file_at_most_once(alr, mine, monkeypatch):
    read = []
    monkeypatch.setattr(integrity, "file_hash", lambda path: read.append(path) or files.file_hash(path))
    integrity._hash_of_state.cache_clear()
    monkeypatch.setattr(integrity, "_UNSETTLED_NANOSECONDS", 0)
    assert alr("report", mine[0], "--figures", "figures").status == 0
    assert len(read) > 10
    assert len(read) == len(set(read))


def test_fix_removes_what_a_killed_process_left(alr, mine):
    out, run = mine
    before = sorted(path.name for path in run.iterdir())
    (run / "checkpoint").mkdir()
    (run / "checkpoint" / "epoch-3.json").write_text("{}")
    (run / ".model.safetensors.1-ab.tmp").write_bytes(b"half")
    (run / ".lock").touch()
    checked = alr("runs", "check", out)
    assert checked.status == 1
    assert ".model.safetensors.1-ab.tmp, checkpoint: left over from a crash; `alr runs check --fix`" in checked.out
    fixed = alr("runs", "check", out, "--fix")
    assert (fixed.status, fixed.out.count(": whole\n"), fixed.out.count(": removed\n")) == (0, 4, 2)
    assert sorted(path.name for path in run.iterdir()) == before


def test_fix_leaves_the_checkpoint_of_an_unfinished_run(alr, tmp_path):
    shutil.copytree(FIXTURES / "unfinished", tmp_path / "runs")
    (run,) = (tmp_path / "runs").iterdir()
    (run / "checkpoint" / ".epoch-4.json.1-ab.tmp").touch()
    fixed = alr("runs", "check", "runs", "--fix", "--json")
    ((_, problems),) = json.loads(fixed.out).items()
    assert "the same command goes on from its checkpoint" in problems[0]
    assert fixed.err.endswith(".epoch-4.json.1-ab.tmp: removed\n")
    assert sorted(path.name for path in (run / "checkpoint").iterdir()) == ["epoch-3.safetensors", "state.json"]


@pytest.mark.parametrize("name", ["first", "second"])
def test_runs_of_earlier_versions_stay_readable(alr, tmp_path, name):
    shutil.copytree(FIXTURES / name, tmp_path / "runs")
    (run,) = (tmp_path / "runs").iterdir()
    checked = alr("runs", "check", "runs")
    assert (checked.status, checked.out) == (
        0,
        f"runs/{run.name}: whole, but an earlier version wrote it without hashes: only that it can be read is known\n",
    )
    assert "33.3%" in alr("table", "runs").out
    assert alr("report", "runs").status == 0
    assert alr("predict", run, "bread and soup").status == 0
    command = ["train", FIXTURES / "small.csv", "--model", "fasttext", "--epochs", 1, *SET, "--out", "taught"]
    taught = alr(*command, "--method", "kd", "--set", f"method.options.teacher={run}")
    assert taught.status == 0, taught.err
    if name == "second":
        again = alr("train", FIXTURES / "small.csv", "--model", "fasttext", "--epochs", 2, *SET)
        assert "finished already" in again.out


def test_an_unfinished_run_of_an_earlier_version_goes_on(alr, tmp_path):
    shutil.copytree(FIXTURES / "unfinished", tmp_path / "runs")
    command = ["train", FIXTURES / "small.csv", "--model", "fasttext", "--epochs", 4, *SET]
    ended = alr(*command)
    assert ended.status == 0, ended.err
    assert "epoch 4/4" in ended.out
    assert "epoch 3/4" not in ended.out
    assert alr(*command, "--out", "whole").status == 0
    # Its first epochs may have been trained on another kind of processor, whose last bits differ.
    (resumed,), (whole,) = metrics(tmp_path / "runs").values(), metrics(tmp_path / "whole").values()
    assert resumed.keys() == whole.keys()
    for split in whole:
        assert resumed[split] == pytest.approx(whole[split], rel=1e-6)
    assert check(RunFolder(next((tmp_path / "runs").iterdir()))) == []


def test_a_run_of_a_later_version_is_refused_with_a_sentence(alr, mine, texts, tmp_path):
    path = mine[1] / "result.json"
    result = json.loads(path.read_text())
    result["seal"]["format"] = 3
    path.write_text(json.dumps(result))
    ended = alr("predict", mine[1], "bread")
    assert (ended.status, len(ended.err.splitlines())) == (2, 1)
    assert (
        "result.json was written by a later version of adaptive-labels (format 3; this one reads up to 2)" in ended.err
    )
    shutil.copytree(FIXTURES / "unfinished", tmp_path / "runs")
    (run,) = (tmp_path / "runs").iterdir()
    environment = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps({"format": 3, **environment}))
    ended = alr("train", FIXTURES / "small.csv", "--model", "fasttext", "--epochs", 4, *SET)
    assert (ended.status, len(ended.err.splitlines())) == (2, 1)
    assert "environment.json was written by a later version" in ended.err
    assert results(tmp_path / "runs") == {}

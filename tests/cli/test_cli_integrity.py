"""Every byte of a run that decides a result is checked when it is read."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from cli_parts import QUICK

from adaptive_labels.lab import files
from adaptive_labels.lab.runs import RunFolder, find_problems, integrity
from adaptive_labels.lab.training.checkpoints import write_checkpoint

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


def _content(data: bytes) -> object:
    try:
        return json.loads(data)
    except ValueError:
        return data


@pytest.fixture
def mine(compared, tmp_path):
    """A copy of finished runs; the second is a run of alr, whose folder is given too."""
    shutil.copytree(compared, tmp_path / "mine")
    return tmp_path / "mine", next(iter(sorted((tmp_path / "mine").glob("*-alr-s0-*"))))


def test_check_names_every_damage_to_every_file(mine):
    run = RunFolder(mine[1])
    assert find_problems(run) == []
    assert set(run.hashes) == {*FILES} - {"result.json"}
    for name in FILES:
        path = run.path / name
        data = path.read_bytes()
        for kind, damaged in damages(data).items():
            if name == "result.json" and _content(damaged) == _content(data):
                continue  # the last digit of a number, too small to count
            path.write_bytes(damaged)
            assert any(name in problem for problem in find_problems(run)), (name, kind)
        path.unlink()
        if name not in ("result.json", "config.json"):  # without the one it is unfinished, without the other no run
            assert any(f"{name} is missing" in problem for problem in find_problems(run)), name
        path.write_bytes(data)
    assert find_problems(run) == []


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


def test_fix_leaves_the_checkpoint_of_an_unfinished_run(alr, mine):
    run = mine[1]
    (run / "result.json").unlink()
    write_checkpoint(run / "checkpoint", 3, {}, {})
    (run / "checkpoint" / ".epoch-4.json.1-ab.tmp").touch()
    fixed = alr("runs", "check", run, "--fix", "--json")
    ((_, problems),) = json.loads(fixed.out).items()
    assert "the same command goes on from its checkpoint" in problems[0]
    assert fixed.err.endswith(".epoch-4.json.1-ab.tmp: removed\n")
    assert sorted(path.name for path in (run / "checkpoint").iterdir()) == ["epoch-3.json", "epoch-3.safetensors"]

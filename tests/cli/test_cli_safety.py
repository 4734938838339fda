"""What must not be harmed, lost or left behind, whatever the user, the disk or another process does."""

from __future__ import annotations

import csv
import io
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch
from cli_parts import COMMAND, QUICK, SOURCE, files, metrics, results, wait_for

from adaptive_labels.lab.runs import RunFolder, find_problems
from run_maker import Maker


def command_of(texts, *more):
    return ["train", texts, "--epochs", 4, *QUICK, *more]


def test_initial_labels_that_were_replaced_make_another_run(alr, texts, tmp_path):
    path = tmp_path / "start.npz"
    wanted = command_of(texts, "--set", f"method.options.initial_labels={path}")
    np.savez(path, labels=np.ones((3, 3), dtype=np.float32))
    assert alr(*wanted).status == 0
    assert "finished already" in alr(*wanted).out
    np.savez(path, labels=np.arange(9, dtype=np.float32).reshape(3, 3))
    assert "finished already" not in alr(*wanted).out
    assert len(results(tmp_path / "runs")) == 2


@pytest.mark.parametrize("kind", ["a pipe", "a link", "a link to nothing", "a folder"])
def test_what_is_no_ordinary_file_is_never_replaced(alr, compared, tmp_path, kind):
    path, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    else:
        path.symlink_to(elsewhere if kind == "a link" else tmp_path / "nothing")
    before = [path.lstat().st_ino, path.lstat().st_mode, path.lstat().st_mtime_ns]
    run = next(compared.glob("*-alr-s0-*"))
    for command in (["report", compared, "-o", path], ["suspects", run, "-o", path]):
        ended = alr(*command)
        words = kind.removesuffix(" to nothing")
        assert (ended.status, ended.err) == (
            2,
            f"alr: Cannot write {path}: it is {words}, which is not replaced; give the name of a file.\n",
        )
    assert [path.lstat().st_ino, path.lstat().st_mode, path.lstat().st_mtime_ns] == before
    assert elsewhere.read_text() == "precious"


def test_the_same_command_removes_what_a_kill_after_the_result_left(alr, texts, tmp_path):
    assert alr(*command_of(texts)).status == 0
    (run,) = (tmp_path / "runs").iterdir()
    before = files(run)
    (run / "checkpoint").mkdir()
    (run / "checkpoint" / "epoch-4.json").write_text("{}")
    (run / ".lock").touch()
    (run / ".result.json.1-ab.tmp").write_text("{")
    assert "finished already" in alr(*command_of(texts)).out
    assert files(run) == before
    assert not (run / "checkpoint").exists()


def test_the_same_comparison_removes_what_a_kill_after_a_result_left(alr, texts, tmp_path):
    words = ["compare", *command_of(texts)[1:], "--methods", "baseline,slr", "--seeds", "1"]
    assert alr(*words).status == 0
    run = next((tmp_path / "runs").glob("*-baseline-*"))
    before = files(run)
    (run / "checkpoint").mkdir()
    (run / ".lock").touch()
    (run / ".examples.json.1-ab.tmp").write_text("{")
    assert "all finished already" in alr(*words).out
    assert files(run) == before
    assert not (run / "checkpoint").exists()


def test_history_and_residual_labels_come_back_from_the_checkpoint(alr, texts, tmp_path, monkeypatch):
    from adaptive_labels.lab.training.session import Session

    save = Session.save

    def stop(session, *given):
        save(session, *given)
        if len(session.history) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Session, "save", stop)
        assert alr(*command_of(texts, "--set", "checkpoint_seconds=0")).status == 130
    (run,) = (tmp_path / "runs").iterdir()
    (run / "history.jsonl").unlink()
    (run / "residual_labels.npz").write_bytes(b"PK broken")
    assert alr(*command_of(texts)).status == 0
    alr(*command_of(texts), "--out", "whole")
    (whole,) = (tmp_path / "whole").iterdir()
    assert metrics(tmp_path / "runs") == metrics(tmp_path / "whole")
    assert [line["epoch"] for line in RunFolder(run).history()] == [1, 2, 3, 4]
    assert (run / "residual_labels.npz").read_bytes() == (whole / "residual_labels.npz").read_bytes()


def test_the_configuration_of_a_run_that_goes_on_is_the_command_s(alr, texts, tmp_path, monkeypatch):
    """Also in settings that no run is named by."""
    from adaptive_labels.lab.training.session import Session

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Session, "step", stop)
        assert alr(*command_of(texts)).status == 130
    (config,) = (tmp_path / "runs").glob("*/config.json")
    before = config.read_text()
    config.write_text(before.replace('"device": "auto"', '"device": "cuda"'))
    assert config.read_text() != before
    assert alr(*command_of(texts)).status == 0
    assert config.read_text() == before


def test_class_names_with_control_characters_become_figures(alr, tmp_path):
    odd = ["a\x01\x1b[31m", "b\x00", "c\ufffe", "d"]
    for method in ("baseline", "alr"):
        Maker(tmp_path / "runs").whole(method, 0, classes=odd)
    ended = alr("report", "runs", "--figures", "figures")
    assert ended.status == 0, ended.err
    drawings = list((tmp_path / "figures").glob("*.svg"))
    assert drawings
    for path in drawings:
        ET.fromstring(path.read_text())
    for path in (tmp_path / "figures").glob("*.tex"):
        assert not set("\x00\x01\x1b") & set(path.read_text())
    assert "\x1b" not in alr("confusions", "runs").out


def test_cells_that_look_like_formulas_are_quoted_in_csv(alr, tmp_path):
    odd = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(1)"]
    Maker(tmp_path / "runs").whole("alr", 0, classes=odd)
    rows = list(csv.reader(io.StringIO(alr("confusions", "runs", "--format", "csv").out)))
    cells = [cell for row in rows[1:] for cell in row]
    assert any(cell == f"'{odd[0]}" for cell in cells)
    for cell in cells:
        if cell.startswith(("=", "+", "-", "@")):
            float(cell)


def test_a_reader_that_goes_away_does_not_end_the_run(texts, tmp_path):
    words = " ".join(map(str, [*command_of(texts), "--set", "training.epochs=30"]))
    done = subprocess.run(
        f"{COMMAND[0]} -c '{COMMAND[-1]}' {words} | head -1",
        shell=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.stdout.count("\n"), done.stderr) == (1, "")
    (result,) = results(tmp_path / "runs").values()
    assert result["epochs"] == 30


@pytest.mark.parametrize("option", ["dim", "dropout"])
def test_a_text_where_a_number_belongs_is_named(alr, texts, option):
    ended = alr("train", texts, "--dry-run", "--set", f"model.options.{option}=abc")
    assert ended.status == 2
    assert f"{option} is 'abc': allowed is a number" in ended.err


@pytest.mark.parametrize("again", [False, True])
def test_ctrl_c_outside_of_the_command_is_one_sentence(monkeypatch, capsys, again):
    """Before the command is imported, and while it is ending after an earlier one."""
    from adaptive_labels import __main__
    from adaptive_labels.lab import cli

    def interrupted():
        try:
            raise KeyboardInterrupt
        finally:
            if again:
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(cli, "main", interrupted)
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as end:
            __main__.main()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert end.value.code == 130
    assert capsys.readouterr().err == "alr: stopped; the same command goes on from where it was\n"


def test_ctrl_c_while_a_library_in_c_is_loaded_is_one_sentence(monkeypatch, capsys):
    from adaptive_labels import __main__
    from adaptive_labels.lab import cli

    def interrupted():
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as stop:
            raise ImportError("initialization failed") from stop  # as pybind11 does

    monkeypatch.setattr(cli, "main", interrupted)
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as end:
            __main__.main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert end.value.code == 130
    assert capsys.readouterr().err == "alr: stopped; the same command goes on from where it was\n"


def test_little_is_imported_before_ctrl_c_gets_a_sentence():
    """Before `__main__` is imported Python itself answers, with a traceback: that time must be short."""
    code = "import sys, re, signal; before = {*sys.modules}; import adaptive_labels.__main__; "
    code += "print(*sorted({*sys.modules} - before))"
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["__future__", "adaptive_labels", "adaptive_labels.__main__"]


def test_ctrl_c_five_times_in_a_row(start_alr, texts, tmp_path):
    process = start_alr(*command_of(texts, "--set", "training.epochs=5000"), "--set", "checkpoint_seconds=0")
    wait_for(lambda: list((tmp_path / "runs").glob("*/checkpoint/epoch-*.json")), process)
    for _ in range(5):
        process.send_signal(signal.SIGINT)
        time.sleep(0.002)
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    assert err.startswith("alr: stopped")
    assert process.returncode == 130


def test_bad_numbers_end_a_run_with_their_epoch_and_step(alr, texts, tmp_path, monkeypatch):
    from adaptive_labels.lab.training.loop import _Loop

    train = _Loop.train

    def poisoned(loop, now):
        if now.epoch == 3:
            with torch.no_grad():
                loop.session.objective.model.state_dict()["head.bias"].fill_(float("nan"))
        return train(loop, now)

    with monkeypatch.context() as patch:
        patch.setattr(_Loop, "train", poisoned)
        ended = alr(*command_of(texts))
    assert ended.status == 1
    (run,) = (tmp_path / "runs").iterdir()
    reason = RunFolder(run).result["reason"]
    assert reason.startswith("the loss became NaN at epoch 3, step 1 (learning rate")
    assert reason.endswith("try a lower learning rate")
    assert find_problems(RunFolder(run)) == []

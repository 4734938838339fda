"""Files of a run that are not what they should be: one sentence each, never a traceback.

They are sealed as if a run had written them: otherwise they would be refused before they are looked at.
"""

from __future__ import annotations

import io
import json
import shutil
import tarfile

import numpy as np
import pytest
import torch
from cli_parts import QUICK
from safetensors.torch import load_file, save_file

from run_maker import sealed_again

DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.fixture
def run(compared, tmp_path):
    (alr,) = compared.glob("*-alr-s0-*")
    return shutil.copytree(alr, tmp_path / "runs" / alr.name)


def every_command(alr, run, texts=None, **result):
    """What all commands that read a run print, a student's training too if there are texts; at most a sentence each."""
    if run.joinpath("result.json").read_bytes() != DEEP:
        sealed_again(run, **result)
    commands = [
        ["table", "runs"],
        ["report", "runs"],
        ["runs", "list", "runs"],
        ["runs", "check", "runs"],
        ["confusions", run],
        ["predict", run, "bread"],
    ]
    if texts is not None:
        taught = ["train", texts, "--epochs", 1, *QUICK, "--out", "taught", "--method", "kd"]
        commands += [["suspects", run], [*taught, "--set", f"method.options.teacher={run}"]]
    said = []
    for command in commands:
        ended = alr(*command)
        assert ended.status in (0, 1, 2), command
        assert ended.status != 2 or len(ended.err.splitlines()) == 1, (command, ended.err)
        said.append(ended.err + ended.out)
    return "\n".join(said)


@pytest.mark.parametrize(
    "name", ["config.json", "encoder.json", "environment.json", "examples.json", "history.jsonl", "result.json"]
)
def test_deeply_nested_json(alr, run, texts, name):
    (run / name).write_bytes(DEEP)
    words = "history.jsonl has 0 epochs" if name == "history.jsonl" else "nested more than 100 levels deep"
    assert words in every_command(alr, run, texts)


def test_deeply_nested_json_elsewhere(alr, run, tmp_path):
    (tmp_path / "deep.json").write_bytes(DEEP)
    (tmp_path / "deep.jsonl").write_bytes(DEEP)
    for command in (["report", "runs", "--suspects", "deep.json"], ["train", "deep.jsonl"]):
        ended = alr(*command)
        assert (ended.status, len(ended.err.splitlines())) == (2, 1)
        assert "nested" in ended.err


def test_a_result_that_lacks_a_field_or_has_it_of_another_kind(alr, run):
    assert "result.json has a list as its metrics" in every_command(alr, run, metrics=[1])
    result = json.loads((run / "result.json").read_text())
    del result["metrics"]
    (run / "result.json").write_text(json.dumps(result))
    assert "result.json has no metrics" in every_command(alr, run)


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        {"kind": "nope", "settings": {}},
        {"kind": "ngrams", "settings": {"x": 1}},
        {"kind": "words", "settings": []},
    ],
    ids=str,
)
def test_an_encoder_of_the_wrong_kind(alr, run, texts, content):
    (run / "encoder.json").write_text(json.dumps(content))
    assert "encoder.json does not say how inputs are read" in every_command(alr, run, texts)


def test_a_configuration_of_another_program(alr, run, texts):
    (run / "config.json").write_text('{"learning_rate": 1}')
    assert "config.json is not the configuration of a run: unknown setting learning_rate" in every_command(
        alr, run, texts
    )
    (run / "config.json").write_text("{}")
    assert "config.json names no model" in every_command(alr, run, texts)


@pytest.mark.parametrize("kind", ["another shape", "none", "one more", "empty file"])
def test_weights_of_another_network(alr, run, texts, kind):
    path = run / "model.safetensors"
    own = load_file(path)
    path.unlink()
    if kind == "empty file":
        path.write_bytes(b"")
    else:
        other = {"another shape": {name: torch.zeros(3) for name in own}, "none": {}}
        save_file(other.get(kind, {**own, "one more": torch.zeros(1)}), path)
    assert "model.safetensors does not hold the weights of the run's network" in every_command(alr, run, texts)


@pytest.mark.parametrize("file", ["predictions.npz", "residual_labels.npz"])
def test_odd_arrays(alr, run, file):
    """What is odd, the tests of the readers say."""
    with np.load(run / file) as stored:
        np.savez(run / file, **{**stored, "classes": np.zeros(3)})
    assert f"{file} is odd: its 'classes' " in every_command(alr, run)


def test_a_metric_that_is_no_number(alr, run):
    metrics = json.loads((run / "result.json").read_text())["metrics"]
    every_command(alr, run, metrics={**metrics, "test": {"top1": "high"}})


@pytest.mark.parametrize("odd", [np.array(1), np.array([["a"]]), np.zeros(3), np.zeros((0, 3, 3))], ids=str)
def test_odd_initial_labels(alr, texts, tmp_path, odd):
    np.savez(tmp_path / "odd.npz", labels=odd)
    ended = alr("train", texts, "--dry-run", "--set", "method.options.initial_labels=odd.npz")
    assert (ended.status, len(ended.err.splitlines())) == (2, 1)
    assert "odd.npz cannot be read as labels" in ended.err


def test_an_archive_with_a_huge_member_is_not_read_whole(alr, tmp_path, monkeypatch):
    monkeypatch.setenv("ALR_MAX_FILE", "1000")
    with tarfile.open(tmp_path / "cifar-100-python.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("cifar-100-python/train")
        member.size = 100_000
        archive.addfile(member, io.BytesIO(bytes(member.size)))
    ended = alr("train", "cifar100", "--data-dir", tmp_path, "--dry-run")
    assert (ended.status, len(ended.err.splitlines())) == (2, 1)
    assert "cifar-100-python/train in cifar-100-python.tar.gz has more than 1,000 bytes" in ended.err.replace(
        f"{tmp_path}/", ""
    )


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
@pytest.mark.parametrize("target", ["cifar-100-python/train", "nothing"])
def test_an_archive_with_a_link_to_itself_or_to_nothing(alr, tmp_path, kind, target):
    with tarfile.open(tmp_path / "cifar-100-python.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("cifar-100-python/train")
        member.type, member.linkname = kind, target
        archive.addfile(member)
    ended = alr("train", "cifar100", "--data-dir", tmp_path, "--dry-run")
    assert (ended.status, len(ended.err.splitlines())) == (2, 1)
    assert "has no cifar-100-python/train" in ended.err

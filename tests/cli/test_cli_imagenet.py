"""A whole run on images that stay files, stopped and resumed, and what can be done with it."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from cli_parts import metrics, results, wait_for

sys.path.insert(0, str(Path(__file__).parents[1] / "data"))
from imagenet_files import write_imagenet

RECIPE = ["--image-size", 32, "--model", "resnet32-w2", "--set", "batch_size=8", "--set", "threads=1"]
RECIPE += ["--set", "accumulate=2", "--set", "lr=0.02"]

# torch warns on a machine with one core, where it makes no difference to the batches
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_imagenet(tmp_path_factory.mktemp("imagenet"))


@pytest.mark.slow
def test_a_stopped_run_goes_on_and_ends_as_if_nothing_had_been(alr, start_alr, folder, tmp_path, monkeypatch):
    command = ["train", "imagenet", "--data-dir", folder, *RECIPE, "--epochs", 4]
    stopped = start_alr(*command, "--out", "stopped", "--set", "checkpoint_seconds=0", ALR_DATA_WORKERS="1")
    wait_for(lambda: list((tmp_path / "stopped").glob("*/checkpoint/epoch-*.json")), stopped)
    stopped.send_signal(signal.SIGINT)
    _, err = stopped.communicate(timeout=60)
    assert stopped.returncode == 130, err
    # Perhaps among other lines: Python prints a traceback where the signal falls into the start or end of a worker.
    assert any(line.startswith("alr: stopped in epoch ") for line in err.splitlines())
    assert results(tmp_path / "stopped") == {}
    monkeypatch.setenv("ALR_DATA_WORKERS", "2")
    assert alr(*command, "--out", "stopped").status == 0
    monkeypatch.setenv("ALR_DATA_WORKERS", "0")
    ended = alr(*command, "--out", "whole")
    assert (ended.status, ended.err) == (0, "")
    assert "imagenet, 4 classes of images; 44 train, 4 validation, 12 test" in ended.out
    assert metrics(tmp_path / "stopped") == metrics(tmp_path / "whole")
    (run,) = (tmp_path / "whole").iterdir()
    image = next((folder / "val" / "n01440764").iterdir())
    assert json.loads(alr("predict", run, image, "--json").out)
    assert alr("suspects", run, "--top", 3).status == 0
    examples = json.loads((run / "examples.json").read_text())
    assert examples["kind"] == "image"
    assert all("png" in example for pair in examples["pairs"] for example in pair["examples"])


@pytest.mark.slow
def test_a_comparison_reads_the_files_in_processes_of_their_own(alr, folder, monkeypatch):
    monkeypatch.setenv("ALR_DATA_WORKERS", "1")
    methods = ["--methods", "baseline,alr", "--seeds", 1, "--workers", 2, "--epochs", 1]
    ended = alr("compare", "imagenet", "--data-dir", folder, *RECIPE, *methods)
    assert (ended.status, ended.err) == (0, "")
    assert "parameters" in ended.out


def test_a_broken_image_ends_a_run_with_a_sentence(alr, tmp_path, monkeypatch):
    monkeypatch.setenv("ALR_DATA_WORKERS", "1")
    broken = write_imagenet(tmp_path / "data") / "val" / "n01440764" / "n01440764_0.JPEG"
    broken.write_bytes(b"no image")
    ended = alr("train", "imagenet", "--data-dir", tmp_path / "data", *RECIPE, "--epochs", 1)
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert f"The image {broken} cannot be read" in ended.err


def test_without_a_folder_it_is_said_what_is_missing(alr):
    ended = alr("train", "imagenet")
    assert ended.status == 2
    assert ended.err.startswith("alr: The data set imagenet is not in the current folder: there are no folders train/")

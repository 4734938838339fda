"""The scripts of `benchmarks/`: what they import is there, and four measure at tiny sizes, with rows that hold."""

from __future__ import annotations

import ast
import csv
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import data
import loss
import start
import train
from adaptive_labels.lab.data.encoders.images import ImageEncoder
from measure import as_csv, as_text, peak_memory, ratio_row, timing, turns

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_what_a_script_imports_is_there(script: Path) -> None:
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        ours = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("adaptive_labels")
        if ours and ".adapters" not in ast.unparse(node):  # which need the package that they adapt to
            exec(ast.unparse(node), {})


def check_rows(result: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """What holds for every measurement; its rows by name."""
    for row in result["rows"]:
        assert 0 < row["p20"] <= row["ratio"] <= row["p80"]
        assert row["repeats"] >= 5
        assert row["within"] == (None if row["limit"] is None else row["ratio"] <= row["limit"])
    assert len(list(csv.DictReader(as_csv(result).splitlines()))) == len(result["rows"])
    return {row[name]: row for row in result["rows"]}


def test_losses_are_measured() -> None:
    result = loss.bench_loss([(8, 4)], 0.1)
    rows = check_rows(result, "loss")
    assert rows[result["reference"]]["ratio"] == 1.0
    assert rows[loss.KERNEL]["limit"] == 3.5
    assert loss.markdown(result["rows"]).count("\n") == 2
    assert loss.REFERENCE in loss.as_text(result)


def test_training_is_measured() -> None:
    rows = check_rows(train.bench_train(["resnet32-w4"], 0.1, examples=8, batch=4, aims_only=True), "variant")
    assert list(rows) == [train.BARE, train.LOOP, train.ADAPTIVE]
    assert [rows[name]["beside"] for name in rows] == [None, train.BARE, train.LOOP]
    assert rows[train.LOOP]["examples_per_second"] == pytest.approx(8 / rows[train.LOOP]["seconds"])
    assert all(row["peak_bytes"] > 0 for row in rows.values())


@pytest.mark.parametrize("loop", [train.bare_loop, train.projects_loop])
def test_both_loops_train_the_network(loop: Any) -> None:
    """A loop that left out the backward or the step would look fast."""
    task = train.make_task("fasttext", examples=8, batch=4)
    network = task.make_network()
    before = [parameter.detach().clone() for parameter in network.parameters()]
    loop(task, network)()
    assert not any(torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True))


def test_data_pipelines_are_measured_and_normalise_alike() -> None:
    result = data.bench_data(0.1, batch=4, images=16, texts=5)
    rows = check_rows(result, "pipeline")
    assert rows[data.OURS]["beside"] == data.PILLOW
    assert rows[data.OURS]["examples"] == 4 * data.BATCHES_PER_TURN
    assert f"× {data.PILLOW}; aim 0.10: " in as_text(result)
    images = torch.randint(256, (3, 3, 32, 32), dtype=torch.uint8)
    encoder = ImageEncoder.fit(images)
    array = np.ascontiguousarray(images[1].permute(1, 2, 0).numpy())
    torch.testing.assert_close(
        data.one_image(array, encoder, changed=False), encoder.encode(images).batch(torch.tensor([1]))[0]
    )


def test_a_script_runs_and_a_command_that_fails_is_named(tmp_path: Path) -> None:
    table = tmp_path / "data.csv"
    sizes = ("--images", "16", "--batch", "4", "--texts", "5", "--seconds", "0.1", "--threads", "1")
    done = subprocess.run([sys.executable, FOLDER / "data.py", *sizes, "--csv", table], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert data.PILLOW in done.stdout
    assert {row["threads"] for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines())} == {"1"}
    with pytest.raises(ValueError, match=r"'import nonsense' ended with 1: ModuleNotFoundError"):
        start.bench_start(0.0, commands={start.REFERENCE: ("import nonsense",)})


@pytest.mark.slow
def test_the_command_of_the_first_step_runs() -> None:
    done = subprocess.run([sys.executable, "-c", start.FIRST_STEP], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_turns_are_taken_and_ratios_are_taken_round_by_round() -> None:
    order: list[str] = []
    times = turns({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, seconds=0.0)
    assert "".join(order) == "aaabbb" + "abba" * 2 + "ab"
    found = timing(times["a"])
    assert found.p20 <= found.median <= found.p80
    row = ratio_row({"a": [2.0, 200.0, 2.0], "b": [1.0, 100.0, 1.0]}, "a", "b", limit=1.99)
    assert (row["ratio"], row["p20"], row["p80"], row["within"]) == (2.0, 2.0, 2.0, False)


def test_processor_time_leaves_sleep_out_and_peak_memory_counts_what_is_there_at_once() -> None:
    times = turns({"asleep": lambda: time.sleep(0.02)}, 0.0, warm_up=0, clock=time.process_time)
    assert min(times["asleep"]) < 0.02

    def one_after_the_other() -> None:
        for _ in range(3):
            torch.zeros(1000)

    assert peak_memory(one_after_the_other) == 4000

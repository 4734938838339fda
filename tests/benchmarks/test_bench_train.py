"""`alr bench train`, `data` and `start`: the real measurements at small sizes, their forms, and their errors."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
import torch

from adaptive_labels.lab.benchmarks import data, start, train as training
from adaptive_labels.lab.benchmarks.measure import as_csv, as_text, ratio_row, turns
from adaptive_labels.lab.data.encoders.images import ImageEncoder

MAIN = "from adaptive_labels.lab.cli import main; main()"
KEYS = {"seconds", "beside", "ratio", "p20", "p80", "repeats", "limit", "within"}


def alr(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", MAIN, *arguments], capture_output=True, text=True, check=False)


def check_rows(result: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """What holds for every measurement; its rows by name."""
    assert {"unit", "clock", "threads", "environment", "rows"} <= set(result)
    for row in result["rows"]:
        assert set(row) >= KEYS
        assert 0 < row["p20"] <= row["ratio"] <= row["p80"]
        assert row["seconds"] > 0
        assert row["repeats"] >= 5
        assert row["within"] == (None if row["limit"] is None else row["ratio"] <= row["limit"])
        if row["beside"] is None:
            assert row["ratio"] == 1.0
    return {row[name]: row for row in result["rows"]}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """What `alr bench train` prints for a small image network, and the CSV that it writes."""
    table = tmp_path_factory.mktemp("bench") / "train.csv"
    sizes = ("--examples", "8", "--batch", "4", "--seconds", "0.1")
    done = alr("bench", "train", "--networks", "resnet32-w4", *sizes, "--json", "--csv", str(table))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), table.read_text(encoding="utf-8")


def test_a_network_is_measured_in_all_its_variants(trained: tuple[dict[str, Any], str]) -> None:
    result, table = trained
    rows = check_rows(result, "variant")
    assert {training.BARE, training.LOOP, training.ADAPTIVE, training.CHANNELS_LAST, training.EVALUATION} <= set(rows)
    assert rows[training.LOOP]["beside"] == training.BARE
    assert rows[training.LOOP]["limit"] == pytest.approx(1 / 0.97)
    assert rows[training.ADAPTIVE]["beside"] == training.LOOP
    assert rows[training.ADAPTIVE]["limit"] == 1.02
    assert rows[training.LOOP]["examples_per_second"] == pytest.approx(8 / rows[training.LOOP]["seconds"])
    assert {row["batch"] for row in rows.values()} == {4}
    assert all(row["peak_bytes"] > 0 for row in rows.values())
    assert [row["variant"] for row in csv.DictReader(io.StringIO(table))] == list(rows)


def test_a_text_network_trains_by_the_usual_recipe() -> None:
    task = training.make_task("fasttext", examples=12, batch=5)
    assert task.kind == "text"
    assert (len(task.train), len(task.labels), len(task.validation[0])) == (12, 12, 2)
    assert (task.config.optimizer, task.config.batch_size) == ("adamw", 5)
    variants = training.variants(task, compiled=False)
    assert training.CHANNELS_LAST not in variants
    for turn in variants.values():
        turn()
    rows = training.rows_of(task, {name: [1.0, 2.0, 3.0] for name in variants}, dict.fromkeys(variants, 1))
    assert {row["variant"]: row["limit"] for row in rows}[training.ADAPTIVE] == 1.10


def test_only_what_has_an_aim_is_measured() -> None:
    sizes = {"examples": 8, "batch": 4}
    rows = training.bench_train(["resnet32-w4"], 0.1, **sizes, aims_only=True)["rows"]
    assert [row["variant"] for row in rows] == [training.BARE, training.LOOP, training.ADAPTIVE]


@pytest.mark.parametrize("loop", [training.bare_loop, training.projects_loop])
def test_both_loops_train_the_network(loop: Any) -> None:
    """A loop that left out the backward or the step would look fast."""
    task = training.make_task("resnet32-w4", examples=8, batch=4)
    network = task.make_network()
    before = [parameter.detach().clone() for parameter in network.parameters()]
    loop(task, network)()
    assert not any(torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True))


def test_data_pipelines_are_measured() -> None:
    done = alr("bench", "data", "--images", "16", "--batch", "4", "--texts", "5", "--seconds", "0.1", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    rows = check_rows(result, "pipeline")
    assert rows[data.OURS]["beside"] == data.PILLOW
    assert rows[data.OURS]["limit"] == pytest.approx(0.1)
    assert rows[data.OURS]["examples"] == 4 * data.BATCHES_PER_TURN
    batch_of_floats = 4 * 3 * data.SIZE * data.SIZE * 4
    assert all(row["peak_bytes"] >= batch_of_floats for row in rows.values() if row["kind"].startswith("images"))
    assert all(row["peak_bytes"] > 0 for row in result["rows"])
    texts = [row for row in result["rows"] if row["pipeline"] == data.ENCODER]
    assert len(texts) == 2
    assert all(row["examples_per_second"] == pytest.approx(5 / row["seconds"]) for row in texts)
    assert f"× {data.PILLOW}; aim 0.10: " in as_text(result)


def test_the_two_image_pipelines_normalise_alike() -> None:
    images = torch.randint(256, (3, 3, 32, 32), dtype=torch.uint8)
    encoder = ImageEncoder.fit(images)
    array = np.ascontiguousarray(images[1].permute(1, 2, 0).numpy())
    ours = encoder.encode(images).batch(torch.tensor([1]))[0]
    torch.testing.assert_close(data.one_image(array, encoder, changed=False), ours)


def test_starting_is_measured_in_processes() -> None:
    commands = {name: start.COMMANDS[name] for name in ("import adaptive_labels",)}
    commands = {start.REFERENCE: ("import json",), **commands}
    rows = check_rows(start.bench_start(0.0, commands), "command")
    assert rows["import adaptive_labels"]["beside"] == start.REFERENCE


def test_a_command_that_fails_is_named() -> None:
    with pytest.raises(ValueError, match=r"'import nonsense' ended with 1: ModuleNotFoundError"):
        start.bench_start(0.0, {start.REFERENCE: ("import nonsense",)})


@pytest.mark.slow
def test_the_command_of_the_first_step_runs_and_a_dry_run_imports_no_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", start.FIRST_STEP], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    code = (
        "import sys; from adaptive_labels.lab.cli import main\n"
        "try: main()\n"
        "except SystemExit: print('heavy:', [m for m in ('torch._dynamo',) if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "train", "towns", "--dry-run"], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "heavy: []", done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "--networks", "resnet33"], "did you mean resnet32?"),
        (["train", "--networks", "mlp"], "'mlp' cannot be measured, since it reads neither texts nor pixels"),
        (["train", "--networks", "resnet32", "--full"], "--full and --networks exclude each other"),
        (["train", "--compile", "--aims-only"], "--compile and --aims-only exclude each other"),
        (["data", "--csv", "table.txt"], "table.txt: must be a file .csv"),
        (["data", "--texts", "0"], "texts"),
    ],
)
def test_errors_are_a_sentence(arguments: list[str], words: str) -> None:
    done = alr("bench", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("alr: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_ratio_is_taken_round_by_round() -> None:
    times = {"a": [2.0, 200.0, 2.0], "b": [1.0, 100.0, 1.0]}
    row = ratio_row(times, "a", "b", limit=2.0)
    assert (row["ratio"], row["p20"], row["p80"]) == (2.0, 2.0, 2.0)
    assert row["within"] is True
    assert ratio_row(times, "a", "b", limit=1.99)["within"] is False
    assert ratio_row(times, "b", None)["within"] is None


def test_processor_time_leaves_sleep_out() -> None:
    times = turns({"asleep": lambda: time.sleep(0.02)}, 0.0, warm_up=0, clock=time.process_time)
    assert len(times["asleep"]) == 5
    assert min(times["asleep"]) < 0.02


def test_a_table_says_where_it_comes_from() -> None:
    rows = [{"a": 1, "b": 0.123456}]
    environment = {
        "date": "2026-01-01",
        "cpu": {"model": "M"},
        "versions": {"torch": "2", "adaptive-labels": "0"},
        "commit": "c",
    }
    (row,) = csv.DictReader(
        io.StringIO(as_csv({"rows": rows, "threads": 1, "clock": "perf_counter", "environment": environment}))
    )
    assert (row["b"], row["date"], row["clock"]) == ("0.1235", "2026-01-01", "perf_counter")

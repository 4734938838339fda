"""`alr bench loss`: the real measurement at small sizes, its forms, and its errors."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import torch

from adaptive_labels.lab.benchmarks import loss as losses
from adaptive_labels.lab.benchmarks.measure import as_csv, peak_memory, timing, turns

MAIN = "from adaptive_labels.lab.cli import main; main()"


def alr(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", MAIN, *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """What the command prints, and the CSV that it writes."""
    table = tmp_path_factory.mktemp("bench") / "loss.csv"
    done = alr("bench", "loss", "--shapes", "8x4, 4×1500", "--seconds", "0.4", "--json", "--csv", str(table))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout), table.read_text(encoding="utf-8")


def test_every_row_is_a_ratio_to_the_reference(printed: tuple[dict[str, Any], str]) -> None:
    result, _ = printed
    shapes = {(row["n"], row["k"]) for row in result["rows"]}
    assert shapes == {(8, 4), (4, 1500)}
    for n, k in shapes:
        rows = {row["loss"]: row for row in result["rows"] if (row["n"], row["k"]) == (n, k)}
        reference = rows[result["reference"]]
        assert reference["ratio"] == 1.0
        for row in rows.values():
            assert row["ratio"] == pytest.approx(row["microseconds"] / reference["microseconds"])
            assert row["p20"] <= row["ratio"] <= row["p80"]
            assert row["repeats"] == reference["repeats"] >= 5  # they take turns
        ours = rows[losses.SELF]
        assert ours["within"] == (ours["ratio"] <= ours["limit"])
        assert ours["limit"] >= 1.5
    assert result["environment"]["cpu"]["cores"] >= 1
    assert result["environment"]["versions"]["torch"] == torch.__version__
    assert set(result["not_installed"]) <= set(losses.RELATED)


def test_the_fused_path_keeps_to_its_memory(printed: tuple[dict[str, Any], str]) -> None:
    result, _ = printed
    ours = {row["loss"]: row["memory"] for row in result["rows"] if row["k"] == 1500}
    if result["kernel"] == "built":
        assert ours[losses.SELF] <= 2.0
    assert ours[result["reference"]] >= 1.0  # at least the gradient


def test_the_csv_has_every_row_with_its_date(printed: tuple[dict[str, Any], str]) -> None:
    result, table = printed
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["loss"] for row in rows] == [row["loss"] for row in result["rows"]]
    assert {row["date"] for row in rows} == {result["environment"]["date"]}
    assert float(rows[2]["ratio"]) == pytest.approx(result["rows"][2]["ratio"], rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--shapes", "128"], "--shapes: '128' is no shape NxK"),
        (["--shapes", "8x10,3x1"], "--shapes: '3x1' is no shape NxK"),
        (["--csv", "nowhere/loss.csv"], "nowhere/loss.csv: must be a file .csv in a folder that exists"),
        (["--growth", "growth.svg", "--shapes", "8x10"], "--shapes and --growth exclude each other"),
        (["--growth", "growth.png"], "growth.png: must be a file .svg"),
    ],
)
def test_errors_are_a_sentence(arguments: list[str], words: str) -> None:
    done = alr("bench", "loss", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("alr: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_growth_is_measured_and_drawn(tmp_path: Path) -> None:
    result = losses.bench_growth(0.2, samples=(2, 8), classes=(3, 30), threads=(1,))
    assert {(row["axis"], row["threads"]) for row in result["rows"]} == {("n", 1), ("k", 1), ("threads", 1)}
    assert torch.get_num_threads() == 1
    root = ET.fromstring(losses.draw_growth(result))
    lines = root.findall(".//{*}polyline")
    assert len([line for line in lines if line.find("{*}title") is not None]) == 3 * len(losses.LINES)
    assert "threads" in as_csv(result).splitlines()[0]
    assert losses.REFERENCE in losses.as_text(result)


def test_turns_are_taken_and_all_are_timed() -> None:
    order: list[str] = []
    times = turns({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, seconds=0.0)
    assert "".join(order) == "aaabbb" + "abba" * 2 + "ab"
    assert len(times["a"]) == 5
    found = timing(times["a"])
    assert found.p20 <= found.median <= found.p80


def test_peak_memory_counts_what_is_there_at_once() -> None:
    def one_after_the_other() -> None:
        for _ in range(3):
            torch.zeros(1000)

    assert peak_memory(one_after_the_other) == 4000

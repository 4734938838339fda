"""`alr table`, `report`, `confusions` and `runs`: what finished runs say."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from cli_parts import SOURCE, files, results


def test_table_as_text_of_all_runs_or_some(alr, compared):
    ended = alr("table", compared)
    assert (ended.status, ended.err) == (0, "")
    assert "baseline  2" in ended.out
    assert "alr       2" in ended.out
    assert "\n\n\n" not in ended.out
    assert not ended.out.endswith("\n\n")
    alone = next(path for path in compared.iterdir() if "-alr-s0-" in path.name)
    assert "alr     1" in alr("table", alone).out


def test_table_for_machines(alr, compared):
    test = {}
    for result in results(compared).values():
        test.setdefault(result["method"], []).append(result["metrics"]["test"]["top1"])
    expected = {method: (len(values), float(np.mean(values))) for method, values in test.items()}
    rows = alr("table", compared, "--format", "json").json
    assert {row["method"]: (row["n"], row["test_top1_mean"]) for row in rows} == expected
    lines = csv.DictReader(io.StringIO(alr("table", compared, "--format", "csv").out))
    assert {line["method"]: (int(line["n"]), float(line["test_top1_mean"])) for line in lines} == expected


@pytest.mark.parametrize(
    ("format", "start", "row"),
    [("markdown", "**", "| baseline | 2 | "), ("latex", "% needs \\usepackage{booktabs}", "baseline & 2 & ")],
)
def test_table_for_papers(alr, compared, format, start, row):
    ended = alr("table", compared, "--format", format)
    assert ended.status == 0
    assert ended.out.startswith(start)
    assert f"\n{row}" in ended.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table", "--format", "pdf"], "format is 'pdf'; it must be one of text, markdown, csv, latex, json."),
        (["confusions", "--format", "latex"], "format is 'latex'; it must be one of text, json, csv."),
        (["confusions", "--top", "none"], "invalid value for '--top': 'none' is not a whole number"),
    ],
)
def test_unknown_formats(alr, compared, arguments, message):
    ended = alr(*arguments, compared)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"alr: {message}")


def test_report(alr, compared, tmp_path):
    before = files(compared)
    ended = alr("report", compared, "-o", "page.html")
    assert (ended.status, ended.out) == (0, "Report: page.html\n")
    page = (tmp_path / "page.html").read_text()
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org/", "")  # it needs no network
    assert files(compared) == before


def test_report_with_figures_and_without_inputs(alr, compared, tmp_path):
    pytest.importorskip("resvg_py")
    ended = alr("report", compared, "-o", "page.html", "--no-examples", "--figures", "out/figures")
    files = sorted(path.name for path in (tmp_path / "out" / "figures").iterdir())
    assert (ended.status, ended.err) == (0, "")
    assert ended.out == f"Report: page.html\nFigures: {len(files)} files in out/figures\n"
    assert {"results.tex", "validation-accuracy.svg", "validation-accuracy.png"} <= set(files)
    assert "<q>" not in (tmp_path / "page.html").read_text()
    assert "<q>" in (alr("report", compared) and (tmp_path / "report.html").read_text())


def test_figures_where_a_file_is_in_the_way(alr, compared, tmp_path):
    (tmp_path / "taken").write_text("")
    ended = alr("report", compared, "--figures", "taken")
    assert ended.status == 2
    assert ended.err == "alr: Cannot make the folder taken: File exists.\n"


def test_confusions(alr, compared):
    shown = alr("confusions", compared, "--top", 2).out.splitlines()
    assert re.split("  +", shown[0]) == ["class", "taken for", "residual label %", "test rate %", "test examples"]
    assert all(line.startswith(("food", "music", "sport")) for line in shown[1:3])
    mean = "Mean over 2 runs of the residual labels, over 4 runs of the test figures; last stored epoch."
    assert shown[3] == mean  # only those of alr learn some
    pairs = alr("confusions", compared, "--top", 6, "--format", "json").json["pairs"]
    rows = list(csv.DictReader(io.StringIO(alr("confusions", compared, "--top", 6, "--format", "csv").out)))
    assert len(pairs) == len(rows) == 6
    for pair, row in zip(pairs, rows, strict=True):
        assert (pair["true"], pair["taken_for"]) == (row["true"], row["taken_for"])
        assert pair["residual"] == float(row["residual"])
    by_class = {name: sum(pair["residual"] for pair in pairs if pair["true"] == name) for name in ("food", "music")}
    assert by_class == pytest.approx({"food": 1, "music": 1}, abs=1e-5)


def test_confusions_by_test_errors_agree_with_the_predictions(alr, compared):
    run = next(path for path in compared.iterdir() if "-baseline-s0-" in path.name)
    stored = np.load(run / "predictions.npz")
    predicted, labels, classes = stored["test_logits"].argmax(1), stored["test_labels"], list(stored["classes"])
    for pair in alr("confusions", run, "--format", "json").json["pairs"]:
        true, taken_for = classes.index(pair["true"]), classes.index(pair["taken_for"])
        assert pair["errors"] == ((labels == true) & (predicted == taken_for)).sum()


def test_runs_list_and_check(alr, compared):
    listed = alr("runs", "list", compared).out.splitlines()
    assert len(listed) == 4
    assert len({line.index("  finished  test ") for line in listed}) == 1  # the columns are aligned
    rows = alr("runs", "list", compared, "--json").json
    assert {row["test_top1"] for row in rows} == {r["metrics"]["test"]["top1"] for r in results(compared).values()}
    checked = alr("runs", "check", compared)
    assert (checked.status, checked.out.count(": whole\n")) == (0, 4)


def test_runs_check_finds_damage(alr, compared, tmp_path):
    shutil.copytree(compared, tmp_path / "mine")
    first, second, *_ = sorted(path for path in (tmp_path / "mine").iterdir() if path.is_dir())
    (first / "model.safetensors").unlink()
    (second / "result.json").unlink()
    checked = alr("runs", "check", "mine")
    assert checked.status == 1
    assert f"{first.relative_to(tmp_path)}: model.safetensors is missing, although the run is finished." in checked.out
    assert (
        f"{second.relative_to(tmp_path)}: unfinished after 4 epochs: the same command starts it again." in checked.out
    )
    problems = alr("runs", "check", "mine", "--json").json
    assert sorted(map(len, problems.values())) == [0, 0, 1, 1]
    assert "unfinished (4 epochs)" in alr("runs", "list", "mine").out


def test_runs_rm_asks_first(alr, compared, tmp_path, monkeypatch):
    shutil.copytree(compared, tmp_path / "mine")
    first, *others = sorted(path for path in (tmp_path / "mine").iterdir() if path.is_dir())
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    refused = alr("runs", "rm", first)
    assert (refused.status, refused.err) == (1, "alr: not confirmed, so nothing was done\n")
    assert first.exists()
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert alr("runs", "rm", first).out.endswith("Removed 1 run.\n")
    assert not first.exists()
    assert alr("runs", "rm", "--yes", "mine").out.endswith("Removed 3 runs.\n")
    assert not any(path.exists() for path in others)
    assert alr("runs", "list", "mine").err == "alr: there is no run in mine\n"


def test_no_torch_is_needed_to_look_at_runs(compared, tmp_path):
    code = """
import sys
from adaptive_labels.lab.cli import main
for arguments in (["table"], ["report", "-o", "page.html"], ["confusions"], ["runs", "list"], ["runs", "check"]):
    sys.argv = ["alr", *arguments, sys.argv[-1]]
    try:
        main()
    except SystemExit as end:
        assert not end.code, arguments
assert "torch" not in sys.modules
"""
    environment = {"PYTHONPATH": str(SOURCE)}
    subprocess.run([sys.executable, "-c", code, compared], env=environment, cwd=tmp_path, check=True, timeout=60)


def test_a_reader_that_goes_away_is_no_error(compared, tmp_path):
    command = f"{sys.executable} -c 'from adaptive_labels.lab.cli import main; main()' runs list {compared} | true"
    done = subprocess.run(
        command, shell=True, env={"PYTHONPATH": str(SOURCE)}, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


def test_a_command_without_an_output_does_its_work(compared, tmp_path):
    command = f"{sys.executable} -m adaptive_labels report {compared} -o page.html >&- 2>&-"
    done = subprocess.run(command, shell=True, env={"PYTHONPATH": str(SOURCE)}, cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert (tmp_path / "page.html").exists()


def test_what_the_output_cannot_encode_is_escaped(compared, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "adaptive_labels", "table", compared],
        env={"PYTHONPATH": str(SOURCE), "PYTHONIOENCODING": "latin-1"},
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    assert "\\u2192" in done.stdout.decode("latin-1")


def test_a_limit_is_no_damage(alr, compared, monkeypatch):
    monkeypatch.setenv("ALR_MAX_FILE", "10")
    assert (
        "result.json has more than 10 bytes; the environment variable ALR_MAX_FILE raises"
        in (ended := alr("runs", "list", compared)).err
    )
    assert ended.status == 2
    assert "is not valid JSON" not in alr("runs", "check", compared).out
    monkeypatch.setenv("ALR_MAX_FILE", "many")
    assert alr("runs", "list", compared).err == "alr: ALR_MAX_FILE is 'many': allowed is a whole number of at least 1\n"


def test_what_a_run_records_is_plain_json(compared):
    for name in ("config.json", "environment.json", "encoder.json", "result.json"):
        for path in compared.glob(f"*/{name}"):
            assert isinstance(json.loads(path.read_text()), dict)

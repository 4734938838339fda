import csv
import io
import json
from typing import Any

import numpy as np
import pytest

from adaptive_labels.lab.analysis.records import read_run_records
from adaptive_labels.lab.analysis.statistics import compare_all
from adaptive_labels.lab.analysis.table import FORMATS, format_table, method_rows
from adaptive_labels.lab.runs import RunFolder


@pytest.fixture
def small(maker: Any) -> list[RunFolder]:
    tests = {"baseline": [0.550, 0.555, 0.552], "slr": [0.560, 0.551, 0.565], "alr": [0.571, 0.576, 0.574]}
    runs = [maker.figures(m, s, value, value - 0.01) for m, values in tests.items() for s, value in enumerate(values)]
    return [*runs, maker.diverged("alr-s", 0, "the loss was NaN in epoch 3 | 100% & more")]


def test_the_text_table_to_the_letter(small: list[RunFolder]) -> None:
    # slr by hand: differences 1.0, −0.4, 1.3; mean 0.633, std 0.907; reach 4.3027 · 0.907 / √3 = 2.25; t = 1.21 and
    # with two degrees of freedom p = 1 − t / √(2 + t²) = 0.35, the larger of two, which Holm leaves as it is.
    assert format_table(read_run_records(small), "text").splitlines() == [
        "towns, fasttext",
        "method    n  test top-1 %  vs. baseline [95%]        p  vs. slr  val top-1 %  seconds  parameters",
        "--------  -  ------------  ------------------  -------  -------  -----------  -------  ----------",
        "baseline  3    55.2 ± 0.3                                         54.2 ± 0.3      2.5          1K",
        "slr       3    55.9 ± 0.7   +0.6 [−1.6, +2.9]     0.35            54.9 ± 0.7      2.5          1K",
        "alr       3    57.4 ± 0.3   +2.1 [+2.0, +2.3]  < 0.001     +1.5   56.4 ± 0.3      2.5          1K",
        "Test split, last epoch (4); mean ± standard deviation over n seeds.",
        "vs. baseline: the difference in points on the seeds both have, with its 95% t interval; p by paired t test, "
        "Holm-corrected over 2 methods.",
        "vs. slr: the difference from label smoothing with its default settings.",
        "Left out: alr-s, seed 0: diverged: the loss was NaN in epoch 3 | 100% & more.",
    ]


def test_rows_from_figures_by_seed_serve_any_table() -> None:
    """What tables of studies and of the paper are made from."""
    top1 = {"baseline": {0: 0.50, 1: 0.52, 2: 0.51}, "alr": {0: 0.55, 1: 0.54, 2: 0.58}, "late": {7: 0.9}}
    runs = {name: {seed: {"test_top1": value} for seed, value in seeds.items()} for name, seeds in top1.items()}
    runs["alr"][9] = {"validation_top1": 0.6}  # without the figure that is compared
    base, alr, late = method_rows(runs, "baseline")
    assert (base.versus, alr.versus, late.versus) == (None, *compare_all(top1, "baseline").values())
    assert (alr.n, len(alr.values("test_top1")), alr.mean("validation_top1")) == (4, 3, 0.6)
    assert alr.mean("test_nll") is None


def test_unbalanced_classes_bring_their_means_over_classes(maker: Any) -> None:
    for balanced, shown in ((0.9, False), (0.5, True)):
        run = maker.create("baseline", 0, dataset=str(shown))
        metrics = {"top1": 0.9, "balanced_accuracy": balanced, "macro_f1": balanced - 0.05}
        text = format_table(read_run_records([maker.finish(run, {"test": metrics})]))
        assert ("balanced %" in text, "macro F1 %" in text) == (shown, shown)
    assert " 50.0 " in text
    assert " 45.0 " in text


def test_whole_runs_show_every_column(comparison: list[RunFolder]) -> None:
    text = format_table(read_run_records(comparison))
    for column in ("top-5 %", "NLL", "ECE % → scaled", "AURC", "seconds", "parameters"):
        assert column in text.splitlines()[1]
    assert "8.0 → 2.0" in text
    for line in text.splitlines()[3:6]:
        method, figures = line.split()[0], [run.result or {} for run in comparison]
        top5 = [100 * r["metrics"]["test"]["top5"] for r in figures if r["method"] == method]
        assert f" {np.mean(top5):.1f} " in line
    assert "ECE with 15 bins" in text


def test_markdown_and_latex_are_escaped_and_keep_their_columns(maker: Any, small: list[RunFolder]) -> None:
    odd = maker.figures("a|b*c_d%&#$", 0, 0.5, 0.5, dataset="_x_")
    text = format_table(read_run_records([*small, odd]), "markdown")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.replace("\\|", "").count("|") in (7, 10) for line in rows)
    for words in ("a\\|b\\*c", "**\\_x\\_, fasttext**", "NaN in epoch 3 \\| 100% & more."):
        assert words in text
    latex = format_table(read_run_records([*small, maker.figures("a_b%&#$", 0, 0.5, 0.5)]), "latex")
    for words in ("\\toprule", r"a\_b\%\&\#\$", r"57.4 $\pm$ 0.3", r"$<$ 0.001", "$-$1.6", r"test top-1 \%"):
        assert words in latex
    body = latex[latex.index("\\midrule") : latex.index("\\bottomrule")]
    assert {line.replace(r"\&", "").count("&") for line in body.splitlines()[1:]} == {8}
    assert "% left out: alr-s, seed 0" in latex


def test_csv_and_json_give_the_figures_unrounded(small: list[RunFolder]) -> None:
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(format_table(read_run_records(small), "csv")))}
    data = {row["method"]: row for row in json.loads(format_table(read_run_records(small), "json"))}
    alr, left = data["alr"], data["alr-s"]
    mean = np.mean([0.571, 0.576, 0.574])
    assert float(rows["alr"]["test_top1_mean"]) == alr["test_top1_mean"] == pytest.approx(mean, rel=1e-12)
    assert float(rows["alr"]["difference"]) == alr["difference"] == pytest.approx(0.064 / 3)
    assert alr["vs_slr_difference"] == pytest.approx(0.015)
    assert (alr["n"], alr["shared_seeds"], alr["p_flip"], alr["epochs"]) == (3, 3, 0.25, "4")
    assert rows["alr-s"]["reason"] == left["reason"] == "the loss was NaN in epoch 3 | 100% & more"
    assert (left["status"], left["seed"], "n" in left) == ("diverged", 0, False)
    assert [alr["group"], alr["dataset"], alr["model"]] == ["towns, fasttext", "towns", "fasttext"]


@pytest.mark.parametrize("format", FORMATS)
def test_few_runs_print_no_nan_and_say_so(maker: Any, format: str) -> None:
    runs = [maker.figures("baseline", 0, 0.5), maker.figures("alr", 0, 0.6), maker.figures("slr", 1, 0.6)]
    text = format_table(read_run_records(runs), format)
    assert "nan" not in text.lower()
    if format in ("text", "markdown", "latex"):
        assert "alr: one seed: no test possible." in text
        assert "slr: no seed in common with the baseline: no test possible." in text
    nothing = format_table(read_run_records([maker.diverged("ols", 0, "why not", dataset="other")]), format)
    assert "why not" in nothing


def test_groups_have_a_table_each(maker: Any) -> None:
    runs = [maker.figures("alr", 0, 0.5, dataset=name) for name in ("towns", "digits")]
    text = format_table(read_run_records(runs))
    assert text.index("digits, fasttext") < text.index("towns, fasttext")
    assert "No baseline among these runs." in text
    with pytest.raises(ValueError, match="format is 'xml'; it must be one of text, markdown, csv, latex, json"):
        format_table([], "xml")

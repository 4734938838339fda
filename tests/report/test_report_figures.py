import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from adaptive_labels.lab.report import write_figures
from adaptive_labels.lab.runs import RunError, RunFolder

FIGURES = {
    "accuracy-by-class", "differences", "loss-parts-alr", "reliability-alr", "reliability-baseline", "reliability-slr",
    "residual-entropy", "residual-labels-alr", "residual-weight", "risk-coverage", "row-correlation", "test-errors-alr",
    "top-confusion-consistency", "training-accuracy", "validation-accuracy",
}  # fmt: skip
TABLES = {"confused-pairs", "differing-pairs", "paired-tests", "results", "worst-classes"}


def names(folder: Path, suffix: str) -> set[str]:
    return {path.stem for path in folder.glob(f"*{suffix}")}


@pytest.fixture(scope="module")
def figures(comparison: list[RunFolder], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All figures of three methods, written once."""
    pytest.importorskip("resvg_py", reason="PNG files need resvg-py")
    folder = tmp_path_factory.mktemp("figures") / "made" / "here"
    files, problem = write_figures([run for run in comparison if run.config.seed < 2], folder)
    assert problem is None
    assert set(files) == set(folder.iterdir())
    return folder


def test_every_figure_and_table_becomes_a_file(figures: Path) -> None:
    assert names(figures, ".svg") == names(figures, ".png") == FIGURES
    assert names(figures, ".tex") - {"one-way-pairs"} == TABLES  # that one only where there are such


def test_the_paired_tests_are_of_accuracy_and_of_likelihood(figures: Path, comparison: list[RunFolder]) -> None:
    nll = {
        (run.config.method.name, run.config.seed): run.result["metrics"]["test"]["nll"]
        for run in comparison
        if run.result is not None
    }
    mean = sum(nll["alr", seed] - nll["baseline", seed] for seed in (0, 1)) / 2
    table = (figures / "paired-tests.tex").read_text(encoding="utf-8").replace("$-$", "−")
    (row,) = [line for line in table.splitlines() if line.startswith("alr ")]
    assert f"{mean:+.3f} [".replace("-", "−") in row


def test_an_svg_stands_alone(figures: Path) -> None:
    for path in figures.glob("*.svg"):
        text = path.read_text(encoding="utf-8")
        root = ET.fromstring(text)  # well-formed
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert float(root.attrib["width"]) > 100
        assert "var(" not in text  # colours are written out: not every reader knows variables
        assert "<script" not in text
    assert "&lt;script&gt;alert" in (figures / "residual-labels-alr.svg").read_text(encoding="utf-8")


def test_a_png_shows_what_is_drawn(figures: Path) -> None:
    for path in figures.glob("*.png"):
        with Image.open(path) as image:
            assert image.width > 600  # three times the figure's own size
            colours = {colour for _, colour in image.convert("RGB").getcolors(1_000_000)}
            assert image.convert("RGB").getpixel((1, 1)) == (255, 255, 255)
            assert len(colours) > 20
            if path.stem == "residual-labels-alr":
                assert (8, 81, 156) in colours  # full strength


def test_tables_are_latex_with_escaped_names(figures: Path) -> None:
    pairs = (figures / "confused-pairs.tex").read_text(encoding="utf-8")
    assert re.search(r"\\begin\{tabular\}\{llrrr\}", pairs)
    assert r"C \& A & $<$script$>$alert(1)$<$/script$>$ &" in pairs
    assert r"\begin{tabular}{lr" in (figures / "results.tex").read_text(encoding="utf-8")


def test_without_the_package_there_is_no_png_and_groups_have_files_of_their_own(
    maker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)  # importing it fails, as where it is not installed
    runs = [maker.whole("alr", 0, classes=["a", "b", "c"], dataset=name) for name in ("towns", "digits")]
    _, problem = write_figures(runs, tmp_path / "figures")
    assert problem == (
        "PNG files were not written: they need the package resvg-py (pip install 'adaptive-labels[report]')."
    )
    assert names(tmp_path / "figures", ".png") == set()
    found = names(tmp_path / "figures", ".svg")
    assert {"towns-fasttext-residual-labels-alr", "digits-fasttext-residual-labels-alr"} <= found
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"Cannot make the folder .*file/figures: Not a directory\."):
        write_figures(runs, tmp_path / "file" / "figures")


def test_names_of_files_stay_short_whatever_the_groups_differ_in(tmp_path: Path, maker: Any) -> None:
    settings = {"momentum": 0.123456, "warmup": 1.23456, "gamma": 0.123456, "clip_norm": 1.23456, "accumulate": 123456}
    settings |= {
        "ema": 0.123456,
        "class_weights": "balanced",
        "bias_lr": 1.23456,
        "translate": 123456,
        "cutout": 123456,
    }
    runs = [maker.figures(method, 0, 0.5, **more) for method in ("baseline", "alr") for more in (settings, {})]
    files, _ = write_figures(runs, tmp_path)
    assert len({file.name for file in files}) == len(files)
    assert max(len(file.name) for file in files) < 200

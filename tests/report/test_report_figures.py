import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from adaptive_labels.lab.report import write_figures
from adaptive_labels.lab.runs import RunError, RunFolder
from run_maker import Maker, three_methods

FIGURES = {
    "accuracy-by-class", "differences", "loss-parts-alr", "reliability-alr", "reliability-baseline", "reliability-slr",
    "residual-entropy", "residual-labels-alr", "residual-weight", "risk-coverage", "row-correlation", "test-errors-alr",
    "top-confusion-consistency", "training-accuracy", "validation-accuracy",
}  # fmt: skip
TABLES = {"confused-pairs", "differing-pairs", "paired-tests", "results", "worst-classes"}


def names(folder: Path, suffix: str) -> set[str]:
    return {path.stem for path in folder.glob(f"*{suffix}")}


def forget_resvg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)  # importing it fails, as where it is not installed


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods by two seeds, all their figures written once."""
    pytest.importorskip("resvg_py", reason="PNG files need resvg-py")
    folder = tmp_path_factory.mktemp("figures") / "made" / "here"
    runs = three_methods(Maker(tmp_path_factory.mktemp("runs")), seeds=2)
    files, problem = write_figures(runs, folder)
    assert problem is None
    assert set(files) == set(folder.iterdir())
    return folder


def test_every_figure_and_table_becomes_a_file(figures: Path) -> None:
    assert names(figures, ".svg") == names(figures, ".png") == FIGURES
    assert names(figures, ".tex") - {"one-way-pairs"} == TABLES  # that one only where there are such


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


def test_without_the_package_there_is_no_png_but_all_the_rest(
    comparison: list[RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_resvg(monkeypatch)
    _, problem = write_figures(comparison, tmp_path)
    assert problem == (
        "PNG files were not written: they need the package resvg-py (pip install 'adaptive-labels[report]')."
    )
    assert names(tmp_path, ".png") == set()
    assert names(tmp_path, ".svg") == FIGURES
    assert names(tmp_path, ".tex") - {"one-way-pairs"} == TABLES


def test_groups_have_files_of_their_own(maker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_resvg(monkeypatch)  # it takes its time
    runs = [maker.whole("alr", 0, classes=["a", "b", "c"], dataset=name) for name in ("towns", "digits")]
    write_figures(runs, tmp_path / "figures")
    assert {"towns-fasttext-residual-labels-alr", "digits-fasttext-residual-labels-alr"} <= names(
        tmp_path / "figures", ".svg"
    )


def test_a_folder_that_cannot_be_made_is_said_in_a_sentence(comparison: list[RunFolder], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"Cannot make the folder .*file/figures: Not a directory\."):
        write_figures(comparison, tmp_path / "file" / "figures")


def test_names_of_files_stay_short_whatever_the_groups_differ_in(tmp_path: Path, maker: Any) -> None:
    settings = {f"a_setting_of_the_recipe_{number}": number for number in range(20)}
    runs = [maker.figures(method, 0, 0.5, **more) for method in ("baseline", "alr") for more in (settings, {})]
    files, _ = write_figures(runs, tmp_path)
    assert len({file.name for file in files}) == len(files)
    assert max(len(file.name) for file in files) < 200

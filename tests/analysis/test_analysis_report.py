import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adaptive_labels.analysis import bootstrap_runs, write_report
from adaptive_labels.analysis.calibration import reliability
from adaptive_labels.analysis.charts import Curve, curves, heat_map, shorten, zoom_start
from adaptive_labels.runs import RunError, RunFolder

VOID = {"meta", "link", "br", "hr", "img"}


class Page(HTMLParser):
    """Reads a page strictly: every element must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.title_of: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), f"an attribute twice in <{tag}>"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)
        if self.open and self.open[-1] == "title":
            self.title_of.append(data)

    def count(self, tag: str, css: str | None = None) -> int:
        return sum(
            name == tag and (css is None or css in (at.get("class") or "").split()) for name, at in self.elements
        )

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def report(runs: list[RunFolder], tmp_path: Path) -> Page:
    path = write_report(runs, tmp_path / "report.html")
    assert path == tmp_path / "report.html"
    return Page(path.read_text(encoding="utf-8"))


def test_the_page_asks_nothing_of_anyone_and_runs_nothing(comparison: list[RunFolder], tmp_path: Path) -> None:
    page = report(comparison, tmp_path)
    source = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("script") == page.count("img") == page.count("iframe") == 0
    for _, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("href", "data:,") == "data:,"
        assert "src" not in attributes
    assert "@import" not in source
    assert set(re.findall(r"url\(([^)]*)\)", source)) == {"#plot0"}
    assert any("default-src 'none'" in (at.get("content") or "") for _, at in page.elements)


def test_a_class_called_script_is_shown(comparison: list[RunFolder], tmp_path: Path) -> None:
    page = report(comparison, tmp_path)
    assert "<script>alert(1)</script>" in page.texts
    assert any("C & A → <script>alert(1)</script>: 0." in title for title in page.title_of)


def test_everything_is_there_the_verdict_first(comparison: list[RunFolder], tmp_path: Path) -> None:
    page = report(comparison, tmp_path)
    order = [page.text.index(words) for words in (
        "alr reaches", "Holm-corrected over 2 methods", "Learning curves", "What is taken for what", "residual label %",
        "Residual labels of alr", "Can the confidence be believed?", "How this was made", "alr train towns --method",
    )]  # fmt: skip
    assert order == sorted(order)
    assert page.count("polyline", "curve") == 3
    assert page.count("polygon", "band") == 3
    assert page.count("svg", "reliability") == 3
    assert page.count("svg", "heatmap") == 1
    assert page.count("tr", "best") == 1


def test_figures_and_tables_can_be_reached_and_read_without_seeing(comparison: list[RunFolder], tmp_path: Path) -> None:
    page = report(comparison, tmp_path)
    for position, (tag, attributes) in enumerate(page.elements):
        if tag == "svg" and attributes.get("aria-hidden") != "true":
            assert attributes["role"] == "img"
            assert attributes["aria-label"]
            assert [name for name, _ in page.elements[position + 1 : position + 3]] == ["title", "desc"]
        if "scroll" in (attributes.get("class") or ""):
            assert attributes["tabindex"] == "0"
            assert attributes["aria-label"]
        if tag == "th":
            assert attributes["scope"] in ("row", "col")
    assert ("html", {"lang": "en"}) in page.elements
    dashes = [at["stroke-dasharray"] for tag, at in page.elements if tag == "polyline"]
    assert len(set(dashes)) == len(dashes)


def test_groups_have_sections_with_ids_of_their_own(maker: Any, tmp_path: Path) -> None:
    runs = [maker.whole("alr", 0, classes=["a", "b", "c"], dataset=name) for name in ("towns", "digits")]
    page = report(runs, tmp_path)
    assert page.count("section", "group") == 2
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids)) == 2
    assert "Label regularisation on digits and towns" in page.texts


def test_many_classes_are_cut_and_it_is_said(maker: Any, tmp_path: Path) -> None:
    page = report([maker.whole("alr", 0, classes=[f"class {i}" for i in range(70)])], tmp_path)
    assert "Only the 40 most confused of 70 classes are shown." in page.text
    assert page.count("rect", "own") == 40


@pytest.mark.parametrize("classes", [["yes", "no"], ["", "\udcff", "日本語"]])
def test_odd_classes_do_not_break_the_page(maker: Any, tmp_path: Path, classes: list[str]) -> None:
    runs = [maker.whole(method, 0, classes=classes) for method in ("baseline", "alr")]
    assert report(runs, tmp_path).count("svg", "heatmap") == 1


def test_runs_with_nothing_but_figures_or_not_even_those(maker: Any, tmp_path: Path) -> None:
    page = report([maker.figures("baseline", 0, 0.5, 0.5), maker.figures("alr", 0, 0.6, 0.6)], tmp_path)
    assert page.count("svg") == 0
    assert "one seed: no test possible" in page.text
    page = report([maker.diverged("alr", 3, "the loss was <NaN>")], tmp_path)
    assert "No run has finished yet" in page.text
    assert "alr, seed 3: diverged: the loss was <NaN>." in page.text
    with pytest.raises(RunError, match=r"There are no runs to report on, so .* was not written\."):
        write_report([], tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()


def test_a_damaged_file_costs_its_figure_only(comparison: list[RunFolder], tmp_path: Path) -> None:
    (comparison[0].path / "history.jsonl").write_text("{}\n{}\n")
    for run in comparison[6:]:
        (run.path / "predictions.npz").write_bytes(b"PK")
    page = report(comparison, tmp_path)
    assert "history.jsonl, line 1, has no whole number as its 'epoch'" in page.text
    assert page.text.count("predictions.npz cannot be read") == 3
    assert page.count("polyline", "curve") == 3
    assert page.count("svg", "reliability") == 2


def test_reliability_against_a_loop() -> None:
    generator = np.random.default_rng(0)
    logits, labels = generator.normal(size=(300, 4)) * 2, generator.integers(0, 4, 300)
    found = reliability(logits, labels, bins=10)
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(10)]
    for row, label in zip(logits, labels, strict=True):
        p = np.exp(row) / np.exp(row).sum()
        place = next(b for b in range(10) if p.max() <= (b + 1) / 10)
        bins[place].append((p.max(), p.argmax() == label))
    gaps = 0.0
    for b, members in enumerate(bins):
        assert found.count[b] == len(members)
        if members:
            confidence, right = np.mean(members, axis=0)
            assert found.confidence[b] == pytest.approx(confidence)
            assert found.accuracy[b] == pytest.approx(right)
            gaps += len(members) / 300 * abs(confidence - right)
    assert found.ece == pytest.approx(gaps)
    assert reliability(np.zeros((0, 3)), []).ece == 0.0
    assert reliability([[1e4, -1e4]], [0]).count[-1] == 1


def test_curves_stay_inside_their_frame_and_flat_ones_are_drawn() -> None:
    for values in ([0.5] * 12, [0.0] * 3, [1.0], list(np.linspace(0.1, 0.9, 50))):
        line = Curve(np.arange(1, len(values) + 1), np.array(values), np.zeros(len(values)))
        drawing = curves({"m": line}, "t")
        assert "nan" not in drawing
        points = re.search(r'<polyline[^>]*points="([^"]*)"', drawing)
        assert points is not None
        seen = [tuple(map(float, pair.split(","))) for pair in points[1].split()][zoom_start(len(values)) :]
        assert all(40 <= x <= 470 and 12 <= y <= 262 for x, y in seen)


def test_long_names_are_shortened_beside_the_map_and_whole_inside() -> None:
    name = "a very long name of a class indeed"
    drawing = heat_map(np.array([[0, 1.0], [1.0, 0]]), [name, "b"], "t", "d")
    assert f">{shorten(name)}<" in drawing
    assert f"{name} → b: 1.000" in drawing


def test_two_runs_are_compared_example_by_example(comparison: list[RunFolder]) -> None:
    baseline, alr = comparison[0], comparison[6]
    found = bootstrap_runs(alr, baseline, repeats=500)
    assert alr.result is not None
    assert baseline.result is not None
    expected = alr.result["metrics"]["test"]["top1"] - baseline.result["metrics"]["test"]["top1"]
    assert found.difference == pytest.approx(expected)
    assert found.low < found.difference < found.high
    with pytest.raises(RunError, match="were tested on different examples; they cannot be paired"):
        bootstrap_runs(alr, comparison[1])


def test_nothing_here_needs_torch() -> None:
    code = "import sys, adaptive_labels.analysis, adaptive_labels.runs; print('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "False\n"

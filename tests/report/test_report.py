import base64
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adaptive_labels.lab.analysis import bootstrap_runs, group_records, read_run_records
from adaptive_labels.lab.analysis.suspects import Suspect, Suspects
from adaptive_labels.lab.report import sections, write_report
from adaptive_labels.lab.report.charts import (
    EPOCHS,
    Axis,
    Curve,
    line_chart,
    panels,
    percent_axis,
    rank_chart,
    zoom_start,
)
from adaptive_labels.lab.report.group_data import read_group
from adaptive_labels.lab.report.heatmap import heat_map
from adaptive_labels.lab.report.page import asset
from adaptive_labels.lab.report.svg import labelled, nice_ticks
from adaptive_labels.lab.runs import RunError, RunFolder
from adaptive_labels.lab.runs.arrays import save_residual_labels
from adaptive_labels.lab.words import shorten
from run_maker import sealed_again

VOID = {"meta", "link", "br", "hr", "img", "input"}


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
        if not {"style", "script"} & set(self.open):
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


def data_of(path: Path) -> Any:
    """What the page hands to its script."""
    block = path.read_text(encoding="utf-8").split('id="g0-confusions-data">')[1]
    return json.loads(block.split("</script>")[0])


def test_the_page_asks_nothing_of_anyone(comparison: list[RunFolder], tmp_path: Path) -> None:
    page = report(comparison, tmp_path)
    source = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("iframe") == page.count("object") == 0
    for _, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes)
        assert (attributes.get("href") or "#").startswith(("#", "data:,"))
        assert "src" not in attributes
    assert "@import" not in source
    assert "url(" not in source


def test_the_only_script_is_the_reports_own_and_its_hash_is_all_that_is_allowed(
    comparison: list[RunFolder], tmp_path: Path
) -> None:
    page = report(comparison, tmp_path)
    scripts = [attributes for tag, attributes in page.elements if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "g0-confusions-data"}, {}]
    allowed = base64.b64encode(hashlib.sha256(asset("report.js").encode()).digest()).decode()
    policies = [at["content"] for tag, at in page.elements if at.get("http-equiv") == "Content-Security-Policy"]
    assert len(policies) == 1
    assert "default-src 'none'" in policies[0]
    assert f"script-src 'sha256-{allowed}';" in policies[0]
    source = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"<script>{asset('report.js')}</script>" in source


def test_names_and_inputs_are_shown_and_never_markup(comparison: list[RunFolder], tmp_path: Path) -> None:
    page = report(comparison, tmp_path)
    assert "<script>alert(1)</script>" in page.texts
    assert any(re.fullmatch(r"<b>input</b> \d+ & more", text) for text in page.texts)
    assert page.count("b") == 0
    source = (tmp_path / "report.html").read_text(encoding="utf-8")
    block = source.split('id="g0-confusions-data">')[1].split("</script>")[0]
    assert not set("<>&\u2028\u2029") & set(block)
    assert "<script>alert(1)</script>" in json.loads(block)["classes"]


def test_everything_is_there_the_answer_first(comparison: list[RunFolder], tmp_path: Path) -> None:
    page = report(comparison, tmp_path)
    order = [page.text.index(words) for words in (
        "alr is best on validation", "Test accuracy against baseline", "Most confused on the test split",
        "Holm-corrected over 2 methods", "All paired tests", "What is taken for what", "Residual labels of alr, epoch",
        "Test errors of alr", "The most confused pairs", "residual label %", "Do residual labels foresee",
        "Residual labels over time", "How training went", "Weight on the residual loss", "Parts of the loss of alr",
        "Can the confidence be believed?", "AURC × 100", "Which classes are hard", "How this was made",
        "alr train towns --method",
    )]  # fmt: skip
    assert order == sorted(order)
    assert page.count("svg", "reliability") == 3
    assert page.count("svg", "heatmap") == 2
    assert page.count("tr", "best") == 1
    assert "alr: after epoch 1, 0% of the classes already have the top confusion" in page.text  # it starts even
    links = [attributes["href"] for tag, attributes in page.elements if tag == "a"]
    assert links
    assert {link.removeprefix("#") for link in links if link} <= {at["id"] for _, at in page.elements if "id" in at}


def test_figures_and_tables_can_be_reached_and_read_without_seeing(comparison: list[RunFolder], tmp_path: Path) -> None:
    page = report(comparison, tmp_path)
    for position, (tag, attributes) in enumerate(page.elements):
        if tag == "svg" and "role" in attributes:
            assert attributes["role"] == "img"
            assert attributes["aria-label"]
            assert [name for name, _ in page.elements[position + 1 : position + 3]] == ["title", "desc"]
        if "scroll" in (attributes.get("class") or ""):
            assert attributes["tabindex"] == "0"
            assert attributes["aria-label"]
        if tag == "th":
            assert attributes["scope"] in ("row", "col")
        if tag == "button":
            assert attributes["type"] == "button"
    assert ("html", {"lang": "en"}) in page.elements
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert all(below - above <= 1 for above, below in itertools.pairwise([0, *levels])), levels
    controls = [attributes for _, attributes in page.elements if attributes.get("class") == "controls"]
    assert ["hidden" in attributes for attributes in controls] == [True]  # until the script is there


def test_lines_differ_in_more_than_colour_and_a_method_keeps_its_own(
    comparison: list[RunFolder], tmp_path: Path
) -> None:
    source = (tmp_path / "report.html").read_text() if report(comparison, tmp_path) else ""
    drawn = re.findall(r'<polyline class="curve (line\d)"(?: stroke-dasharray="([^"]*)")?[^>]*><title>(\w+)<', source)
    styles = {name: {(colour, dash) for colour, dash, other in drawn if other == name} for _, _, name in drawn}
    methods = [styles[name] for name in ("baseline", "slr", "alr")]
    assert all(len(found) == 1 for found in methods)
    assert len({dash for found in methods for _, dash in found}) == 3


def test_groups_have_sections_with_ids_of_their_own(maker: Any, tmp_path: Path) -> None:
    runs = [maker.whole("alr", 0, classes=["a", "b", "c"], dataset=name) for name in ("towns", "digits")]
    page = report(runs, tmp_path)
    assert page.count("section", "group") == 2
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {"g0-answer", "g1-answer", "g0-confusions-data", "g1-confusions-data"} <= set(ids)
    assert "Label regularisation on digits and towns" in page.texts


def test_many_classes_are_cut_and_it_is_said(maker: Any, tmp_path: Path) -> None:
    classes = [f"class {i}" for i in range(1000)]
    page = report([maker.whole("alr", 0, classes=classes, examples=3000)], tmp_path)
    assert "Only the 100 most confused of 1,000 classes are drawn; the search finds all." in page.text
    data = data_of(tmp_path / "report.html")
    assert len(data["classes"]) == 100
    assert data["names"] == classes
    assert re.match(r"By its residual label it is taken for: class 1 \d", data["rows"][0])
    assert (tmp_path / "report.html").stat().st_size < 2_000_000


def test_a_hundred_classes_by_twelve_runs_stay_under_two_megabytes(maker: Any, tmp_path: Path) -> None:
    classes = [f"a class with quite a long name, number {i}" for i in range(100)]
    methods = [("baseline", {}), *(("alr", {"attraction": a}) for a in (1.0, -1.0, 0.5))]
    runs = [
        maker.whole(name, seed, classes=classes, examples=2000, options=options)
        for name, options in methods
        for seed in range(3)
    ]
    page = report(runs, tmp_path)
    assert (tmp_path / "report.html").stat().st_size < 2_000_000
    assert page.count("svg", "heatmap") == 2
    assert [len(method["residual"]) for method in data_of(tmp_path / "report.html")["methods"]] == [0, 3, 3, 3]


def test_epochs_are_thinned_where_they_would_not_fit(
    maker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adaptive_labels.lab.report.report.MAP_BYTES", 100)
    page = report([maker.whole("alr", 0, classes=list("abcdefgh"))], tmp_path)
    assert "1 of the stored epochs are left out of the slider" in page.text
    assert data_of(tmp_path / "report.html")["methods"][0]["epochs"] == [1, 4]


def test_the_map_holds_the_labels(maker: Any, tmp_path: Path) -> None:
    run = maker.whole("alr", 0, classes=list("abcdef"))
    report([run], tmp_path)
    method = data_of(tmp_path / "report.html")["methods"][0]
    stored = run.load_residual_labels()
    for position, packed in enumerate(method["residual"]):
        values = (np.frombuffer(base64.b64decode(packed), dtype=np.uint8) / 255.0) ** 2
        np.testing.assert_allclose(values.reshape(6, 6), stored.matrix(position), atol=0.005)


def test_the_inputs_can_be_left_out(comparison: list[RunFolder], tmp_path: Path) -> None:
    write_report(comparison, tmp_path / "report.html", examples=False)
    assert "more</q>" not in (tmp_path / "report.html").read_text()
    assert "input" not in Page((tmp_path / "report.html").read_text()).text.replace("inputs", "")


def test_thumbnails_are_shown_only_if_they_are_images(maker: Any, tmp_path: Path) -> None:
    run = maker.whole("alr", 0, classes=["a", "b", "c"])
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()
    content = json.loads((run.path / "examples.json").read_text())
    for pair in content["pairs"]:
        pair["examples"] = [{"png": png, "confidence": 0.5}, {"png": '"><img src=x>', "confidence": 0.4}]
    (run.path / "examples.json").write_text(json.dumps(content))
    sealed_again(run.path)
    page = report([run], tmp_path)
    images = [attributes for tag, attributes in page.elements if tag == "img"]
    assert images
    assert all(attributes["src"] == f"data:image/png;base64,{png}" and attributes["alt"] for attributes in images)


def test_memorised_labels_are_told_for_runs_with_noise_only(maker: Any, tmp_path: Path) -> None:
    runs = []
    for method, memorised in (("baseline", 0.6), ("alr", 0.2), ("slr", 0.2)):
        for seed in range(2):
            run = maker.create(method, seed)
            train = {"wrong_labels": 120.0, "memorised": memorised, "recovered": 0.9 - memorised}
            runs.append(maker.finish(run, {"train": train, "test": {"top1": 0.7}, "validation": {"top1": 0.7}}))
    page = report(runs[:4], tmp_path)
    assert "alr memorised the fewest of the wrong labels: 20.0 ± 0.0%." in page.text
    assert "slr and alr memorised the fewest of the wrong labels: 20.0%." in report(runs, tmp_path).text
    assert "Of the 120 training labels that were made wrong on purpose" in page.text
    quiet = report([maker.figures("baseline", 0, 0.5, 0.5, dataset="other")], tmp_path)
    assert "wrong labels" not in quiet.text


@pytest.mark.parametrize("classes", [["yes", "no"], ["", "\udcff", "日本語"]])
def test_odd_classes_do_not_break_the_page(maker: Any, tmp_path: Path, classes: list[str]) -> None:
    runs = [maker.whole(method, 0, classes=classes) for method in ("baseline", "alr")]
    assert report(runs, tmp_path).count("svg", "heatmap") == 2


def test_runs_without_residual_labels_show_the_test_errors(maker: Any, tmp_path: Path) -> None:
    page = report([maker.whole("baseline", seed, classes=list("abcd")) for seed in range(2)], tmp_path)
    assert page.count("svg", "heatmap") == 1
    assert "Residual labels over time" not in page.text
    assert "test rate %" in page.text


def test_runs_with_nothing_but_figures_or_not_even_those(maker: Any, tmp_path: Path) -> None:
    page = report([maker.figures("baseline", 0, 0.5, 0.5), maker.figures("alr", 0, 0.6, 0.6)], tmp_path)
    assert page.count("svg") == 2  # the differences, and the part of them that is drawn in a frame
    assert "one seed: no test possible" in page.text
    page = report([maker.diverged("alr", 3, "the loss was <NaN>")], tmp_path)
    assert "No run has finished yet" in page.text
    assert "alr, seed 3: diverged: the loss was <NaN>." in page.text
    with pytest.raises(RunError, match=r"There are no runs to report on, so nothing was written\."):
        write_report([], tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()


def test_a_damaged_file_costs_its_figure_only(comparison: list[RunFolder], tmp_path: Path) -> None:
    (comparison[0].path / "history.jsonl").write_text("{}\n{}\n")
    (comparison[1].path / "examples.json").write_text("[]")
    for run in comparison[6:]:
        (run.path / "predictions.npz").write_bytes(b"PK")
    for run in comparison:
        sealed_again(run.path)
    (comparison[2].path / "history.jsonl").write_text('{"epoch": 1}\n')
    page = report(comparison, tmp_path)
    assert "history.jsonl, line 1, has no whole number as its 'epoch'" in page.text
    assert "examples.json holds a list" in page.text
    assert "history.jsonl is damaged: its content is not what was written" in page.text
    assert page.text.count("predictions.npz cannot be read") == 3
    assert page.count("svg", "reliability") == 2
    assert page.count("svg", "heatmap") == 1  # alr's residual labels, without test errors


def test_the_figures_are_those_of_the_runs(maker: Any, tmp_path: Path) -> None:
    """Against plain numpy: calibration, risk–coverage, accuracy by class and entropy of one run."""
    run = maker.whole("alr", 0, classes=list("abcdef"))
    text = " ".join(report([run], tmp_path).text.split())
    found, labels = run.load_predictions(), run.load_residual_labels()
    logits, truth = found.test_logits.astype(float), found.test_labels

    def softmax(scores: Any) -> Any:
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def ece(scores: Any) -> float:
        confidence, right = softmax(scores).max(axis=1), scores.argmax(axis=1) == truth
        place = np.minimum((confidence * 15).astype(int), 14)
        gaps = [abs((right[place == b] - confidence[place == b]).sum()) for b in range(15)]
        return 100 * sum(gaps) / len(truth)

    assert f"alr: ECE {ece(logits):.1f}% → {ece(logits / 1.3):.1f}%" in text
    right = (logits.argmax(axis=1) == truth)[np.argsort(-softmax(logits).max(axis=1), kind="stable")]
    area = 100 * np.mean(np.cumsum(~right) / np.arange(1, len(truth) + 1))
    assert f"AURC × 100: alr {area:.2f}." in text
    accuracy = [np.mean(logits.argmax(axis=1)[truth == k] == k) for k in range(6)]
    worst = int(np.argmin(accuracy))
    assert f"Lowest: {'abcdef'[worst]} with alr {100 * accuracy[worst]:.0f}%." in text
    q = labels.matrix()[~np.eye(6, dtype=bool)].reshape(6, 5).astype(float)
    entropy = 100 * np.mean(-(q * np.log(q)).sum(axis=1)) / np.log(5)
    assert f"Entropy of the residual labels, towns, fasttext At the right end: alr {entropy:.1f}%." in text


def test_labels_that_have_not_moved_are_not_to_be_read(maker: Any, tmp_path: Path) -> None:
    run = maker.whole("alr", 0, classes=list("abcdef"))
    assert "still nearly even" not in report([run], tmp_path).text
    stored = run.load_residual_labels()
    (run.path / "residual_labels.npz").unlink()
    save_residual_labels(run.path / "residual_labels.npz", [1], stored.labels[:1], stored.classes)
    sealed_again(run.path)
    assert "The residual labels are still nearly even (entropy 100.0% of" in report([run], tmp_path).text


def test_suspicious_labels_are_shown_with_the_runs_of_their_data(maker: Any, tmp_path: Path) -> None:
    run = maker.whole("alr", 0, classes=["a", "b", "<i>"])
    first = Suspect(1, "train", 7, "train.csv:9", "<u>text</u>", "a", "<i>", 0.02, 0.9, True, "<b>")
    script = replace(first, rank=2, png='"><script>')
    found = Suspects("towns", 500, 50, (first, script), 30, 1, ())
    write_report([run], tmp_path / "report.html", suspects=[found])
    page = Page((tmp_path / "report.html").read_text())
    text = " ".join(page.text.split())
    assert "<u>text</u>" in page.texts
    assert "About 50 of these 500 labels are wrong; 30 are wrong with a probability of 60% or more." in text
    assert "90% wrong · there with another label, too · in truth <b>" in text
    assert '"><script>' not in text
    write_report([run], tmp_path / "report.html", suspects=[found], examples=False)
    assert "<u>text</u>" not in Page((tmp_path / "report.html").read_text()).texts
    with pytest.raises(RunError, match=r"The suspects are of another, which none of these runs was trained on\."):
        write_report([run], tmp_path / "report.html", suspects=[replace(found, dataset="another")])


def test_pairs_confused_one_way_are_told(maker: Any, tmp_path: Path) -> None:
    page = report([maker.whole("alr", 0, classes=list("abcdef"), examples=4000)], tmp_path)
    assert "pairs that are confused one way more than the other" in page.text  # odd classes are mistaken more


def test_runs_that_disagree_on_their_classes_show_what_they_can(maker: Any, tmp_path: Path) -> None:
    runs = [maker.whole("alr", seed, classes=classes) for seed, classes in enumerate((list("abcd"), list("abce")))]
    page = report(runs, tmp_path)
    assert "the runs have different classes, so their confusions and calibration are not shown" in page.text
    assert page.count("svg", "heatmap") == page.count("svg", "reliability") == 0
    assert "Validation accuracy" in page.text


def test_a_run_that_stopped_early_ends_with_its_own_last_labels(maker: Any) -> None:
    runs = [maker.whole("alr", seed, classes=list("abcd")) for seed in range(2)]
    stored = runs[1].load_residual_labels()
    (runs[1].path / "residual_labels.npz").unlink()
    save_residual_labels(runs[1].path / "residual_labels.npz", [1, 2], stored.labels[:2], stored.classes)
    sealed_again(runs[1].path)
    residuals = read_group(group_records(read_run_records(runs))[0]).methods[0].residuals
    assert residuals is not None
    assert residuals.epochs.tolist() == [1, 2, 4]
    expected = (runs[0].load_residual_labels().matrix(-1).astype(float) + stored.labels[1]) / 2
    np.testing.assert_allclose(residuals.mean(), expected, atol=1e-7)


def test_curves_stay_inside_their_frame_and_flat_ones_are_drawn() -> None:
    for values in ([0.5] * 12, [0.0] * 3, [1.0], list(np.linspace(0.1, 0.9, 50))):
        mean = np.array(values)
        curve = Curve(np.arange(1.0, len(values) + 1), mean, mean, mean)
        skip = zoom_start(len(values))
        drawing = line_chart({"m": curve}, "t", EPOCHS, percent_axis("y"), skip=skip)
        assert "nan" not in drawing
        points = re.search(r'<polyline[^>]*points="([^"]*)"', drawing)
        assert points is not None
        seen = [tuple(map(float, pair.split(","))) for pair in points[1].split()][skip:]
        assert all(44 <= x <= 408 and 28 <= y <= 232 for x, y in seen)


def test_the_heat_map_draws_each_value_in_its_strength() -> None:
    matrix = np.array([[0.0, 0.9, 0.3], [0.3, 0.0, 0.3], [0.01, 0.9, 0.0]])
    drawing = heat_map(matrix, ["a", "b", "a very long name of a class indeed"], "t", "d")
    found = {}
    for opacity, path in re.findall(r'<path class="heat" fill-opacity="([\d.]+)" d="([^"]*)"', drawing):
        for column, row, width in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\d+z", path):
            found |= {(int(row), int(column) + step): float(opacity) for step in range(int(width))}
    assert found == {(0, 1): 1.0, (2, 1): 1.0, (0, 2): 0.33, (1, 0): 0.33, (1, 2): 0.33}
    assert f">{shorten('a very long name of a class indeed')}<" in drawing


def test_ticks_are_round_and_told_apart() -> None:
    assert nice_ticks(0.615, 0.668) == [0.62, 0.64, 0.66]
    assert labelled([0.625, 0.63], lambda value, digits: f"{100 * value:.{digits}f}") == ["62.5", "63.0"]
    assert nice_ticks(0.5, 0.5) == [0.5]


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
    code = "import sys, adaptive_labels.lab.analysis, adaptive_labels.lab.runs; print('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(("first", "second"), [(1.0, 5.0), (2.5, 4.5), (2.9, 3.1)])
@pytest.mark.parametrize(("left", "right"), [("alr", "label smoothing with more"), ("ALR, S frozen at uniform", "alr")])
def test_names_in_a_chart_of_ranks_stay_inside_of_it(first, second, left, right) -> None:
    chart = rank_chart({left: first, right: second}, 1.2, "Ranks")
    width = float(re.search(r'viewBox="0 0 ([0-9.]+) ', chart)[1])
    placed = re.findall(r'<text x="([0-9.-]+)"[^>]*text-anchor="(start|end)"[^>]*>([^<]+)', chart)
    assert len(placed) == 3  # the title and two names
    for at, anchor, words in placed:
        length = 12 * 0.5 * len(words)  # as browsers draw it, or a little more
        ends = (float(at), float(at) + length) if anchor == "start" else (float(at) - length, float(at))
        assert 0 <= ends[0] < ends[1] <= width, words


def test_a_chart_with_values_by_name_and_intervals_at_each_point() -> None:
    """What the figures of studies and benchmarks need: given places, bars, logarithms and several panels."""
    lines = {"a": Curve.of([0, 1], [0.5, 1.5], [0.1, -0.5], [0.9, 3.5]), "b": Curve.of([0, 1], [1, 2])}
    drawing = line_chart(lines, "t", Axis("rate", ticks={0: "0.1", 1: "0.3"}), Axis("points", signed=True), bars=True)
    assert drawing.count('class="spread') == 2  # b has no interval
    assert drawing.count('class="marker line0"') == drawing.count('class="marker line1"') == 3  # one in the legend
    assert all(f">{words}</text>" in drawing for words in ("0.1", "0.3", "+2"))
    assert drawing.count('class="zero"') == 1
    ends = re.findall(r'class="spread[^>]*y1="([\d.]+)"[^>]*y2="([\d.]+)"', drawing)
    assert all(28 <= float(high) < float(low) <= 232 for low, high in ends)

    times = {"a": Curve.of([16, 256, 4096], [0.02, 0.3, 40.0])}
    sizes = Axis("samples", log=True, ticks={16: "16", 256: "256", 4096: "4,096"})
    logarithmic = line_chart(times, "t", sizes, Axis("ms", log=True), with_legend=False)
    for words in ("0.01", "0.1", "1", "10", "100", "256", "4,096"):
        assert f">{words}</text>" in logarithmic
    places = re.search(r'<polyline[^>]*points="([^"]*)"', logarithmic)
    assert places is not None
    left, middle, right = (float(pair.split(",")[0]) for pair in places[1].split())
    assert middle - left == pytest.approx(right - middle, abs=0.11)  # 16 to 256 is as far as 256 to 4,096

    three = panels([logarithmic] * 3, "t", "d", columns=2, captions=["(a)", "(b)", "(c)"], names={"a": 0})
    assert three.count('class="chart"') == 3
    assert three.count(">(b)</text>") == 1
    ET.fromstring(three)


def test_a_section_registers_itself_and_stands_in_its_place(
    comparison: list[RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sections, "_SECTIONS", {one.order: one for one in sections.all_sections()})

    @sections.section(45, title="Mine", link="my part")
    def mine(context: sections.Context) -> str:
        return f"<p>{len(context.data.methods)} by my count</p>"

    page = report(comparison, tmp_path)
    order = [
        page.text.index(words) for words in ("How training went", "3 by my count", "Can the confidence be believed?")
    ]
    assert order == sorted(order)
    assert ("a", {"href": "#g0-my-part"}) in page.elements
    with pytest.raises(ValueError, match="order is 50, which the section 'calibration' has already"):
        sections.section(50, title="Again", link="again")(mine)


def test_arrays_are_read_once_for_a_report(
    comparison: list[RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    load = np.load

    def counting(file: Any, *args: Any, **options: Any) -> Any:
        opened.append(str(Path(f"/proc/self/fd/{file.fileno()}").readlink()))
        return load(file, *args, **options)

    monkeypatch.setattr(np, "load", counting)
    report(comparison, tmp_path)
    assert len(opened) == 9 + 3  # the predictions of every run, the residual labels of one method's
    assert len(set(opened)) == len(opened)


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("alr", {}, "alr: 1 − the training accuracy, so that it falls as training gets things right."),
        ("alr", {"residual_weight": 0.5}, "alr: a constant, 0.5."),
        ("alr-wait", {}, "alr-wait: the smaller of the training accuracy and 1 − it, so that it is small at first"),
    ],
)
def test_the_weight_on_the_residual_loss_is_called_what_it_is(
    maker: Any, tmp_path: Path, method: str, options: dict[str, Any], words: str
) -> None:
    page = report([maker.whole(method, 0, classes=list("abc"), options=options)], tmp_path)
    assert words in page.text
    assert ("1 − the training accuracy" in page.text) == (method == "alr" and not options)


def test_bars_of_the_most_confused_pairs_are_shares_of_all_examples(
    comparison: list[RunFolder], tmp_path: Path
) -> None:
    report(comparison, tmp_path)
    source = (tmp_path / "report.html").read_text(encoding="utf-8")
    bars = re.findall(r'<span class="share">(\d+)%</span>.*?style="width:([\d.]+)%"', source)
    assert len(bars) == 6
    assert all(float(width) == pytest.approx(float(share), abs=0.51) for share, width in bars)
    assert max(float(width) for _, width in bars) < 90


def test_every_class_of_a_map_of_a_hundred_is_named(maker: Any, tmp_path: Path) -> None:
    page = report([maker.whole("alr", 0, classes=[f"class {i}" for i in range(100)], examples=2000)], tmp_path)
    source = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("svg", "heatmap") == 2
    for rows in re.findall(r'<g class="rows">(.*?)</g>', source):
        assert rows.count("<text") == 100


def test_long_texts_are_folded(maker: Any, tmp_path: Path) -> None:
    run = maker.whole("alr", 0, classes=["a", "b", "c"])
    content = json.loads((run.path / "examples.json").read_text())
    long = "a <long> story " * 60
    for pair in content["pairs"]:
        pair["examples"] = [{"text": long, "confidence": 0.5}]
    (run.path / "examples.json").write_text(json.dumps(content))
    sealed_again(run.path)
    page = report([run], tmp_path)
    assert page.count("details", "long") == len(content["pairs"])
    assert long in page.texts  # behind the line that opens it
    assert any(text.startswith("a <long> story") and text.endswith("…") and len(text) < 200 for text in page.texts)


@pytest.mark.parametrize("examples", [5, [{"text": " " * 200 + "late", "confidence": True}]])
def test_odd_examples_do_not_cost_the_report(maker: Any, tmp_path: Path, examples: Any) -> None:
    run = maker.whole("alr", 0, classes=["a", "b", "c"])
    content = json.loads((run.path / "examples.json").read_text())
    for pair in content["pairs"]:
        pair["examples"] = examples
    (run.path / "examples.json").write_text(json.dumps(content))
    sealed_again(run.path)
    page = report([run], tmp_path)
    assert page.count("details", "long") == (0 if examples == 5 else len(content["pairs"]))


def test_rows_of_flat_residual_labels_are_said_to_be_of_the_test_split(maker: Any, tmp_path: Path) -> None:
    classes = [f"class {i}" for i in range(130)]
    run = maker.whole("alr", 0, classes=classes, examples=3000)
    (run.path / "residual_labels.npz").unlink()
    save_residual_labels(run.path / "residual_labels.npz", [4], (1 - np.eye(130))[None] / 129, classes)
    sealed_again(run.path)
    report([run], tmp_path)
    assert data_of(tmp_path / "report.html")["rows"][0].startswith("On the test split it is taken for: ")


def test_a_class_that_the_baseline_was_not_tested_on_is_not_drawn(maker: Any, tmp_path: Path) -> None:
    runs = [maker.whole(method, 0, classes=["a", "b", "c"]) for method in ("baseline", "alr")]
    found = runs[0].load_predictions()
    kept = found.test_labels != 1
    np.savez(
        runs[0].path / "predictions.npz",
        test_logits=found.test_logits[kept],
        test_labels=found.test_labels[kept],
        classes=np.array(["a", "b", "c"]),
    )
    sealed_again(runs[0].path)
    report(runs, tmp_path)
    source = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Accuracy by class" in source
    assert "nan" not in source


def test_wrong_labels_without_their_outcome_are_passed_over(maker: Any, tmp_path: Path) -> None:
    run = maker.create("alr", 0)
    maker.finish(run, {"train": {"wrong_labels": 3.0}, "test": {"top1": 0.7}, "validation": {"top1": 0.7}})
    assert "wrong labels" not in report([run], tmp_path).text


def test_predictions_without_probabilities_cost_their_figures_only(maker: Any, tmp_path: Path) -> None:
    runs = [maker.whole(method, 0, classes=["a", "b", "c"]) for method in ("baseline", "alr")]
    np.savez(runs[0].path / "predictions.npz", test_logits=np.full((4, 3), np.nan), test_labels=[0, 1, 2, 0])
    sealed_again(runs[0].path)
    page = report(runs, tmp_path)
    assert "holds no usable predictions: logits gives no probabilities in row 0" in page.text
    assert page.count("svg", "reliability") == 1

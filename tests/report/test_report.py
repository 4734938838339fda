import base64
import hashlib
import itertools
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pytest

from adaptive_labels.lab.analysis import group_records, read_run_records
from adaptive_labels.lab.analysis.suspects import Suspect, Suspects
from adaptive_labels.lab.report import page as page_module, sections, write_report
from adaptive_labels.lab.report.group_data import read_group
from adaptive_labels.lab.report.page import asset
from adaptive_labels.lab.runs import RunError, RunFolder
from adaptive_labels.lab.runs.arrays import save_residual_labels
from run_maker import sealed_again, three_methods

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Reads a page strictly: every element must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
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
    return json.loads(block_of(path.read_text(encoding="utf-8")))


def block_of(source: str) -> str:
    return source.split('id="g0-confusions-data">')[1].split("</script>")[0]


def change_examples(run: RunFolder, examples: Any) -> int:
    """Put other inputs into every pair; how many pairs there are."""
    content = json.loads((run.path / "examples.json").read_text())
    for pair in content["pairs"]:
        pair["examples"] = examples
    (run.path / "examples.json").write_text(json.dumps(content))
    sealed_again(run.path)
    return len(content["pairs"])


def change_labels(run: RunFolder, epochs: list[int], labels: Any) -> None:
    """Put other residual labels into a run."""
    classes = run.load_residual_labels().classes
    (run.path / "residual_labels.npz").unlink()
    save_residual_labels(run.path / "residual_labels.npz", epochs, labels, classes)
    sealed_again(run.path)


def test_the_page_asks_nothing_of_anyone_and_runs_its_own_script_only(source: str) -> None:
    page = Page(source)
    assert page.count("iframe") == page.count("object") == 0
    for _, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes)
        assert (attributes.get("href") or "#").startswith(("#", "data:,"))
        assert "src" not in attributes
    assert "@import" not in source
    assert "url(" not in source
    scripts = [attributes for tag, attributes in page.elements if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "g0-confusions-data"}, {}]
    allowed = base64.b64encode(hashlib.sha256(asset("report.js").encode()).digest()).decode()
    (policy,) = [at["content"] for tag, at in page.elements if at.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert f"script-src 'sha256-{allowed}';" in policy
    assert f"<script>{asset('report.js')}</script>" in source


def test_names_and_inputs_are_shown_and_never_markup(comparison: list[RunFolder], source: str, tmp_path: Path) -> None:
    page = Page(source)
    assert "<script>alert(1)</script>" in page.texts
    assert any(re.fullmatch(r"<b>input</b> \d+ & more", text) for text in page.texts)
    assert page.count("b") == 0
    assert not set("<>&\u2028\u2029") & set(block_of(source))
    assert "<script>alert(1)</script>" in json.loads(block_of(source))["classes"]
    write_report(comparison[6:], tmp_path / "report.html", examples=False)
    assert "<b>input</b>" not in Page((tmp_path / "report.html").read_text()).text


def test_everything_is_there_the_answer_first(source: str) -> None:
    page = Page(source)
    order = [page.text.index(words) for words in (
        "alr is best on validation", "Test accuracy against baseline", "Most confused on the test split",
        "Holm-corrected over 2 methods", "More columns", "All paired tests", "What is taken for what",
        "Residual labels of alr, epoch", "Test errors of alr", "The most confused pairs", "residual label %",
        "Do residual labels foresee",
        "Residual labels over time", "How training went", "Weight on the residual loss", "Parts of the loss of alr",
        "Can the confidence be believed?", "AURC × 100", "Which classes are hard", "How this was made",
        "alr train towns --method",
    )]  # fmt: skip
    assert order == sorted(order)
    assert page.count("svg", "reliability") == 3
    assert page.count("svg", "heatmap") == 2
    assert page.count("tr", "best") == 2  # the other is of columns that are folded away
    assert "alr: after epoch 1, 0% of the classes already have the top confusion" in page.text  # it starts even
    links = [attributes["href"] for tag, attributes in page.elements if tag == "a"]
    assert links
    assert {link.removeprefix("#") for link in links if link} <= {at["id"] for _, at in page.elements if "id" in at}


def test_figures_and_tables_can_be_reached_and_read_without_seeing(source: str) -> None:
    page = Page(source)
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


def test_lines_differ_in_more_than_colour_and_a_method_keeps_its_own(source: str) -> None:
    drawn = re.findall(r'<polyline class="curve (line\d)"(?: stroke-dasharray="([^"]*)")?[^>]*><title>(\w+)<', source)
    styles = {name: {(colour, dash) for colour, dash, other in drawn if other == name} for _, _, name in drawn}
    methods = [styles[name] for name in ("baseline", "slr", "alr")]
    assert all(len(found) == 1 for found in methods)
    assert len({dash for found in methods for _, dash in found}) == 3


def test_bars_of_the_most_confused_pairs_are_shares_of_all_examples(source: str) -> None:
    bars = re.findall(r'<span class="share">(\d+)%</span>.*?style="width:([\d.]+)%"', source)
    assert len(bars) == 6
    assert all(float(width) == pytest.approx(float(share), abs=0.51) for share, width in bars)
    assert max(float(width) for _, width in bars) < 90


def test_groups_have_sections_with_ids_of_their_own(maker: Any, tmp_path: Path) -> None:
    runs = [maker.whole("alr", 0, classes=["a", "b", "c"], dataset=name) for name in ("towns", "digits")]
    page = report(runs, tmp_path)
    assert page.count("section", "group") == 2
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {"g0-answer", "g1-answer", "g0-confusions-data", "g1-confusions-data"} <= set(ids)
    assert "Label regularisation on digits and towns" in page.texts


def test_many_classes_are_cut_and_it_is_said(maker: Any, tmp_path: Path) -> None:
    classes = [f"class {i}" for i in range(300)]
    page = report([maker.whole("alr", 0, classes=classes, examples=900)], tmp_path)
    assert "Only the 100 most confused of 300 classes are drawn; the search finds all." in page.text
    data = data_of(tmp_path / "report.html")
    assert (len(data["classes"]), data["names"]) == (100, classes)
    assert re.match(r"By its residual label it is taken for: class 1 \d", data["rows"][0])
    source = (tmp_path / "report.html").read_text(encoding="utf-8")
    names = re.findall(r'<g class="rows">(.*?)</g>', source, re.DOTALL)
    assert [rows.count("<text") for rows in names] == [100, 100]  # every class of a map is named


def test_a_hundred_classes_by_twelve_runs_stay_under_two_megabytes(maker: Any, tmp_path: Path) -> None:
    classes = [f"a class with quite a long name, number {i}" for i in range(100)]
    methods = [("baseline", {}), *(("alr", {"attraction": a}) for a in (1.0, -1.0, 0.5))]
    runs = [
        maker.whole(name, seed, classes=classes, examples=1000, options=options)
        for name, options in methods
        for seed in range(3)
    ]
    page = report(runs, tmp_path)
    assert (tmp_path / "report.html").stat().st_size < 2_000_000
    assert page.count("svg", "heatmap") == 2
    assert [len(method["residual"]) for method in data_of(tmp_path / "report.html")["methods"]] == [0, 3, 3, 3]


def test_the_map_holds_the_labels_and_epochs_are_thinned_where_they_would_not_fit(
    maker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = maker.whole("alr", 0, classes=list("abcdef"))
    report([run], tmp_path)
    method, stored = data_of(tmp_path / "report.html")["methods"][0], run.load_residual_labels()
    assert len(method["residual"]) == 3
    for position, packed in enumerate(method["residual"]):
        values = (np.frombuffer(base64.b64decode(packed), dtype=np.uint8) / 255.0) ** 2
        np.testing.assert_allclose(values.reshape(6, 6), stored.matrix(position), atol=0.005)
    monkeypatch.setattr("adaptive_labels.lab.report.report.MAP_BYTES", 100)
    assert "1 of the stored epochs are left out of the slider" in report([run], tmp_path).text
    assert data_of(tmp_path / "report.html")["methods"][0]["epochs"] == [1, 4]


def test_inputs_are_texts_that_fold_or_pictures_and_nothing_else(maker: Any, tmp_path: Path) -> None:
    run = maker.whole("alr", 0, classes=["a", "b", "c"])
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()
    change_examples(run, [{"png": png, "confidence": 0.5}, {"png": '"><img src=x>', "confidence": 0.4}])
    images = [attributes for tag, attributes in report([run], tmp_path).elements if tag == "img"]
    assert images
    assert all(attributes["src"] == f"data:image/png;base64,{png}" and attributes["alt"] for attributes in images)
    long = "a <long> story " * 60
    pairs = change_examples(run, [{"text": long, "confidence": 0.5}])
    page = report([run], tmp_path)
    assert page.count("details", "long") == pairs
    assert long in page.texts  # behind the line that opens it
    assert any(text.startswith("a <long> story") and text.endswith("…") and len(text) < 200 for text in page.texts)
    for odd, folded in ((5, 0), ([{"text": " " * 200 + "late", "confidence": True}], pairs)):
        change_examples(run, odd)
        assert report([run], tmp_path).count("details", "long") == folded


def test_memorised_labels_are_told_for_runs_with_noise_only(maker: Any, tmp_path: Path) -> None:
    runs = []
    for method, memorised in (("baseline", 0.6), ("alr", 0.2), ("slr", 0.2)):
        for seed in range(2):
            run = maker.create(method, seed)
            train = {"wrong_labels": 120.0, "memorised": memorised, "recovered": 0.9 - memorised}
            runs.append(maker.finish(run, {"train": train, "test": {"top1": 0.7}, "validation": {"top1": 0.7}}))
    page = report(runs[:4], tmp_path)
    assert "alr memorised the fewest of the wrong labels: 20.0%." in page.text
    assert "20.0 ± 0.0" in page.text
    assert "slr and alr memorised the fewest of the wrong labels: 20.0%." in report(runs, tmp_path).text
    assert "Of the 120 training labels that were made wrong on purpose" in page.text
    run = maker.create("alr", 0, dataset="other")  # without their outcome
    maker.finish(run, {"train": {"wrong_labels": 3.0}, "test": {"top1": 0.7}, "validation": {"top1": 0.7}})
    assert "wrong labels" not in report([run], tmp_path).text


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


def test_a_damaged_file_costs_its_figure_only(maker: Any, tmp_path: Path) -> None:
    comparison = three_methods(maker)
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
    assert f"How even the residual labels are, towns, fasttext At the right end: alr {entropy:.1f}%." in text


def test_labels_that_have_not_moved_are_not_to_be_read(maker: Any, tmp_path: Path) -> None:
    classes = [f"class {i}" for i in range(130)]
    run = maker.whole("alr", 0, classes=classes, examples=1500)
    assert "still nearly even" not in report([run], tmp_path).text
    change_labels(run, [4], (1 - np.eye(130))[None] / 129)
    assert "The residual labels are still nearly even (entropy 100.0% of" in report([run], tmp_path).text
    assert data_of(tmp_path / "report.html")["rows"][0].startswith("On the test split it is taken for: ")


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
    assert "90% likely wrong · there with another label, too · in truth <b>" in text
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
    change_labels(runs[1], [1, 2], stored.labels[:2])
    residuals = read_group(group_records(read_run_records(runs))[0]).methods[0].residuals
    assert residuals is not None
    assert residuals.epochs.tolist() == [1, 2, 4]
    expected = (runs[0].load_residual_labels().matrix(-1).astype(float) + stored.labels[1]) / 2
    np.testing.assert_allclose(residuals.mean(), expected, atol=1e-7)


def test_a_section_registers_itself_and_stands_in_its_place(
    comparison: list[RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sections, "_SECTIONS", {one.order: one for one in sections.all_sections()})
    mine = jinja2.DictLoader({"sections/test_report.html": "<p>{{ count }} by my count & {{ name }}</p>"})
    known = page_module.templates().loader
    monkeypatch.setattr(page_module.templates(), "loader", jinja2.ChoiceLoader([mine, known]))

    @sections.section(45, title="Mine", link="my part")
    def values(context: sections.Context) -> sections.Values:
        return {"count": len(context.data.methods), "name": "<b>"}

    page = report(comparison[:7], tmp_path)
    text = page.text
    assert text.index("How training went") < text.index("3 by my count") < text.index("Can the confidence be believed?")
    assert page.count("b") == 0
    assert ("a", {"href": "#g0-my-part"}) in page.elements
    with pytest.raises(ValueError, match="order is 50, which the section 'calibration' has already"):
        sections.section(50, title="Again", link="again")(values)


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


def test_predictions_without_probabilities_cost_their_figures_only(maker: Any, tmp_path: Path) -> None:
    runs = [maker.whole(method, 0, classes=["a", "b", "c"]) for method in ("baseline", "alr")]
    stored = np.load(runs[0].path / "predictions.npz")
    without = {"test_logits": np.full((4, 3), np.nan), "test_labels": [0, 1, 2, 0]}
    np.savez(runs[0].path / "predictions.npz", **{**stored, **without})
    sealed_again(runs[0].path)
    page = report(runs, tmp_path)
    assert "holds no usable predictions: logits gives no probabilities in row 0" in page.text
    assert page.count("svg", "reliability") == 1

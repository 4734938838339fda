"""The report in a real browser, from the disk, with the network off."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adaptive_labels.lab.report import write_report
from adaptive_labels.lab.runs import RunFolder
from run_maker import Maker, sealed_again

RESIDUAL, TEST = "figure[data-kind=residual]", "figure[data-kind=test]"


def squares(page: Any, figure: str) -> list[str]:
    found: list[str] = page.eval_on_selector_all(f"{figure} path.heat", "all => all.map(p => p.getAttribute('d'))")
    return found


def strengths(paths: list[str]) -> dict[tuple[int, int], int]:
    found = {}
    for level, path in enumerate(paths, start=1):
        for column, row, width in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\d+z", path):
            found |= {(int(row), int(column) + step): level for step in range(int(width))}
    return found


def row_names(page: Any, figure: str = RESIDUAL) -> list[str]:
    found: list[str] = page.eval_on_selector_all(f"{figure} .rows text", "all => all.map(t => t.textContent)")
    return found


def readout(page: Any) -> str:
    text: str = page.inner_text(".readout")
    return text


def test_it_opens_without_an_error_or_a_request(visit: Callable[..., Any], page_file: Path) -> None:
    page = visit(page_file)
    assert page.events == [f"request: {page_file.as_uri()}"]
    assert page.locator(".verdict").inner_text().startswith("alr is best on validation")
    assert page.locator(".controls").is_visible()
    assert page.title() == "Label regularisation on towns"


def test_the_slider_moves_the_map(visit: Callable[..., Any], page_file: Path) -> None:
    page = visit(page_file)
    last, test_errors = squares(page, RESIDUAL), squares(page, TEST)
    slider = page.locator("input[type=range]")
    slider.focus()
    page.keyboard.press("Home")
    first = squares(page, RESIDUAL)
    assert first != last
    assert sum(map(bool, first)) <= 1  # even at the start: every pair in the same strength
    assert page.locator(f"{RESIDUAL} h4").inner_text() == "Residual labels of alr, epoch 1"
    assert page.locator("output").inner_text() == "1 of 4"
    assert squares(page, TEST) == test_errors
    page.keyboard.press("ArrowRight")
    assert page.locator("output").inner_text() == "2 of 4"
    page.keyboard.press("End")
    assert squares(page, RESIDUAL) == last
    assert len(page.events) == 1


def test_what_the_script_draws_is_what_was_drawn_without_it(visit: Callable[..., Any], page_file: Path) -> None:
    with_script, without = visit(page_file), visit(page_file, java_script_enabled=False)
    assert not without.locator(".controls").is_visible()
    for figure in (RESIDUAL, TEST):
        inside = without.locator(f"{figure} svg.cells").inner_html()
        drawn = strengths(re.findall(r'<path class="heat"[^>]* d="([^"]*)"', inside))
        redrawn = strengths(squares(with_script, figure))
        differing = {cell for cell in drawn | redrawn if drawn.get(cell, 0) != redrawn.get(cell, 0)}
        # The script's values are rounded to a byte, which decides a few squares between two strengths otherwise.
        assert len(differing) <= 0.03 * 40 * 40
        assert all(abs(drawn.get(cell, 0) - redrawn.get(cell, 0)) == 1 for cell in differing)
        assert without.locator(figure).is_visible()
    assert without.locator("table").first.is_visible()


def test_the_search_finds_a_class_and_says_what_it_is_taken_for(visit: Callable[..., Any], page_file: Path) -> None:
    page = visit(page_file)
    page.fill("input[type=search]", "class_07")
    assert page.locator(f"{RESIDUAL} .rows text.found").text_content() == "class_07"
    assert page.locator(f"{RESIDUAL} .cross").count() == 1
    assert "class_07 is taken for, by its residual label: class_06" in readout(page)
    page.fill("input[type=search]", "CLASS_1")
    assert "Also found: class_11" in readout(page)
    page.fill("input[type=search]", "nowhere")
    assert readout(page) == "No class is called “nowhere”."
    page.fill("input[type=search]", "")
    assert page.locator(".cross, text.found").count() == 0
    assert len(page.events) == 1


def test_many_classes_are_all_named_and_the_search_answers_for_those_that_are_not_drawn(
    visit: Callable[..., Any], large_file: Path
) -> None:
    page = visit(large_file, width=1280)
    assert len(row_names(page)) == len(set(row_names(page))) == 100
    boxes = page.eval_on_selector_all(f"{RESIDUAL} .rows text", "all => all.map(t => t.getBoundingClientRect())")
    tops = sorted(box["top"] for box in boxes)
    assert min(after - before for before, after in itertools.pairwise(tops)) >= 8
    data = page.evaluate("JSON.parse(document.getElementById('g0-confusions-data').textContent)")
    missing = next(name for name in data["names"] if name not in data["classes"])
    page.fill("input[type=search]", missing)
    assert readout(page).startswith(f"{missing} is not among the 100 classes drawn here. By its residual label")
    assert page.locator("datalist option").count() == 130


def test_classes_can_be_ordered_by_name(visit: Callable[..., Any], page_file: Path) -> None:
    page = visit(page_file)
    before = row_names(page)
    page.get_by_label("by name").check()
    names = row_names(page)
    assert names != before
    assert names == sorted(names, key=str.lower)
    assert names == row_names(page, TEST)
    page.get_by_label("by similarity").check()
    assert row_names(page) == before


def test_the_map_is_for_the_keyboard_too(visit: Callable[..., Any], page_file: Path) -> None:
    page = visit(page_file)
    page.locator(f"{RESIDUAL} svg.heatmap").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    said = r"(.+) → (.+): residual label [\d.]+% at epoch 4, [\d.]+% of its \d+ test examples\."
    found = re.match(said, readout(page))
    assert found is not None
    assert found[1] == page.locator(f"{RESIDUAL} .rows text.found").text_content()
    assert page.locator(f"{TEST} .cursor").get_attribute("y") == "1"
    page.get_by_label("by name").check()  # the same classes, elsewhere
    assert readout(page).startswith(found[0])


def test_pointing_at_a_square_tells_its_value(visit: Callable[..., Any], page_file: Path) -> None:
    page = visit(page_file)
    page.get_by_label("by name").check()
    data = page.evaluate("JSON.parse(document.getElementById('g0-confusions-data').textContent)")
    order, classes = data["orders"]["name"], data["classes"]
    row, column = order.index(classes.index("class_01")), order.index(classes.index("class_00"))
    box = page.locator(f"{RESIDUAL} rect.target").bounding_box()
    cell = box["width"] / len(classes)
    page.mouse.move(box["x"] + (column + 0.5) * cell, box["y"] + (row + 0.5) * cell)
    runs = [RunFolder(path) for path in sorted((page_file.parent / "runs").glob("*-alr-*"))]
    stored = [labels.matrix() for run in runs if (labels := run.load_residual_labels()) is not None]
    i, j = classes.index("class_01"), classes.index("class_00")
    value = 100 * sum(float(matrix[i, j]) for matrix in stored) / len(stored)
    told = re.match(r"class_01 → class_00: residual label ([\d.]+)%", readout(page))
    assert told is not None
    assert float(told[1]) == pytest.approx(value, abs=1.0)


def test_another_method_can_be_chosen(visit: Callable[..., Any], page_file: Path) -> None:
    page = visit(page_file)
    before = squares(page, TEST)
    page.select_option("select", label="baseline")
    assert page.locator(RESIDUAL).is_hidden()  # it has none
    assert page.locator(f"{TEST} h4").inner_text() == "Test errors of baseline"
    assert squares(page, TEST) != before
    page.select_option("select", label="alr")
    assert page.locator(RESIDUAL).is_visible()
    assert squares(page, TEST) == before


def test_names_that_are_markup_are_not_run_and_neither_is_a_script_that_got_in(
    visit: Callable[..., Any], page_file: Path
) -> None:
    page = visit(page_file)
    for name in ("<script>window.hacked", '"><img src=x'):
        page.fill("input[type=search]", name)
        assert name in readout(page)
        assert page.locator(f"{RESIDUAL} .rows text.found").text_content().startswith(name[:8])
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert len(page.events) == 1
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.hacked = 1'}))")
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hacked = 1\">')")
    page.wait_for_timeout(200)
    assert page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in event for event in page.events)
    assert not any(event.startswith("request: http") for event in page.events)


HIDDEN_TABLES = """() => [...document.querySelectorAll('section.group > section:first-child .scroll')]
    .filter(part => part.scrollWidth > part.clientWidth + 1).length"""
BROKEN_WORDS = """() => {
  const broken = [];
  for (const cell of document.querySelectorAll('td.text, th.text')) {
    const text = cell.firstChild;
    if (!text || text.nodeType !== Node.TEXT_NODE) continue;
    for (const word of text.data.matchAll(/[\\p{L}\\p{N}_]+/gu)) {
      const range = document.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(box => box.top)).size > 1) broken.push(word[0]);
    }
  }
  return broken;
}"""


@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_fits_narrow_and_wide_screens(visit: Callable[..., Any], page_file: Path, width: int) -> None:
    page = visit(page_file, width=width)
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    page.fill("input[type=search]", "class_07")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cut = page.evaluate(
        """() => [...document.querySelectorAll('svg.chart, .controls > *, .verdict')]
               .filter(part => part.getBoundingClientRect().right > innerWidth + 0.5).length"""
    )
    assert cut == 0
    if width == 1280:  # the first table is whole on a laptop
        assert page.evaluate(HIDDEN_TABLES) == 0
        return
    # On a phone maps and tables scroll, and names beside the maps stay readable.
    assert page.evaluate(HIDDEN_TABLES) > 0
    assert page.evaluate(BROKEN_WORDS) == []
    shadows = page.evaluate("getComputedStyle(document.querySelector('.scroll')).backgroundImage")
    assert shadows.count("radial-gradient") == 2
    sizes = page.eval_on_selector_all(f"{RESIDUAL} .rows text", "all => all.map(t => t.getBoundingClientRect().height)")
    assert min(sizes) >= 8


def test_dark_mode_and_paper(visit: Callable[..., Any], page_file: Path) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    page = visit(page_file, color_scheme="dark")
    assert page.evaluate(colour) == "rgb(22, 24, 28)"
    assert page.evaluate("getComputedStyle(document.querySelector('svg text')).fill") == "rgb(232, 233, 236)"
    page.emulate_media(media="print")
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    assert not page.locator(".controls").is_visible()
    assert page.locator(f"{RESIDUAL} svg.heatmap").is_visible()
    assert visit(page_file).evaluate(colour) == "rgb(255, 255, 255)"


def test_a_long_text_opens_and_closes(visit: Callable[..., Any], tmp_path: Path) -> None:
    run = Maker(tmp_path / "runs").whole("alr", 0, classes=["a", "b", "c"])
    content = json.loads((run.path / "examples.json").read_text())
    for pair in content["pairs"]:
        pair["examples"] = [{"text": "some word " * 150, "confidence": 0.5}]
    (run.path / "examples.json").write_text(json.dumps(content))
    sealed_again(run.path)
    page = visit(write_report([run], tmp_path / "report.html"), width=420)
    card = page.locator(".mistakes > li").first
    assert card.bounding_box()["height"] < 300
    card.locator("summary").click()
    assert card.bounding_box()["height"] > 400
    assert card.inner_text().count("word") == 150
    card.locator("summary").click()
    assert card.bounding_box()["height"] < 300

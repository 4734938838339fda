"""Any text in any output: it is shown as it is, and does nothing to the page, the terminal, LaTeX or a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

from hypothesis import given, strategies as st

from adaptive_labels.lab import tables
from adaptive_labels.lab.report import page, svg
from adaptive_labels.lab.report.figures import PageTable

NASTY = ("</script>", "<img src=x onerror=alert(1)>", "&lt;", '" onload="', "=cmd|' /C calc'!A0", "+1", "-x", "@SUM(1)")
NASTY += (
    "\\input{/etc/passwd}",
    "$x$",
    "%",
    "[b]",
    "\x1b[31m",
    "\x9b31m",
    "\r",
    "\x00",
    "\u202e",
    "\ud800",
    "\t=1",
    "\n",
)
TEXTS = st.lists(st.sampled_from(NASTY) | st.text(st.characters(), max_size=8), max_size=5).map("".join)


class _Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def seen(html: str) -> _Seen:
    parser = _Seen()
    parser.feed(html)
    parser.close()
    return parser


def rendered(template: str, **values: object) -> str:
    return page.templates().from_string(template).render(values)


@given(TEXTS, TEXTS)
def test_html(text, other):
    shown = PageTable(["a", text], [[other, text]], other, text_columns=(1,), best=other)
    html = rendered(
        '{% from "macros.html" import table, quote %}{{ table(table_) }}{{ quote(text) }}', table_=shown, text=text
    )
    found = seen(html)
    assert {*found.tags} <= {"div", "table", "thead", "tbody", "tr", "th", "td", "p", "q"}
    assert {name for name, _ in found.attributes} <= {"class", "scope", "tabindex", "role", "aria-label"}
    assert [tag for tag in found.tags if tag in ("th", "td", "q")] == ["th", "th", "th", "td", "q"]


@given(TEXTS)
def test_data_for_the_script_cannot_end_its_block(text):
    inside = rendered("{{ data|tojson }}", data={"name": text, text: 1})
    assert not set("<>&\u2028\u2029") & set(inside)
    assert json.loads(inside) == {"name": text, text: 1}


@given(TEXTS, TEXTS)
def test_svg_is_well_formed_and_holds_nothing_but_text(text, other):
    drawing = tables.visible(svg.wrap_svg(text, other, 10, 10, svg.text(1, 1, text)))
    root = ET.fromstring(drawing)
    assert [child.tag for child in root.iter()] == ["svg", "title", "desc", "text"]


@given(TEXTS)
def test_latex(text):
    escaped = tables.latex_escape(text)
    assert "\n" not in escaped
    assert not escaped.startswith("[")
    # Once every command that we write is taken out, no letter is left that means something to LaTeX.
    ours = r"\\textbackslash\{\}|\\textasciitilde\{\}|\\textasciicircum\{\}|\$(\\pm|-|\\to|<|>)\$|\\[&%$#_{}]|^\{\}"
    assert not set(re.sub(ours, "", escaped)) & set("\\&%$#_{}~^<>")


@given(st.lists(st.lists(TEXTS, min_size=2, max_size=2), min_size=1, max_size=4))
def test_csv(rows):
    read = list(csv.reader(io.StringIO(tables.as_csv(["a", "b"], rows), newline="")))[1:]
    assert len(read) == len(rows)
    for got, given_row in zip(read, rows, strict=True):
        for cell, original in zip(got, given_row, strict=True):
            original = original.replace("\r\n", "\n").replace("\r", "\n")
            assert cell in (original, f"'{original}")
            if cell.startswith(("=", "+", "-", "@", "\t", "\r")):
                float(cell)


@given(st.lists(st.lists(TEXTS, min_size=2, max_size=2), min_size=1, max_size=4))
def test_terminals(rows):
    lines = tables.aligned(["a", "b"], rows)
    for line in lines:
        line.encode("utf-8")
        assert all(unicodedata.category(letter) not in ("Cc", "Cs") or letter in "\n\t" for letter in line)
        assert not set(line) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    assert tables.visible("plain words, ünïcode ✓") == "plain words, ünïcode ✓"

"""The report's page: its frame, its style, its script and its tables; every text is escaped here."""

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any

# Inside of <script> only these could end the block or the string they stand in.
_JSON_ESCAPES = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}
LONG_TEXT = 160


def page(title: str, body: str) -> str:
    """A whole HTML document that loads nothing from a server and runs only the report's own script.

    The script is allowed by its hash, so that a script in the data would not run.
    """
    style = "".join(asset(name) for name in ("colours.css", "figures.css", "report.css"))
    script = asset("report.js")
    allowed = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; script-src 'sha256-{allowed}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n<style>{style}</style></head>\n'
        f"<body><main>\n{body}\n</main>\n<script>{script}</script></body></html>\n"
    )


def asset(name: str) -> str:
    """A file that belongs to the page: a style sheet, or its script."""
    return resources.files("adaptive_labels.lab.report").joinpath("assets", name).read_text(encoding="utf-8")


def data_block(data: Any, name: str) -> str:
    """Data for the script, escaped so that nothing in it can end the block.

    >>> data_block({"class": "</script>"}, "d")
    '<script type="application/json" id="d">{"class":"\\\\u003c/script\\\\u003e"}</script>'
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).translate(_JSON_ESCAPES)
    return f'<script type="application/json" id="{escape(name)}">{text}</script>'


def html_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    caption: str,
    words: Sequence[int] = (),
    best: str | None = None,
) -> str:
    """A table that scrolls sideways on a narrow screen, also with the keyboard.

    ``words`` are the columns of words rather than figures; ``best`` is the first cell of the row to point out.
    """
    css = [' class="words"' if i in words else "" for i in range(len(headings))]
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for kind, name in zip(css, headings, strict=True))
    lines = []
    for row in rows:
        first = f'<th scope="row"{css[0]}>{escape(row[0])}</th>'
        rest = "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(css[1:], row[1:], strict=True))
        marked = ' class="best"' if row[0] == best else ""
        lines.append(f"<tr{marked}>{first}{rest}</tr>")
    content = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    region = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">{content}</div>'
    # Outside of the part that scrolls, the caption stays as wide as the screen.
    return f"{region}{paragraph(caption, 'note')}"


def paragraph(text: str, css: str = "") -> str:
    """An escaped paragraph."""
    return f'<p class="{css}">{escape(text)}</p>' if css else f"<p>{escape(text)}</p>"


def heading(level: int, text: str) -> str:
    """An escaped heading."""
    return f"<h{level}>{escape(text)}</h{level}>"


def folded(summary: str, content: str, *, opened: bool = False) -> str:
    """Content that is hidden until its summary is clicked."""
    return f"<details{' open' if opened else ''}><summary>{escape(summary)}</summary>{content}</details>"


def framed(content: str, note: str, title: str = "", kind: str = "", level: int = 4) -> str:
    """A figure with its title above and what it shows below; the script finds it by its ``kind``."""
    opened, head = f'<figure data-kind="{kind}">' if kind else "<figure>", heading(level, title) if title else ""
    return f"{opened}{head}{content}<figcaption>{paragraph(note)}</figcaption></figure>"


def quoted(text: str) -> str:
    """A quotation; a long one shows its beginning, and opens to the whole."""
    if len(text) <= LONG_TEXT:
        return f"<q>{escape(text)}</q>"
    begin, *_ = text[:LONG_TEXT].rsplit(maxsplit=1) or [""]
    return f'<details class="long"><summary><q>{escape(begin)}…</q></summary><q>{escape(text)}</q></details>'


def columns(*parts: str) -> str:
    """Parts beside one another where the screen is wide enough."""
    kept = [part for part in parts if part]
    return f'<div class="columns">{"".join(kept)}</div>' if len(kept) > 1 else "".join(kept)


def image(content: str, alt: str) -> str:
    """An image; empty unless ``content`` is a PNG in base64 and nothing else, so that it can stand in an attribute."""
    try:
        real = base64.b64decode(content, validate=True).startswith(b"\x89PNG\r\n")
    except (binascii.Error, ValueError):
        real = False
    return f'<img src="data:image/png;base64,{content}" alt="{escape(alt)}">' if real else ""

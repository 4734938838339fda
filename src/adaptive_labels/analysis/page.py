"""The report's page: its frame, its style, and tables; every text is escaped here."""

from collections.abc import Sequence
from html import escape

# Colours after Okabe and Ito, told apart by most colour-blind readers; the baseline is grey.
STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1b1f; --soft: #5c5f66; --rule: #d9dce1; --panel: #f4f6f8;
  --heat: #08519c; --bar: #0072b2; --c0: #5c5f66; --c1: #b35c00; --c2: #0072b2; --c3: #00795a; --c4: #a8437d;
  --c5: #3a8fc4; --c6: #7a5b00; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181c; --ink: #e8e9ec; --soft: #a9adb5; --rule: #3a3e46;
  --panel: #1f2228; --heat: #8cc8ff; --bar: #6bb5ea; --c0: #b5b9c1; --c1: #ffa94d; --c2: #6bb5ea; --c3: #4fd1a5;
  --c4: #ee9cc8; --c5: #a5d8ff; --c6: #ecd06f; } }
@media print { :root { color-scheme: light; --paper: #fff; --ink: #000; --soft: #333; --rule: #bbb; --panel: #fff;
  --heat: #08306b; --bar: #0072b2; --c0: #444; --c1: #b35c00; --c2: #0072b2; --c3: #00795a; --c4: #a8437d;
  --c5: #3a8fc4; --c6: #7a5b00; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0 1rem; } h2 { font-size: 1.25rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1.05rem; margin: 1.75rem 0 .4rem; }
.verdict { font-size: 1.15rem; background: var(--panel); border-left: .3rem solid var(--bar); padding: .75rem 1rem;
  margin: .5rem 0 1.25rem; }
.note, figcaption { color: var(--soft); font-size: .875rem; }
.note { margin: .4rem 0 1rem; }
.scroll { overflow-x: auto; max-width: 100%; } :focus-visible { outline: 3px solid var(--bar); outline-offset: 2px; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .5rem; text-align: right; border-bottom: 1px solid var(--rule); vertical-align: top;
  white-space: nowrap; }
th { font-weight: 600; } th:first-child, td.words, th.words { text-align: left; } thead th { border-bottom-width: 2px; }
td.words { white-space: normal; overflow-wrap: anywhere; min-width: 6rem; }
tr.best { background: var(--panel); } tr.best th { border-left: .25rem solid var(--bar); }
figure { margin: .5rem 0 1rem; } svg { display: block; width: 100%; height: auto; } svg text { fill: var(--ink); }
svg.curves { max-width: 40rem; } svg.heatmap { max-width: 36rem; }
svg.heatmap.large { max-width: 46rem; min-width: 36rem; }
.grid { stroke: var(--rule); stroke-width: 1; } .curve { fill: none; stroke: currentColor; stroke-width: 2; }
.band { fill: currentColor; fill-opacity: .15; stroke: none; } .marker { fill: currentColor; stroke: none; }
.heat { fill: var(--heat); } .own { fill: var(--rule); } .frame { fill: none; stroke: var(--rule); }
.bar { fill: var(--bar); } .diagonal { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 4 3; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin: .5rem 0; padding: 0; }
.legend li { display: flex; align-items: center; gap: .4rem; } .legend svg { width: 2.5rem; flex: none; }
.small { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: 1rem; }
.small h4 { margin: 0 0 .25rem; font-size: .95rem; font-weight: 600; }
details { margin: .5rem 0; } summary { cursor: pointer; padding: .35rem 0; } code { overflow-wrap: anywhere; }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } figure, svg, tr { break-inside: avoid; }
  h2, h3, h4, summary { break-after: avoid; } .scroll { overflow: visible; } table { font-size: 7.5pt; }
  th, td { padding: .15rem .3rem; }
  svg.curves { max-width: 26rem; } svg.heatmap.large { max-width: 32rem; min-width: 0; }
  details::details-content { content-visibility: visible; height: auto; } }
""" + "".join(f".line{i} {{ color: var(--c{i}); }} " for i in range(7))


def page(title: str, body: str) -> str:
    """A whole HTML document that asks nothing of any server and runs no script."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n<style>{STYLE}</style></head>\n'
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def html_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    caption: str,
    words: Sequence[int] = (),
    best: str | None = None,
) -> str:
    """A table that scrolls sideways by itself, with the keyboard too.

    ``words`` are the columns of words rather than figures; ``best`` is the first cell of the row to point out.
    """
    head = "".join(f'<th scope="col"{_words(i, words)}>{escape(heading)}</th>' for i, heading in enumerate(headings))
    lines = []
    for row in rows:
        first = f'<th scope="row"{_words(0, words)}>{escape(row[0])}</th>'
        rest = "".join(f"<td{_words(i, words)}>{escape(cell)}</td>" for i, cell in enumerate(row[1:], start=1))
        css = ' class="best"' if best is not None and row[0] == best else ""
        lines.append(f"<tr{css}>{first}{rest}</tr>")
    content = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    # Outside of the part that scrolls, the caption stays as wide as the screen.
    return f"{scrolling(content, caption)}{paragraph(caption, 'note')}"


def scrolling(content: str, label: str) -> str:
    """A region that scrolls sideways when the screen is narrow."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{content}</div>'


def paragraph(text: str, css: str = "") -> str:
    """An escaped paragraph."""
    return f'<p class="{css}">{escape(text)}</p>' if css else f"<p>{escape(text)}</p>"


def heading(level: int, text: str) -> str:
    """An escaped heading."""
    return f"<h{level}>{escape(text)}</h{level}>"


def folded(summary: str, content: str, *, opened: bool = False) -> str:
    """Content behind a line that opens it."""
    return f"<details{' open' if opened else ''}><summary>{escape(summary)}</summary>{content}</details>"


def _words(column: int, words: Sequence[int]) -> str:
    return ' class="words"' if column in words else ""

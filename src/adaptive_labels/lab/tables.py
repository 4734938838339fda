"""Print tables as aligned text, Markdown, LaTeX and CSV, from headings and rows of cells."""

import csv
import io
import re
from collections.abc import Collection, Sequence

_LATEX_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "−": "$-$", "→": r"$\to$", "<": "$<$",
    ">": "$>$",
}  # fmt: skip

# What neither XML, LaTeX nor UTF-8 can hold, and a terminal would obey: also the marks that turn the direction of text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_FORMULA = ("=", "+", "-", "@", "\t")  # a cell that begins so is run by a spreadsheet


def aligned(
    headings: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[int] = (0,), rule: bool = False
) -> list[str]:
    """The lines of a table for the terminal; numbers are aligned to the right, the columns in ``left`` to the left.

    >>> print("\\n".join(aligned(["method", "n"], [["alr", "5"], ["baseline", "10"]])))
    method     n
    alr        5
    baseline  10
    """
    lines = [[visible(cell) for cell in line] for line in ([headings, *rows] if headings else rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))] if lines else []
    shown = [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return [shown[0], "  ".join("-" * width for width in widths), *shown[1:]] if rule and headings else shown


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[int] | None = (0,)) -> list[str]:
    """The lines of a Markdown table; cells may hold Markdown, so escape what is not yours with `markdown_escape`.

    With ``left=None`` no column says how it is aligned.
    """
    marks = ["---" if left is None else ":--" if i in left else "--:" for i in range(len(headings))]
    lines = [list(headings), marks, *(list(row) for row in rows)]
    return ["| " + " | ".join(line) + " |" for line in lines]


def markdown_escape(text: str) -> str:
    """Any text as one line of Markdown that shows it as it is."""
    return one_line("".join(f"\\{letter}" if letter in "\\|*_`[]<>#" else letter for letter in text))


def latex(headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str, left: Collection[int] = (0,)) -> str:
    """A table in LaTeX with booktabs."""
    alignment = "".join("l" if i in left else "r" for i in range(len(headings)))
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}",
        "\\centering",
        f"\\caption{{{latex_escape(caption)}}}",
        f"\\begin{{tabular}}{{{alignment}}}",
        "\\toprule",
        _latex_row(headings),
        "\\midrule",
        *(_latex_row(row) for row in rows),
        "\\bottomrule",
        "\\end{tabular}",
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def latex_escape(text: str) -> str:
    """Any text as one line of LaTeX that shows it as it is."""
    escaped = "".join(_LATEX_ESCAPES.get(letter, letter) for letter in one_line(text))
    # A row that begins with "[" would be read as the optional argument of the "\\" before it.
    return f"{{}}{escaped}" if escaped.startswith("[") else escaped


def as_csv(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table for machines; None becomes an empty cell, and before a text that looks like a formula goes a ``'``.

    >>> as_csv(["class", "change"], [["=cmd()", -0.5], ["-0.5", None]])
    "class,change\\n'=cmd(),-0.5\\n-0.5,\\n"
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows([[harmless(cell) for cell in row] for row in (headings, *rows)])
    return file.getvalue()


def harmless(cell: object) -> object:
    """A cell of a CSV file: with a ``'`` before a text that looks like a formula."""
    if not isinstance(cell, str):
        return cell
    cell = cell.replace("\r\n", "\n").replace("\r", "\n")  # which would end a row, since `csv` does not quote it
    if not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def visible(text: str) -> str:
    """A text with a replacement character for each control character."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str) -> str:
    """A text without line breaks, runs of spaces and control characters."""
    return visible(" ".join(text.split()))


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(latex_escape(cell) for cell in cells) + r" \\"

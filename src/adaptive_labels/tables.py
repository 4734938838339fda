"""The one printer of tables: aligned text, Markdown, LaTeX and CSV from headings and rows of cells."""

import csv
import io
from collections.abc import Collection, Sequence

_LATEX_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "−": "$-$", "→": r"$\to$", "<": "$<$",
    ">": "$>$",
}  # fmt: skip


def aligned(
    headings: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[int] = (0,), rule: bool = False
) -> list[str]:
    """The lines of a table for the terminal; numbers are aligned to the right, the columns in ``left`` to the left.

    >>> print("\\n".join(aligned(["method", "n"], [["alr", "5"], ["baseline", "10"]])))
    method     n
    alr        5
    baseline  10
    """
    lines = [list(headings), *(list(row) for row in rows)] if headings else [list(row) for row in rows]
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
    """A table for machines; None becomes an empty cell."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows([headings, *rows])
    return file.getvalue()


def one_line(text: str) -> str:
    """A text without line breaks and runs of spaces."""
    return " ".join(text.split())


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(latex_escape(cell) for cell in cells) + r" \\"

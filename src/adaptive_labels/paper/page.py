"""Tables of the reproduction as Markdown files, and in a page of prose: deterministic, from the records alone."""

from __future__ import annotations

import re
from pathlib import Path

from adaptive_labels.experiments.studies import read_all_records
from adaptive_labels.paper.comparison import compare_with_paper, render, render_columns
from adaptive_labels.paper.recipes import SCALES, Reproduction, load_reproduction, tables

_MARKER = re.compile(r"\{\{([\w-]+)-(\w+)\}\}")


def write_tables(results: Path) -> list[Path]:
    """Write `tables/reproduce-TABLE-SCALE.md` for every table and scale that has records; what was written."""
    written = []
    for table in tables():
        for scale in SCALES:
            reproduction = load_reproduction(table, scale)
            if read_all_records(results, reproduction.study.tasks):
                path = results / "tables" / f"reproduce-{table}-{scale}.md"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(table_page(reproduction, results), encoding="utf-8")
                written.append(path)
    return written


def table_page(reproduction: Reproduction, results: Path) -> str:
    """A table as a page of its own."""
    records = read_all_records(results, reproduction.study.tasks)
    return render(reproduction, compare_with_paper(reproduction, records), markdown=True)


def render_page(template: Path, results: Path) -> str:
    """The template with `{{TABLE-SCALE}}` replaced by the columns that have been run at least in part."""

    def fill(match: re.Match[str]) -> str:
        reproduction = load_reproduction(match[1], match[2])
        records = read_all_records(results, reproduction.study.tasks)
        compared = compare_with_paper(reproduction, records)
        begun = [one for one in compared if any(cell.top1 for cell in one.cells)]
        return render_columns(begun, markdown=True) if begun else "Nothing of this table has been run yet."

    return _MARKER.sub(fill, template.read_text(encoding="utf-8"))

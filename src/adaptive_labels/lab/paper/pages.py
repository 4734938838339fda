"""The pages of evidence/tables: one per study, one per table of the paper and scale, and an index of both."""

from pathlib import Path

from adaptive_labels.lab import tables
from adaptive_labels.lab.files import write_files
from adaptive_labels.lab.paper.comparison import compare_with_paper, printed_gains, render
from adaptive_labels.lab.paper.figure import draw_kept
from adaptive_labels.lab.paper.recipes import all_reproductions
from adaptive_labels.lab.paper.records import read_records
from adaptive_labels.lab.paper.study import load_study
from adaptive_labels.lab.paper.tables import accuracies_of, draw_study, rows_of, study_page, task_table


def make_pages(studies: Path, results: Path) -> dict[str, str]:
    """Every page and picture by its file's name: of the studies in a folder, and of the paper's tables.

    Studies without records have none.
    """
    pages, index = {}, []
    for file in sorted(studies.glob("*.toml")):
        if file.name == "tasks.toml":
            continue
        study = load_study(file)
        records = read_records(results, study)
        if accuracies_of(study, records):
            pages[f"{study.name}.md"] = study_page(study, records)
            index.append([f"[{study.title}]({study.name}.md)", _answer(study.conclusion)])
            if (drawing := draw_study(study, records)) is not None:
                pages[f"{study.name}.svg"] = drawing
    reproduced, matrix = _reproduced(results)
    if not pages and not reproduced:
        return {}
    pages |= reproduced | {"paper.md": printed_gains()}
    studied = "\n".join(tables.markdown(["study", "answer"], index, left=None))
    parts = ["# All tables", "## The paper's tables", matrix, "The paper's own gains: [tests](paper.md).", "## Studies"]
    return pages | {"README.md": "\n\n".join([*parts, studied]) + "\n"}


def write_pages(studies: Path, results: Path) -> list[Path]:
    """Write `make_pages` to ``results/tables``; the files."""
    return write_files(results / "tables", make_pages(studies, results))


def _reproduced(results: Path) -> tuple[dict[str, str], str]:
    """The pages of the paper's tables that have records, and which of all are done."""
    pages, lines = {}, []
    for one in all_reproductions():
        records = read_records(results, one.study)
        columns = compare_with_paper(one, records)
        begun = [column for column in columns if column.begun]
        elsewhere = sum("@" in column.task for column in begun)
        name = f"reproduce-{one.study.name}.md"
        seeds = sorted({len(row.runs) for column in begun for row in column.rows if row.runs})
        cells = [row for column in begun for row in column.rows if row.name in column.printed]
        lines.append(
            [
                f"[{one.table.name}]({name})" if records else one.table.name,
                one.scale,
                f"{len(begun)} of {len(one.study.tasks)}{', on other data' if elsewhere else ''}",
                f"{sum(bool(row.runs) for row in cells)} of {sum(len(one.rows(task)) for task in one.study.tasks)}",
                f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else "".join(map(str, seeds)),
            ]
        )
        if not records:
            continue
        page = render(one, columns, markdown=True)
        for task in one.study.tasks:
            if rows := rows_of(one.study, task, records):
                page += f"\n## {one.column(task).heading}: all metrics\n\n{task_table(one.study, rows)}\n"
        pages[name] = page
        pages |= draw_kept(results, one.study, records)
    head = ["table", "scale", "columns begun", "the paper's cells run", "seeds"]
    return pages, "\n".join(tables.markdown(head, lines, left=None))


def _answer(conclusion: str) -> str:
    """The conclusion's first sentence, which stands in bold."""
    return conclusion.partition("**")[2].partition("**")[0] or "–"

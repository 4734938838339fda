"""A page of prose with tables in it: `{{weight}}` in a template stands for all tables of the study `weight`."""

from __future__ import annotations

import re
from pathlib import Path

from adaptive_labels.experiments.studies.records import read_all_records
from adaptive_labels.experiments.studies.study import StudyError, load_study
from adaptive_labels.experiments.studies.tables import gains_table, rows_of, task_table

_MARKER = re.compile(r"\{\{([\w-]+)(?::([\w-]+))?\}\}")


def render_page(template: Path, studies: Path, results: Path) -> str:
    """The template with its markers replaced: `{{study}}` by a table a task, `{{study:task}}` by that one alone."""

    def tables(match: re.Match[str]) -> str:
        study = load_study(studies / f"{match[1]}.toml")
        tasks = [match[2]] if match[2] else list(study.tasks)
        records = read_all_records(results, study.tasks)
        parts = []
        for task in tasks:
            rows = rows_of(study, task, records)
            if not rows:
                continue
            parts += [f"**{task}**", task_table(study, rows)]
            parts += [gains] if study.by_class and (gains := gains_table(rows)) else []
        if not parts:
            raise StudyError(f"{template} asks for {match[0]}, but there are no records of it")
        return "\n\n".join(parts)

    return _MARKER.sub(tables, template.read_text(encoding="utf-8"))

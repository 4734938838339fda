"""A page of prose with tables in it: `{{weight}}` in a template stands for all tables of the study `weight`."""

from __future__ import annotations

import re
from pathlib import Path

from adaptive_labels.studies.records import read_all_records
from adaptive_labels.studies.study import StudyError, load_study
from adaptive_labels.studies.tables import bench_table, gains_table, rows_of

_MARKER = re.compile(r"\{\{([\w-]+)(?::([\w-]+))?\}\}")


def render_page(template: Path, studies: Path, results: Path) -> str:
    """The template with its markers replaced: `{{study}}` by a table a bench, `{{study:bench}}` by that one alone."""

    def tables(match: re.Match[str]) -> str:
        study = load_study(studies / f"{match[1]}.toml")
        benches = [match[2]] if match[2] else list(study.benches)
        records = read_all_records(results, study.benches)
        parts = []
        for bench in benches:
            rows = rows_of(study, bench, records)
            if not rows:
                continue
            parts += [f"**{bench}**", bench_table(study, rows)]
            parts += [gains] if study.by_class and (gains := gains_table(rows)) else []
        if not parts:
            raise StudyError(f"{template} asks for {match[0]}, but there are no records of it")
        return "\n\n".join(parts)

    return _MARKER.sub(tables, template.read_text(encoding="utf-8"))

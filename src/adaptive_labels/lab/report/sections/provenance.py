"""The report's last section: how its figures were made."""

import json
from collections.abc import Sequence
from typing import Any

from adaptive_labels.lab.analysis.records import RunRecord, describe_settings, differing, flatten, group_by
from adaptive_labels.lab.report.figures import PageTable
from adaptive_labels.lab.report.sections import Context, Values, section
from adaptive_labels.lab.runs import RunError


@section(90, title="How this was made", link="how it was made")
def provenance_values(context: Context) -> Values:
    """Commands, environments, what differs between the methods, and what they share."""
    records = context.data.group.records
    settings = [{**record.settings, **record.options} for record in records]
    varied = [key for key in differing(settings) if key != "method.name"]
    environments = [flatten(environment) for record in records if (environment := _environment(record)) is not None]
    shared = [
        [key, json.dumps(value, ensure_ascii=False)]
        for key, value in sorted(settings[0].items())
        if key not in (*varied, "method.name")
    ]
    caption = "Settings that all of these runs share."
    return {
        "methods": _methods(records, varied),
        "environment": _environments(environments),
        "shared": PageTable(["setting", "value"], shared, caption, text_columns=(0, 1)) if shared else None,
        "commands": sorted({str(environment["command"]) for environment in environments if environment.get("command")}),
    }


def _methods(records: Sequence[RunRecord], differing: Sequence[str]) -> PageTable:
    rows = []
    for label, members in group_by(records, lambda record: record.label).items():
        varied = [key for key in differing if key in members[0].options]
        seeds = ", ".join(str(seed) for seed in sorted({record.seed for record in members}))
        rows.append([label, seeds, describe_settings(members[0].options, varied) or "–"])
    caption = "The methods, their seeds and their own options."
    return PageTable(["method", "seeds", "options"], rows, caption, text_columns=(0, 1, 2))


def _environment(record: RunRecord) -> dict[str, Any] | None:
    try:
        return record.run.environment
    except RunError:
        return None


def _environments(environments: Sequence[dict[str, Any]]) -> PageTable | None:
    rows = []
    for key in dict.fromkeys(key for environment in environments for key in environment):
        values = sorted({str(environment[key]) for environment in environments if environment.get(key) is not None})
        if values and key not in ("command", "date"):
            rows.append([key.removeprefix("versions."), "; ".join(values)])
    if dates := sorted(str(environment["date"]) for environment in environments if environment.get("date")):
        rows.append(["date", dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"])
    return PageTable(["environment", ""], rows, "Where the runs were made.", text_columns=(0, 1)) if rows else None

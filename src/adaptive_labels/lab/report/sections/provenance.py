"""The report's last section: how its figures were made."""

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from adaptive_labels.lab.analysis.records import RunRecord, describe_settings, differing, flatten, group_by
from adaptive_labels.lab.report.page import folded, html_table
from adaptive_labels.lab.report.sections import Context, section
from adaptive_labels.lab.runs import RunError


@section(90, title="How this was made", link="how it was made")
def making_section(context: Context) -> str:
    """Commands, environments, what differs between the methods, and what they share."""
    records = context.data.group.records
    settings = [{**record.settings, **record.options} for record in records]
    own = [key for key in differing(settings) if key != "method.name"]
    environments = [flatten(environment) for record in records if (environment := _environment(record)) is not None]
    parts = [_methods(records, own), _environments(environments)]
    shared = [item for item in sorted(settings[0].items()) if item[0] not in (*own, "method.name")]
    rows = [[key, json.dumps(value, ensure_ascii=False)] for key, value in shared]
    if rows:
        table = html_table(["setting", "value"], rows, caption="Settings that all of these runs share.", words=(0, 1))
        parts.append(folded("Shared settings", table))
    commands = sorted({str(environment["command"]) for environment in environments if environment.get("command")})
    if commands:
        items = "".join(f"<li><code>{escape(command)}</code></li>" for command in commands)
        parts.append(folded(f"Commands ({len(commands)})", f"<ul>{items}</ul>", opened=len(commands) <= 3))
    return "".join(parts)


def _methods(records: Sequence[RunRecord], differing: Sequence[str]) -> str:
    rows = []
    for label, members in group_by(records, lambda record: record.label).items():
        own = [key for key in differing if key in members[0].options]
        seeds = ", ".join(str(seed) for seed in sorted({record.seed for record in members}))
        rows.append([label, seeds, describe_settings(members[0].options, own) or "–"])
    caption = "The methods, their seeds and their own options."
    return html_table(["method", "seeds", "options"], rows, caption=caption, words=(0, 1, 2))


def _environment(record: RunRecord) -> dict[str, Any] | None:
    try:
        return record.run.environment
    except RunError:
        return None


def _environments(environments: Sequence[dict[str, Any]]) -> str:
    if not environments:
        return ""
    rows = []
    for key in dict.fromkeys(key for one in environments for key in one):
        values = sorted({str(one[key]) for one in environments if one.get(key) is not None})
        if values and key not in ("command", "date"):
            rows.append([key.removeprefix("versions."), "; ".join(values)])
    dates = sorted(str(one["date"]) for one in environments if one.get("date"))
    if dates:
        rows.append(["date", dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"])
    return html_table(["environment", ""], rows, caption="Where the runs were made.", words=(0, 1))

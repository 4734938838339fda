"""The report's last section: how its figures were made."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from adaptive_labels.analysis.records import Group, Record, describe, differing_settings, flatten
from adaptive_labels.report.page import folded, html_table
from adaptive_labels.report.sections import Context, section
from adaptive_labels.runs import RunError


@section(90, title="How this was made", link="how it was made")
def making_section(context: Context) -> str:
    """Commands, environments, what differs between the methods, and what they share."""
    group = context.data.group
    records = group.records
    differing = [key for key in differing_settings(records) if key != "method.name"]
    parts = [_methods(group, differing)]
    environments = [environment for record in records if (environment := _environment(record)) is not None]
    parts.append(_environments(environments))
    shared = {
        key: value for key, value in {**records[0].settings, **records[0].options}.items()
        if key not in differing and key != "method.name"
    }  # fmt: skip
    rows = [[key, json.dumps(value, ensure_ascii=False)] for key, value in sorted(shared.items())]
    if rows:
        table = html_table(["setting", "value"], rows, caption="Settings that all of these runs share.", words=(0, 1))
        parts.append(folded("Shared settings", table))
    commands = sorted({str(environment.get("command")) for environment in environments if environment.get("command")})
    if commands:
        items = "".join(f"<li><code>{escape(command)}</code></li>" for command in commands)
        parts.append(folded(f"Commands ({len(commands)})", f"<ul>{items}</ul>", opened=len(commands) <= 3))
    return "".join(parts)


def _methods(group: Group, differing: Sequence[str]) -> str:
    by_label: dict[str, list[Record]] = {}
    for record in group.records:
        by_label.setdefault(record.label, []).append(record)
    rows = []
    for label, records in by_label.items():
        own = [key for key in differing if key in records[0].options]
        seeds = ", ".join(str(seed) for seed in sorted({record.seed for record in records}))
        rows.append([label, seeds, describe(records[0].options, own) or "–"])
    caption = "The methods, their seeds and their own options."
    return html_table(["method", "seeds", "options"], rows, caption=caption, words=(0, 1, 2))


def _environment(record: Record) -> Mapping[str, Any] | None:
    try:
        return record.run.environment
    except RunError:
        return None


def _environments(environments: Sequence[Mapping[str, Any]]) -> str:
    if not environments:
        return ""
    flat = [flatten(environment) for environment in environments]
    keys = [key for key in dict.fromkeys(key for one in flat for key in one) if key not in ("command", "date")]
    rows = []
    for key in keys:
        values = sorted({str(one[key]) for one in flat if one.get(key) is not None})
        if values:
            rows.append([key.removeprefix("versions."), "; ".join(values)])
    dates = sorted(str(one["date"]) for one in flat if one.get("date"))
    if dates:
        rows.append(["date", dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"])
    return html_table(["environment", ""], rows, caption="Where the runs were made.", words=(0, 1))

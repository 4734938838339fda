"""Pooled gains and ranks of a study's methods over all its tasks, and a picture of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from adaptive_labels import tables
from adaptive_labels.analysis.format import difference, p_phrase, p_value, points
from adaptive_labels.analysis.pooled import Values, pool, rank
from adaptive_labels.analysis.statistics import Comparison, compare, holm
from adaptive_labels.report.charts import difference_chart, panels, rank_chart


@dataclass(frozen=True)
class Gain:
    """A variant against a reference: its gain on each task, and the pooled one."""

    by_task: Mapping[str, Comparison]
    pooled: Comparison


def gains_over(reference: str, tasks: Mapping[str, Values]) -> dict[str, Gain]:
    """Variant → its gain over ``reference``, for every variant; p of the pooled gains after Holm."""
    names = list(dict.fromkeys(name for values in tasks.values() for name in values if name != reference))
    found = {}
    for name in names:
        compared = {
            task: compare(values[name], values[reference])
            for task, values in tasks.items()
            if name in values and reference in values
        }
        found[name] = Gain(compared, pool(list(compared.values())))
    corrected = holm([gain.pooled.p for gain in found.values()])
    return {
        name: Gain(gain.by_task, replace(gain.pooled, p_holm=p))
        for (name, gain), p in zip(found.items(), corrected, strict=True)
    }


def combined_tables(tasks: Mapping[str, Values], references: Sequence[str]) -> list[str]:
    """Markdown: a table of gains over each reference, task by task and pooled, and the ranks in a sentence."""
    parts = []
    for reference in references:
        gains = {name: gain for name, gain in gains_over(reference, tasks).items() if gain.by_task}
        if not gains:
            continue
        columns = [task for task in tasks if any(task in gain.by_task for gain in gains.values())]
        head = [f"gain over {reference}, points", "tasks", "pooled [95%]", "p", *columns]
        lines = []
        for name, gain in gains.items():
            shown = [points(gain.by_task.get(task)) for task in columns]
            pooled = [difference(gain.pooled, 1) or "–", p_value(gain.pooled.p_holm) or "–"]
            lines.append([name, str(gain.pooled.n), *pooled, *shown])
        parts.append("\n".join(tables.markdown(head, lines, left=None)))
    if (found := rank(tasks, whole_variants(tasks))) is not None:
        listed = ", ".join(f"{name} {value:.1f}" for name, value in found.mean.items())
        parts.append(
            f"Mean ranks by test accuracy over {len(found.tasks)} tasks (1 is best): {listed}. Friedman's test: "
            f"{p_phrase(found.p)}. Ranks closer than {found.critical:.1f} do not differ beyond noise (Nemenyi)."
        )
    return parts


def whole_variants(tasks: Mapping[str, Values]) -> list[str]:
    """The variants that most tasks have, so that their ranks can be compared."""
    count = {name: sum(name in values for values in tasks.values()) for values in tasks.values() for name in values}
    return [name for name, many in count.items() if many >= max(count.values())]


def draw_combined(tasks: Mapping[str, Values], references: Sequence[str], title: str) -> str:
    """Draw the pooled gains over each reference, tasks as rings, and the ranks; empty if there is neither."""
    drawings = []
    for reference in references:
        gains = {n: g for n, g in gains_over(reference, tasks).items() if g.pooled.difference is not None}
        if gains:
            found = {name: gain.pooled for name, gain in gains.items()}
            rings = {n: [one.difference or 0.0 for one in gain.by_task.values()] for n, gain in gains.items()}
            drawings.append(difference_chart(found, rings, f"Gains over {reference}", reference, None))
    if (ranks := rank(tasks, whole_variants(tasks))) is not None:
        drawings.append(rank_chart(ranks.mean, ranks.critical, "Mean ranks"))
    words = "Each ring is a task; the bar is the pooled mean with its 95% interval. Ranks: 1 is best."
    return panels(drawings, title, words, columns=len(drawings)) if drawings else ""

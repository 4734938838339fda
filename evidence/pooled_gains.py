"""Pooled gains and ranks of a study's methods over all its tasks, and a picture of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from adaptive_labels.lab import tables
from adaptive_labels.lab.analysis.format import difference, p_phrase, p_value, points
from adaptive_labels.lab.analysis.pooled import Values, pool, rank_variants
from adaptive_labels.lab.analysis.statistics import PairedDifference, compare_paired, holm
from adaptive_labels.lab.report.charts import difference_chart, panels, rank_chart


@dataclass(frozen=True)
class Gain:
    """A variant against a reference: its gain on each task, and the pooled one."""

    by_task: Mapping[str, PairedDifference]
    pooled: PairedDifference


def gains_over(reference: str, tasks: Mapping[str, Values]) -> dict[str, Gain]:
    """Variant → its gain over ``reference``, for every variant; p of the pooled gains after Holm."""
    names = list(dict.fromkeys(name for values in tasks.values() for name in values if name != reference))
    found = {}
    for name in names:
        compared = {
            task: compare_paired(values[name], values[reference])
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
    """Markdown: a table of gains over each reference, pooled and task by task, and the ranks in a sentence."""
    parts = []
    for reference in references:
        gains = {name: gain for name, gain in gains_over(reference, tasks).items() if gain.by_task}
        if not gains:
            continue
        pooled = [gain.pooled for gain in gains.values()]
        lines = [
            ["**all, pooled** [95%]", *(difference(one, 1) or "–" for one in pooled)],
            ["p", *(p_value(one.p_holm) or "–" for one in pooled)],
            ["tasks pooled", *(str(one.n) for one in pooled)],
        ]
        for task in tasks:
            shown = [gain.by_task.get(task) for gain in gains.values()]
            if any(shown):
                lines.append([task, *map(points, shown)])
        parts.append("\n".join(tables.markdown([f"gain over {reference}, points", *gains], lines, left=None)))
    if (found := rank_variants(tasks, whole_variants(tasks, references))) is not None:
        listed = ", ".join(f"{name} {value:.1f}" for name, value in found.mean.items())
        parts.append(
            f"Mean ranks by test accuracy over {len(found.tasks)} tasks (1 is best): {listed}. Friedman's test: "
            f"{p_phrase(found.p)}. Ranks closer than {found.critical:.1f} do not differ beyond noise (Nemenyi)."
        )
    return parts


def whole_variants(tasks: Mapping[str, Values], references: Sequence[str]) -> list[str]:
    """The variants to rank: the references, and as many more as make the largest table without an empty cell.

    A variant that few tasks have would leave few tasks to rank the others on. The references are ranked all the same:
    they are what the reader compares with.
    """
    having: dict[str, set[str]] = {}
    for task, values in tasks.items():
        for name in values:
            having.setdefault(name, set()).add(task)
    names = sorted(having, key=lambda name: (name not in references, -len(having[name])))
    fewest = max(1, sum(name in references for name in names))
    candidates = [names[:n] for n in range(fewest, len(names) + 1)]
    cells = [len(some) * len(set.intersection(*(having[name] for name in some))) for some in candidates]
    return candidates[cells.index(max(cells))] if candidates else []


def draw_combined(tasks: Mapping[str, Values], references: Sequence[str], title: str) -> str:
    """Draw the pooled gains over each reference, tasks as rings, and the ranks; empty if there is neither."""
    drawings = []
    for reference in references:
        gains = {n: g for n, g in gains_over(reference, tasks).items() if g.pooled.difference is not None}
        if gains:
            found = {name: gain.pooled for name, gain in gains.items()}
            rings = {n: [one.difference or 0.0 for one in gain.by_task.values()] for n, gain in gains.items()}
            drawings.append(difference_chart(found, rings, f"Gains over {reference}", reference, None))
    if (ranks := rank_variants(tasks, whole_variants(tasks, references))) is not None:
        drawings.append(rank_chart(ranks.mean, ranks.critical, "Mean ranks"))
    words = "Each ring is a task; the bar is the pooled mean with its 95% interval. Ranks: 1 is best."
    return panels(drawings, title, words, columns=len(drawings)) if drawings else ""

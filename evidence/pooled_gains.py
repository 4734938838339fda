"""Pooled gains and ranks of a study's methods over all its tasks, and a picture of both.

A task is one observation, whatever its number of seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from adaptive_labels.lab import tables
from adaptive_labels.lab.analysis.format import difference, p_phrase, p_value, points
from adaptive_labels.lab.analysis.statistics import LEVEL, PairedDifference, compare_paired, holm
from adaptive_labels.lab.report.charts import WIDTH, Axis, Scale, chart_grid, difference_chart
from adaptive_labels.lab.report.svg import LETTER, line, marker, text, wrap_svg
from adaptive_labels.lab.words import shorten

Values = Mapping[str, Mapping[int, float]]  # variant → seed → test accuracy
MIN_TASKS, MIN_SEEDS = 3, 2


@dataclass(frozen=True)
class Ranks:
    """Mean ranks (1 is best) of variants over the tasks that all of them have."""

    tasks: tuple[str, ...]
    mean: Mapping[str, float]  # best first
    p: float  # Friedman's test: of ranks that differ so much by chance
    critical: float  # Nemenyi's critical difference: mean ranks that are closer do not differ beyond noise


def pool(gains: Sequence[PairedDifference]) -> PairedDifference:
    """The mean gain over tasks that differ in their true gain (random effects), and its interval.

    DerSimonian and Laird's variance between tasks, Hartung and Knapp's interval with t of k − 1 degrees of freedom,
    never narrower than the one without their factor. A gain needs its interval, so tasks with one seed do not count.

    >>> one = PairedDifference(5, 0.01, 0.0, 0.02)
    >>> found = pool([one, one, one])
    >>> round(found.difference, 4), found.n
    (0.01, 3)
    """
    known = [
        (one.difference, one.high - one.low, one.n)
        for one in gains
        if one.difference is not None and one.low is not None and one.high is not None and one.high > one.low
    ]
    k = len(known)
    if k < MIN_TASKS:
        return PairedDifference(k, note=f"fewer than {MIN_TASKS} tasks with {MIN_SEEDS} seeds")
    y = np.array([gain for gain, _, _ in known])
    variance = np.array([(width / 2 / stats.t.ppf((1 + LEVEL) / 2, n - 1)) ** 2 for _, width, n in known])
    weight = 1 / variance
    spread = float((weight * (y - np.average(y, weights=weight)) ** 2).sum())
    between = max(0.0, (spread - (k - 1)) / (weight.sum() - (weight**2).sum() / weight.sum()))
    weight = 1 / (variance + between)
    mean = float(np.average(y, weights=weight))
    factor = max(1.0, float((weight * (y - mean) ** 2).sum()) / (k - 1))
    error = float(np.sqrt(factor / weight.sum()))
    reach = float(stats.t.ppf((1 + LEVEL) / 2, k - 1)) * error
    p = 2 * float(stats.t.sf(abs(mean) / error, k - 1))
    return PairedDifference(k, mean, mean - reach, mean + reach, p=p)


def rank_variants(tasks: Mapping[str, Values], variants: Sequence[str]) -> Ranks | None:
    """Rank the variants by mean accuracy over the seeds that all have, on each task; None for too few of either."""
    shared = {
        task: set.intersection(*(set(values.get(name, ())) for name in variants)) for task, values in tasks.items()
    }
    whole = {task: sorted(seeds) for task, seeds in shared.items() if seeds}
    if len(whole) < MIN_TASKS or len(variants) < 3:
        return None
    means = np.array(
        [[np.mean([tasks[task][name][seed] for seed in seeds]) for name in variants] for task, seeds in whole.items()]
    )
    means = np.round(means, 9)  # so that means that differ by their rounding share a rank
    ranks = stats.rankdata(-means, axis=1).mean(axis=0)
    count = len(variants)
    quantile = float(stats.studentized_range.ppf(LEVEL, count, np.inf)) / 2**0.5
    critical = quantile * float(np.sqrt(count * (count + 1) / (6 * len(whole))))
    order = np.argsort(ranks, kind="stable")
    p = float(stats.friedmanchisquare(*means.T).pvalue) if np.ptp(means, axis=1).any() else 1.0
    return Ranks(tuple(whole), {variants[i]: float(ranks[i]) for i in order}, p, critical)


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
    return chart_grid(drawings, title, words, columns=len(drawings)) if drawings else ""


def rank_chart(ranks: Mapping[str, float], critical: float, title: str) -> str:
    """Mean ranks on a line, 1 at the left, with the length of the critical difference above it."""
    top, step = 58.0, 18.0
    last = float(np.ceil(max(ranks.values())))
    names = {name: f"{shorten(name, 24)} {value:.1f}" for name, value in ranks.items()}
    left, right = _rank_ends({names[name]: (value - 1) / (last - 1) for name, value in ranks.items()})
    x = Scale(Axis("mean rank", whole=True), 1.0, last, left, right)
    parts = [line(left, top, right, top, "zero")]
    for tick, words in x.ticks().items():
        parts += [line(x(tick), top - 4, x(tick), top, "zero"), text(x(tick), top - 8, words, "middle")]
    end = left + x(1 + critical) - x(1)
    parts += [line(left, 28, end, 28, "interval"), *(line(at, 23, at, 33, "interval") for at in (left, end))]
    parts.append(text(12, 16, f"mean rank; closer than {critical:.1f} is within noise"))
    for i, (name, value) in enumerate(ranks.items()):
        # Names stand outwards, those of the middle lowest: no stem runs through another's name.
        to_left = value < (1 + last) / 2
        y = top + step * (i + 1 if to_left else len(ranks) - i)
        parts += [line(x(value), top, x(value), y, "range"), marker(i, x(value), top)]
        parts.append(text(x(value) + (-5 if to_left else 5), y, names[name], "end" if to_left else "start"))
    description = ", ".join(f"{name} {value:.1f}" for name, value in ranks.items())
    return wrap_svg(title, f"{description}.", WIDTH, top + step * (len(ranks) + 1), "".join(parts), "chart")


def _rank_ends(names: Mapping[str, float]) -> tuple[float, float]:
    """Where the line of `rank_chart` begins and ends: names, by their place on it from 0 to 1, need room outwards."""
    left = right = WIDTH / 2
    room = {name: 11 * LETTER * len(name) + 8 for name in names}  # most letters of names are small
    for _ in range(30):  # each end depends on the other
        left = max([12.0, *((room[n] - at * right) / (1 - at) for n, at in names.items() if at < 0.5)])
        right = min([WIDTH - 12, *((WIDTH - room[n] - (1 - at) * left) / at for n, at in names.items() if at >= 0.5)])
    return left, right

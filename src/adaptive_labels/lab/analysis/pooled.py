"""Gains and ranks of methods over several tasks; a task is one observation, whatever its number of seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from adaptive_labels.lab.analysis.statistics import LEVEL, PairedDifference

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

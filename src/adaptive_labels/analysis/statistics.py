"""Means, paired differences and their tests; never a NaN, always the number of seeds."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from adaptive_labels.runs import RunError, RunFolder

LEVEL = 0.95
_EXACT_UP_TO = 14
_RANDOM_FLIPS = 20_000


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation (n − 1) of n seeds; ``std`` is None for one seed."""

    n: int
    mean: float
    std: float | None


@dataclass(frozen=True)
class Comparison:
    """A method against the baseline, on the seeds both have.

    Attributes:
        n: the number of shared seeds.
        difference: mean of method − baseline, or None without a shared seed.
        low: lower end of the 95% t interval of the difference, or None.
        high: its upper end, or None.
        p: two-sided p value of the paired t test, or None.
        p_holm: ``p`` after Holm's correction over the methods compared, or None.
        p_flip: two-sided p value of the sign-flip permutation test, or None.
        note: why something is None; empty otherwise.
    """

    n: int
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_holm: float | None = None
    p_flip: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Bootstrap:
    """A difference between two runs, and its 95% interval over resampled test examples."""

    difference: float
    low: float
    high: float
    examples: int
    repeats: int


def summarise(values: Sequence[float]) -> Summary | None:
    """Mean and sample standard deviation, or None for no values.

    >>> summarise([1.0, 2.0, 3.0])
    Summary(n=3, mean=2.0, std=1.0)
    """
    if not values:
        return None
    mean = float(np.mean(values))
    return Summary(len(values), mean, float(np.std(values, ddof=1)) if len(values) > 1 else None)


def compare(method: Mapping[int, float], baseline: Mapping[int, float]) -> Comparison:
    """Compare two methods by seed: seed → figure for each.

    The t interval and test assume that the differences vary normally from seed to seed. Where they do not vary at all
    there is no t test; equal figures on every seed have p = 1.
    """
    seeds = sorted(method.keys() & baseline.keys())
    differences = np.array([method[seed] - baseline[seed] for seed in seeds], dtype=np.float64)
    n = len(seeds)
    if n == 0:
        return Comparison(0, note="no seed in common with the baseline: no test possible")
    mean = float(differences.mean())
    if n == 1:
        return Comparison(1, mean, note="one seed: no test possible")
    flip = sign_flip_p(differences)
    scale = max(*(abs(method[seed]) for seed in seeds), *(abs(baseline[seed]) for seed in seeds))
    spread = float(differences.std(ddof=1))
    # Subtracting decimal fractions leaves rounding errors of this size, which are no variation.
    if spread <= 1e-12 * max(scale, 1e-300):
        if abs(mean) <= 1e-12 * max(scale, 1e-300):
            return Comparison(n, 0.0, 0.0, 0.0, p=1.0, p_flip=1.0, note="the same figures on every seed")
        return Comparison(n, mean, p_flip=flip, note="the same difference on every seed: no t test possible")
    error = spread / np.sqrt(n)
    reach = float(stats.t.ppf((1 + LEVEL) / 2, n - 1)) * error
    p = float(2 * stats.t.sf(abs(mean / error), n - 1))
    return Comparison(n, mean, mean - reach, mean + reach, p=p, p_flip=flip)


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Correct p values for having tested several methods (Holm 1979); None stays None and is not counted.

    >>> holm([0.01, 0.04, None, 0.03])
    [0.03, 0.06, None, 0.06]
    """
    order = sorted((p, position) for position, p in enumerate(ps) if p is not None)
    corrected: list[float | None] = [None] * len(ps)
    largest = 0.0
    for rank, (p, position) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p))
        corrected[position] = largest
    return corrected


def compare_all(methods: Mapping[str, Mapping[int, float]], baseline: str) -> dict[str, Comparison]:
    """Compare every method with ``baseline`` (method → seed → figure), Holm-corrected over all of them."""
    found = {name: compare(values, methods[baseline]) for name, values in methods.items() if name != baseline}
    corrected = holm([comparison.p for comparison in found.values()])
    return {name: replace(comparison, p_holm=p) for (name, comparison), p in zip(found.items(), corrected, strict=True)}


def sign_flip_p(differences: ArrayLike) -> float:
    """Two-sided p value of the mean under random signs, which needs no normal distribution.

    All 2ⁿ sign patterns up to n = 14, above that 20,000 drawn ones (seeded). With n seeds it cannot be smaller than
    2 / 2ⁿ: 0.25 at n = 3, 0.0625 at n = 5.
    """
    values = np.asarray(differences, dtype=np.float64)
    n = len(values)
    # Patterns that tie with the observed one must count, whatever the rounding.
    observed = abs(values.mean()) - 1e-12 * np.abs(values).max()
    if n <= _EXACT_UP_TO:
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=n)))
        return float(np.mean(np.abs(signs @ values / n) >= observed))
    drawn = np.random.default_rng(0).choice((1.0, -1.0), size=(_RANDOM_FLIPS, n))
    hits = int(np.sum(np.abs(drawn @ values / n) >= observed))
    return (hits + 1) / (_RANDOM_FLIPS + 1)


def bootstrap_difference(method: ArrayLike, baseline: ArrayLike, *, repeats: int = 2000, seed: int = 0) -> Bootstrap:
    """Resample test examples: how far could the difference of two runs have come out otherwise on other examples?

    Args:
        method: (N,) a score for each example (1 where right and 0 where wrong, for accuracy).
        baseline: (N,) the same examples' scores from the other run.
        repeats: how many resamples.
        seed: of the resampling.
    """
    first, second = np.asarray(method, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape or not first.size:
        raise ValueError(
            f"method has shape {first.shape} and baseline {second.shape}; both must be (N,), N at least 1."
        )
    differences = first - second
    generator = np.random.default_rng(seed)
    means: NDArray[np.float64] = np.empty(repeats)
    for i in range(repeats):
        means[i] = differences[generator.integers(0, first.size, first.size)].mean()
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Bootstrap(float(differences.mean()), float(low), float(high), first.size, repeats)


def bootstrap_runs(method: RunFolder, baseline: RunFolder, *, repeats: int = 2000, seed: int = 0) -> Bootstrap:
    """Difference in test accuracy of two runs, with a 95% interval over resampled test examples.

    This is the noise of the test split for these two trained networks; the noise between seeds comes on top of it.
    """
    (first, first_labels), (second, second_labels) = _right(method), _right(baseline)
    if not np.array_equal(first_labels, second_labels):
        raise RunError(f"{method.path} and {baseline.path} were tested on different examples; they cannot be paired.")
    return bootstrap_difference(first, second, repeats=repeats, seed=seed)


def _right(run: RunFolder) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    predictions = run.load_predictions()
    if predictions is None:
        raise RunError(f"{run.path} has no predictions.npz to compare examples by.")
    return predictions.test_logits.argmax(axis=1) == predictions.test_labels, predictions.test_labels

"""Means, paired differences and their tests. Results have the number of seeds, and are never NaN."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

LEVEL = 0.95
SIGNIFICANCE = 0.05
_FLIPS = 20_000


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation (n − 1) of n seeds; ``std`` is None for one seed."""

    n: int
    mean: float
    std: float | None


@dataclass(frozen=True)
class PairedDifference:
    """A method against the baseline, on the seeds both have; ``note`` says why a figure is None."""

    n: int  # the number of shared seeds
    difference: float | None = None  # mean of method − baseline
    low: float | None = None  # the ends of the 95% t interval of the difference
    high: float | None = None
    p: float | None = None  # two-sided, of the paired t test
    p_holm: float | None = None  # after Holm's correction over the methods compared
    p_flip: float | None = None  # two-sided, of the sign-flip permutation test
    note: str = ""


@dataclass(frozen=True)
class Bootstrap:
    """A difference between two runs, and its 95% interval over resampled test examples."""

    difference: float
    low: float
    high: float


def summarise(values: Sequence[float]) -> Summary | None:
    """Mean and sample standard deviation, or None for no values.

    >>> summarise([1.0, 2.0, 3.0])
    Summary(n=3, mean=2.0, std=1.0)
    """
    if not values:
        return None
    mean = float(np.mean(values))
    return Summary(len(values), mean, float(np.std(values, ddof=1)) if len(values) > 1 else None)


def compare_paired(method: Mapping[int, float], baseline: Mapping[int, float]) -> PairedDifference:
    """Compare two methods, each given as seed → figure.

    The t interval and test assume that the differences vary normally from seed to seed. If they do not vary at all,
    there is no t test; equal figures on every seed have p = 1.
    """
    seeds = sorted(method.keys() & baseline.keys())
    first, second = (np.array([side[seed] for seed in seeds], dtype=np.float64) for side in (method, baseline))
    n = len(seeds)
    if n == 0:
        return PairedDifference(0, note="no seed in common with the baseline: no test possible")
    differences = first - second
    mean = float(differences.mean())
    if n == 1:
        return PairedDifference(1, mean, note="one seed: no test possible")
    # Subtracting decimal fractions leaves rounding errors of this size, which are no variation.
    rounding = 1e-12 * max(np.abs([first, second]).max(), 1e-300)
    if differences.std(ddof=1) <= rounding:
        if abs(mean) <= rounding:
            return PairedDifference(n, 0.0, 0.0, 0.0, p=1.0, p_flip=1.0, note="the same figures on every seed")
        note = "the same difference on every seed: no t test possible"
        return PairedDifference(n, mean, p_flip=sign_flip_p(differences), note=note)
    test = stats.ttest_rel(first, second)
    low, high = test.confidence_interval(LEVEL)
    return PairedDifference(n, mean, float(low), float(high), p=float(test.pvalue), p_flip=sign_flip_p(differences))


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


def compare_all(methods: Mapping[str, Mapping[int, float]], baseline: str) -> dict[str, PairedDifference]:
    """Compare every method with ``baseline`` (method → seed → figure), Holm-corrected over all of them."""
    tests = {name: compare_paired(values, methods[baseline]) for name, values in methods.items() if name != baseline}
    corrected = holm([test.p for test in tests.values()])
    return {name: replace(test, p_holm=p) for (name, test), p in zip(tests.items(), corrected, strict=True)}


def sign_flip_p(differences: ArrayLike) -> float:
    """Two-sided p value of the mean under random signs, which needs no normal distribution.

    It tries all 2ⁿ sign patterns up to n = 14, above that 20,000 random ones (seeded). It is never below 2 / 2ⁿ, which
    is 0.25 for n = 3 and 0.0625 for n = 5.
    """
    values = np.asarray(differences, dtype=np.float64)
    if len(values) == 1:
        return 1.0
    scale = np.abs(values).max() or 1.0

    def size_of_mean(signed: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        # Rounded, so that patterns that tie with the observed one count as ties.
        return np.asarray(np.round(np.abs(signed.mean(axis=axis)), 12))

    options = {"permutation_type": "samples", "vectorized": True, "alternative": "greater", "n_resamples": _FLIPS}
    return float(stats.permutation_test((values / scale,), size_of_mean, rng=0, **options).pvalue)


def bootstrap_difference(method: ArrayLike, baseline: ArrayLike, *, repeats: int = 2000, seed: int = 0) -> Bootstrap:
    """The difference of two runs' mean scores, and how far other test examples could have moved it.

    ``method`` and ``baseline`` (N,) are scores of the same examples; for accuracy, 1 where right and 0 where wrong. The
    interval is between percentiles of the means of ``repeats`` resamples.
    """
    first, second = np.asarray(method, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape or not first.size:
        raise ValueError(
            f"method has shape {first.shape} and baseline {second.shape}; both must be (N,), N at least 1."
        )
    differences = first - second
    mean = float(differences.mean())
    if first.size == 1:  # resampling one example gives it again
        return Bootstrap(mean, mean, mean)
    # Resampling the differences resamples the pairs; in batches, so that 10,000 examples take 8 MB at a time.
    low, high = stats.bootstrap(
        (differences,), np.mean, n_resamples=repeats, batch=100, method="percentile", confidence_level=LEVEL, rng=seed
    ).confidence_interval
    return Bootstrap(mean, float(low), float(high))

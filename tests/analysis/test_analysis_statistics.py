import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from adaptive_labels.lab.analysis.statistics import (
    PairedDifference,
    Summary,
    bootstrap_difference,
    compare_all,
    compare_paired,
    holm,
    sign_flip_p,
    summarise,
)


def by_seed(values: Any) -> dict[int, float]:
    return dict(enumerate(float(value) for value in values))


def test_mean_and_sample_standard_deviation() -> None:
    assert summarise([0.5, 0.6, 0.7]) == Summary(3, pytest.approx(0.6), pytest.approx(0.1))
    assert summarise([0.5]) == Summary(1, 0.5, None)
    assert summarise([]) is None


@pytest.mark.parametrize("n", [2, 5, 20])
def test_interval_and_test_by_the_formula(n: int) -> None:
    generator = np.random.default_rng(n)
    method, baseline = generator.normal(0.57, 0.01, n), generator.normal(0.55, 0.01, n)
    found = compare_paired(by_seed(method), by_seed(baseline))
    differences = method - baseline
    mean, error = differences.mean(), differences.std(ddof=1) / n**0.5
    reach = stats.t.ppf(0.975, n - 1) * error
    assert found.n == n
    assert found.difference == pytest.approx(mean)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(mean / error), n - 1), rel=1e-9)
    assert (found.low, found.high) == (pytest.approx(mean - reach), pytest.approx(mean + reach))
    assert found.note == ""


def test_only_shared_seeds_are_paired() -> None:
    method, baseline = {0: 0.5, 1: 0.6, 2: 0.9, 7: 0.1}, {2: 0.8, 1: 0.4, 3: 0.0, 0: 0.45}
    assert compare_paired(method, baseline) == compare_paired({0: 0.5, 1: 0.6, 2: 0.9}, {0: 0.45, 1: 0.4, 2: 0.8})
    assert compare_paired({1: 0.5}, {2: 0.5}) == PairedDifference(
        0, note="no seed in common with the baseline: no test possible"
    )


def test_one_seed_and_no_variation_give_no_nan() -> None:
    assert compare_paired({0: 0.75}, {0: 0.5}) == PairedDifference(1, 0.25, note="one seed: no test possible")
    same = compare_paired({0: 0.5, 1: 0.6}, {0: 0.5, 1: 0.6})
    assert (same.difference, same.low, same.high, same.p, same.p_flip) == (0, 0, 0, 1, 1)
    # 0.1 + 0.2 − 0.2 and 0.7 − 0.6 differ in the last bit only.
    shifted = compare_paired({0: 0.3, 1: 0.7, 2: 0.2}, {0: 0.2, 1: 0.6, 2: 0.1})
    assert shifted.difference == pytest.approx(0.1)
    assert (shifted.low, shifted.p, shifted.p_flip) == (None, None, 0.25)
    assert shifted.note == "the same difference on every seed: no t test possible"


def test_holm_against_the_definition() -> None:
    assert holm([0.01, 0.04, 0.03]) == [pytest.approx(0.03), pytest.approx(0.06), pytest.approx(0.06)]
    assert holm([0.9, None, 0.8]) == [1.0, None, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.001, 0.5))
def test_holm_rejects_what_the_step_down_procedure_rejects(ps: list[float], level: float) -> None:
    rejected = set()
    for rank, position in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        if ps[position] * (len(ps) - rank) > level:
            break
        rejected.add(position)
    corrected = holm(ps)
    assert {i for i, p in enumerate(corrected) if p is not None and p <= level} == rejected


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=8))
def test_sign_flips_against_a_loop(differences: list[int]) -> None:
    observed = abs(sum(differences))
    patterns = list(itertools.product((1, -1), repeat=len(differences)))
    hits = sum(abs(sum(s * d for s, d in zip(signs, differences, strict=True))) >= observed for signs in patterns)
    assert sign_flip_p([d / 7 for d in differences]) == pytest.approx(hits / len(patterns))


def test_many_sign_flips_are_drawn() -> None:
    values = np.random.default_rng(0).normal(0.4, 1, 30)
    signs = np.random.default_rng(1).choice((1.0, -1.0), size=(20_000, 30))
    expected = np.mean(np.abs(signs @ values) >= abs(values.sum()))
    assert sign_flip_p(values) == pytest.approx(expected, abs=0.01)
    assert sign_flip_p(values) == sign_flip_p(values)


def test_all_methods_are_corrected_together() -> None:
    generator = np.random.default_rng(3)
    base = generator.normal(0.5, 0.01, 5)
    methods = {
        "baseline": by_seed(base),
        "a": by_seed(base + generator.normal(0.02, 0.01, 5)),
        "b": by_seed(base + generator.normal(0.0, 0.01, 5)),
        "one": {0: 0.6},
    }
    found = compare_all(methods, "baseline")
    assert list(found) == ["a", "b", "one"]
    assert [found[name].p_holm for name in found] == holm([found[name].p for name in found])
    assert found["one"].p_holm is None


def test_bootstrap_against_a_loop_and_repeatable() -> None:
    generator = np.random.default_rng(0)
    method, baseline = generator.random(500) < 0.6, generator.random(500) < 0.5
    found = bootstrap_difference(method, baseline, repeats=3000)
    differences = method.astype(float) - baseline
    means = [differences[generator.integers(0, 500, 500)].mean() for _ in range(3000)]
    low, high = np.quantile(means, [0.025, 0.975])
    assert found.difference == pytest.approx(differences.mean())
    assert found.low == pytest.approx(low, abs=0.006)
    assert found.high == pytest.approx(high, abs=0.006)
    assert found == bootstrap_difference(method, baseline, repeats=3000)
    with pytest.raises(ValueError, match=r"method has shape \(3,\) and baseline \(2,\)"):
        bootstrap_difference([1, 0, 1], [1, 0])


def test_bootstrap_of_one_example_and_of_examples_that_do_not_differ() -> None:
    one = bootstrap_difference([1.0], [0.0])
    assert (one.difference, one.low, one.high) == (1.0, 1.0, 1.0)
    same = bootstrap_difference([1.0, 1.0, 0.0], [1.0, 1.0, 0.0], repeats=50)
    assert (same.difference, same.low, same.high) == (0.0, 0.0, 0.0)

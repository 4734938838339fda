"""Gains over all tasks of a study together, beside references written from the textbooks' formulas."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from scipy import stats

from adaptive_labels.lab.analysis.statistics import PairedDifference, compare_paired
from pooled_gains import (
    combined_tables,
    draw_combined,
    gains_over,
    pool,
    rank_chart,
    rank_variants,
    whole_variants,
)


def drawn_tasks(seed: int, gain: float, between: float, tasks: int = 6) -> dict[str, dict[str, dict[int, float]]]:
    random = np.random.default_rng(seed)
    found = {}
    for task in range(tasks):
        true = gain + between * random.normal()
        base = {s: float(0.6 + 0.002 * random.normal()) for s in range(5)}
        found[f"task{task}"] = {
            "baseline": base,
            "slr": {s: value + float(0.002 * random.normal()) for s, value in base.items()},
            "alr": {s: value + true + float(0.002 * random.normal()) for s, value in base.items()},
        }
    return found


def test_the_pooled_gain_is_that_of_the_formulas() -> None:
    tasks = drawn_tasks(3, gain=0.01, between=0.01)
    found = gains_over("baseline", tasks)["alr"].pooled
    ys, vs = [], []
    for values in tasks.values():
        differences = [values["alr"][s] - values["baseline"][s] for s in range(5)]
        ys.append(np.mean(differences))
        vs.append(np.var(differences, ddof=1) / 5)
    ws = [1 / v for v in vs]
    fixed = sum(w * y for w, y in zip(ws, ys, strict=True)) / sum(ws)
    q = sum(w * (y - fixed) ** 2 for w, y in zip(ws, ys, strict=True))
    tau2 = max(0, (q - 5) / (sum(ws) - sum(w * w for w in ws) / sum(ws)))
    ws = [1 / (v + tau2) for v in vs]
    mean = sum(w * y for w, y in zip(ws, ys, strict=True)) / sum(ws)
    hk = sum(w * (y - mean) ** 2 for w, y in zip(ws, ys, strict=True)) / 5
    half = stats.t.ppf(0.975, 5) * math.sqrt(max(hk, 1) / sum(ws))
    assert found.n == 6
    assert found.difference == pytest.approx(mean, rel=1e-9)
    assert (found.low, found.high) == pytest.approx((mean - half, mean + half), rel=1e-9)


def test_tasks_with_one_seed_do_not_count_and_two_tasks_are_not_pooled() -> None:
    one = compare_paired({0: 0.7}, {0: 0.6})
    several = PairedDifference(5, 0.01, 0.0, 0.02)
    assert pool([one, several, several]).difference is None
    assert pool([one, several, several, several]).n == 3


def test_the_critical_difference_is_the_published_one() -> None:
    # Four classifiers on 14 data sets at 0.05: 1.25, the example of Demšar (2006).
    random = np.random.default_rng(0)
    tasks = {str(t): {name: {0: float(random.random())} for name in "abcd"} for t in range(14)}
    found = rank_variants(tasks, list("abcd"))
    assert found is not None
    assert found.critical == pytest.approx(1.25, abs=0.005)
    assert sum(found.mean.values()) == pytest.approx(10)


def test_ranks_share_ties_and_need_all_variants_of_a_task() -> None:
    tasks = {t: {"a": {0: 0.9}, "b": {0: 0.8}, "c": {0: 0.8}} for t in ("one", "two", "three")}
    tasks["four"] = {"a": {0: 0.1}, "b": {0: 0.2}}
    found = rank_variants(tasks, ["a", "b", "c"])
    assert found is not None
    assert found.tasks == ("one", "two", "three")
    assert found.mean == {"a": 1.0, "b": 2.5, "c": 2.5}
    assert rank_variants({"one": tasks["one"]}, ["a", "b", "c"]) is None


def test_ranks_compare_the_same_seeds() -> None:
    easy, hard = {0: 0.9}, {1: 0.1}  # a seed that is hard for every variant, and that one has not been run with
    values = {"a": easy | hard, "b": {0: 0.8}, "c": {0: 0.7, 1: 0.1}}
    found = rank_variants(dict.fromkeys(("one", "two", "three"), values), ["a", "b", "c"])
    assert found is not None
    assert found.mean == {"a": 1.0, "b": 2.0, "c": 3.0}
    assert rank_variants(dict.fromkeys(("one", "two", "three"), values | {"b": {2: 0.8}}), ["a", "b", "c"]) is None


def test_variants_that_tie_everywhere_do_not_differ() -> None:
    same = {"a": {0: 0.1, 1: 0.2, 2: 0.3}, "b": {0: 0.3, 1: 0.2, 2: 0.1}, "c": {0: 0.2, 1: 0.3, 2: 0.1}}
    found = rank_variants(
        dict.fromkeys(("one", "two", "three"), same), ["a", "b", "c"]
    )  # their sums differ by rounding
    assert found is not None
    assert (found.mean, found.p) == ({"a": 2.0, "b": 2.0, "c": 2.0}, 1.0)


def test_tables_and_picture_name_every_variant() -> None:
    tasks = drawn_tasks(1, gain=0.02, between=0.0)
    first, second, ranks = combined_tables(tasks, ["baseline", "slr"])
    assert "gain over baseline, points" in first
    assert first.startswith("| gain over baseline, points | slr | alr |")
    assert "| +2." in first.splitlines()[2]
    assert "| tasks pooled | 6 | 6 |" in first
    assert "| baseline | alr |" in second
    assert ranks.startswith("Mean ranks by test accuracy over 6 tasks (1 is best): alr 1.0")
    drawing = draw_combined(tasks, ["baseline", "slr"], "All")
    assert drawing.count('class="mean"') == 4
    assert "mean rank; closer than" in drawing


def test_ranked_are_the_variants_and_tasks_of_the_largest_whole_table() -> None:
    every, some, few = ({name: {0: 0.5} for name in names} for names in ("ab", "abcd", "abcde"))
    tasks = {"one": every, "two": some, "three": some, "four": some, "five": few}
    assert whole_variants(tasks, []) == ["a", "b", "c", "d"]  # 4 × 4; 2 × 5 with all tasks, 5 × 1 with all variants
    assert whole_variants({"one": few}, ["a"]) == list("abcde")
    assert whole_variants({}, ["a"]) == []


def test_references_are_ranked_even_where_they_cost_tasks() -> None:
    all_six = {name: {0: 0.5} for name in ("baseline", "slr", "alr", "alr-s", "alr-wait", "slr-tuned")}
    untuned = {name: values for name, values in all_six.items() if name != "slr-tuned"}
    tasks = {"one": all_six, "two": all_six, "three": untuned, "four": untuned}
    assert "slr-tuned" not in whole_variants(tasks, ["baseline"])  # 5 × 4 cells against 6 × 2
    assert set(whole_variants(tasks, ["baseline", "slr-tuned"])) == set(all_six)


def test_a_task_with_one_seed_is_shown_and_not_counted_as_pooled() -> None:
    tasks = drawn_tasks(1, gain=0.02, between=0.0)
    name = next(iter(tasks))
    tasks[name] = {**tasks[name], "alr": {0: tasks[name]["alr"][0]}}
    table = combined_tables(tasks, ["baseline"])[0]
    pooled, _, counts, *by_task = [line.split(" | ")[2].strip(" |") for line in table.splitlines()[2:]]  # alr's column
    assert pooled.startswith("+")
    assert counts == "5"
    assert len(by_task) == 6
    assert all(by_task)


def test_nothing_is_drawn_where_nothing_can_be_compared():
    assert draw_combined({"b": {"baseline": {0: 0.5}}}, ["baseline"], "T") == ""


@pytest.mark.parametrize(("first", "second"), [(1.0, 5.0), (2.5, 4.5), (2.9, 3.1)])
@pytest.mark.parametrize(("left", "right"), [("alr", "label smoothing with more"), ("ALR, S frozen at uniform", "alr")])
def test_names_in_a_chart_of_ranks_stay_inside_of_it(first, second, left, right) -> None:
    chart = rank_chart({left: first, right: second}, 1.2, "Ranks")
    width = float(re.search(r'viewBox="0 0 ([0-9.]+) ', chart)[1])
    placed = re.findall(r'<text x="([0-9.-]+)"[^>]*text-anchor="(start|end)"[^>]*>([^<]+)', chart)
    assert len(placed) == 3  # the title and two names
    for at, anchor, words in placed:
        length = 12 * 0.5 * len(words)  # as browsers draw it, or a little more
        ends = (float(at), float(at) + length) if anchor == "start" else (float(at) - length, float(at))
        assert 0 <= ends[0] < ends[1] <= width, words

import csv
import io
import json
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import confusion_matrix as sklearn_confusion_matrix

from adaptive_labels.lab.analysis.confusion_matrix import confused_groups, order_by_similarity
from adaptive_labels.lab.analysis.confusions import (
    Confusions,
    format_confusions,
    most_confused,
    mutual_groups,
    named_groups,
    one_way_pairs,
    read_confusions,
    summarise_confusions,
    top_pairs,
)
from adaptive_labels.lab.runs import RunError, RunFolder


def correlation(confusions: Confusions) -> float | None:
    found = confusions.agreement()
    return None if found is None else found.overall


def test_means_over_seeds(comparison: list[RunFolder]) -> None:
    runs = [run for run in comparison if run.config.method.name == "alr"]
    found = read_confusions(runs)
    assert (found.residual_runs, found.test_runs) == (3, 3)
    matrices, tables = [], []
    for run in runs:
        labels, predictions = run.load_residual_labels(), run.load_predictions()
        assert labels is not None
        assert labels.labels is not None
        assert predictions is not None
        matrices.append(labels.labels[-1])
        tables.append(sklearn_confusion_matrix(predictions.test_labels, predictions.test_logits.argmax(1)))
    np.testing.assert_allclose(found.residual, np.mean(matrices, axis=0), rtol=1e-6)
    np.testing.assert_allclose(found.counts, np.mean(tables, axis=0))
    assert found.rates is not None
    np.testing.assert_allclose(found.rates.sum(axis=1), 1)


def test_the_planted_pairs_are_found_in_both_directions(comparison: list[RunFolder]) -> None:
    found = read_confusions([run for run in comparison if run.config.method.name == "alr"])
    planted = {(found.classes[i], found.classes[i ^ 1]) for i in range(8)}
    for by in ("residual", "test"):
        assert {(pair.true, pair.taken_for) for pair in top_pairs(found, 8, by)} == planted
        assert top_pairs(found, 1, by)[0].true in found.classes[1::2]  # odd classes were made worse
    rho = correlation(found)
    assert rho is not None
    assert rho > 0.3
    groups = {frozenset(members) for members in mutual_groups(found)}
    assert groups == {frozenset(found.classes[i : i + 2]) for i in (0, 2, 4, 6)}
    order = order_by_similarity(found.residual).tolist()
    assert all(abs(order.index(i) - order.index(i ^ 1)) == 1 for i in range(8))


def test_a_baseline_has_test_confusions_only(comparison: list[RunFolder]) -> None:
    found = read_confusions([comparison[0]])
    assert found.residual is None
    assert correlation(found) is None
    assert top_pairs(found, 3) == top_pairs(found, 3, "test")
    with pytest.raises(RunError, match="These runs have no residual labels"):
        top_pairs(found, 3, "residual")
    with pytest.raises(ValueError, match="by is 'odd'; it must be residual or test"):
        top_pairs(found, 3, "odd")


def test_agreement_is_spearman_over_the_rows_with_errors() -> None:
    residual = np.array([[0, 0.7, 0.3], [0.6, 0, 0.4], [0.2, 0.8, 0]])
    counts = np.array([[5.0, 4, 1], [1, 7, 2], [0, 0, 9]])
    expected = stats.spearmanr([0.7, 0.3, 0.6, 0.4], [4 / 5, 1 / 5, 1 / 3, 2 / 3]).statistic
    assert correlation(Confusions(("a", "b", "c"), residual, counts)) == pytest.approx(expected)
    uniform = (1 - np.eye(3)) / 2
    assert correlation(Confusions(("a", "b", "c"), uniform, counts)) is None
    assert correlation(Confusions(("a", "b", "c"), residual, np.diag([1.0, 1, 1]))) is None


def test_one_way_confusion_is_a_pair_but_no_mutual_group() -> None:
    counts = np.array([[5.0, 5, 0, 0], [0, 9, 0, 1], [0, 0, 8, 2], [0, 0, 3, 7]])
    found = Confusions(("a", "b", "c", "d"), None, counts)
    assert [(pair.true, pair.taken_for, pair.rate, pair.count) for pair in top_pairs(found, 2)] == [
        ("a", "b", 0.5, 5.0),
        ("d", "c", pytest.approx(0.3), 3.0),
    ]
    assert mutual_groups(found) == [["c", "d"]]
    assert confused_groups(counts, threshold=0.25) == []
    assert most_confused(found.counts, 2) == [0, 1]
    assert len(top_pairs(found, 100)) == 4


def test_a_chain_of_neighbours_is_not_one_group() -> None:
    size = 8
    matrix = np.full((size, size), 0.01)
    for i in range(size - 1):  # each is confused with the next, and with nobody further on
        matrix[i, i + 1] = matrix[i + 1, i] = 0.4
    np.fill_diagonal(matrix, 0.0)
    groups = confused_groups(matrix, threshold=0.2)
    assert groups
    assert {len(group.members) for group in groups} == {2}


def test_few_classes_do_not_break_anything() -> None:
    two = Confusions(("a", "b"), np.array([[0.0, 1], [1, 0]]), None)
    assert mutual_groups(two) == []
    assert order_by_similarity(two.residual).tolist() == [0, 1]
    assert correlation(two) is None
    perfect = Confusions(("a", "b"), None, np.diag([3.0, 4.0]))
    assert format_confusions(perfect) == "No class is taken for another.\n"


def test_many_classes_are_read_from_the_largest_of_each_row(maker: Any) -> None:
    run = maker.whole("alr", 0, classes=[f"class {i}" for i in range(300)], examples=900)
    found = read_confusions([run])
    assert found.residual is not None
    assert found.residual.shape == (300, 300)
    assert {int(pair.true[6:]) ^ 1 == int(pair.taken_for[6:]) for pair in top_pairs(found, 20)} == {True}


def test_text_csv_and_json(comparison: list[RunFolder]) -> None:
    found = read_confusions([run for run in comparison if run.config.method.name == "alr"])
    lines = summarise_confusions(found, 3).splitlines()
    assert lines[0].split("  ")[-3:] == ["residual label", "test rate", "test examples"]
    assert lines[4] == "Mean over 3 runs; last stored epoch."
    assert lines[5].startswith("Residual labels and test errors rank the pairs with a Spearman correlation of 0.")
    assert lines[6].startswith("Confused with each other: ")
    assert "; AT, DE; BE, NL; " in lines[6]
    assert format_confusions(found, 3).startswith("\n".join(lines[:6]))
    pairs = top_pairs(found, 3)
    data = json.loads(format_confusions(found, 3, "json"))
    assert [pair["true"] for pair in data["pairs"]] == [pair.true for pair in pairs]
    assert data["agreement"] == correlation(found)
    assert data["groups"] == mutual_groups(found)[:3] != mutual_groups(found)
    rows = list(csv.DictReader(io.StringIO(format_confusions(found, 8, "csv"))))
    assert {row["class"] for row in rows} == set(found.classes)
    assert float(rows[0]["residual_label"]) == pairs[0].residual
    with pytest.raises(ValueError, match="format is 'xml'; it must be one of text, json, csv"):
        format_confusions(found, 3, "xml")
    with pytest.raises(ValueError, match="only is 'all'; it must be one of pairs, one-way, groups"):
        format_confusions(found, 3, only="all")


def test_both_directions_stand_side_by_side(comparison: list[RunFolder]) -> None:
    found = read_confusions([run for run in comparison if run.config.method.name == "alr"])
    assert found.residual is not None
    assert found.counts is not None
    assert found.rates is not None
    for row in csv.DictReader(io.StringIO(format_confusions(found, 8, "csv"))):
        i, j = found.classes.index(row["class"]), found.classes.index(row["taken_for"])
        expected = {"residual_label": found.residual, "test_rate": found.rates, "test_count": found.counts}
        for name, matrix in expected.items():
            assert float(row[name]) == matrix[i, j]
            assert float(row[f"reverse_{name}"]) == matrix[j, i]


ONE_WAY = Confusions(
    ("a", "b", "c", "d, e"),
    np.array([[0, 0.8, 0.1, 0.1], [0.6, 0, 0.2, 0.2], [0.3, 0.3, 0, 0.4], [0.1, 0.1, 0.8, 0]]),
    np.array([[60.0, 38, 1, 1], [5, 95, 0, 0], [0, 1, 80, 19], [0, 0, 25, 75]]),
    1,
    1,
)


def test_pairs_that_are_confused_one_way() -> None:
    first, *others = one_way_pairs(ONE_WAY)
    assert (first.true, first.taken_for, first.count, first.reverse_count) == ("a", "b", 38, 5)
    assert (first.residual, first.reverse_residual) == (0.8, 0.6)
    assert first.p == pytest.approx(stats.binomtest(38, 43, 0.5).pvalue)
    assert all(pair.p_holm > 0.05 for pair in others)
    text = format_confusions(ONE_WAY, only="one-way").splitlines()
    assert text[0] == "One way more than the other:"
    assert text[2].split() == ["a", "b", "38.0%", "5.0%", "38", ":", "5", "<", "0.001"]
    assert text[3] == "Binomial test on the test split, p < 0.05."
    rows = list(csv.DictReader(io.StringIO(format_confusions(ONE_WAY, 9, "csv", only="one-way"))))
    assert [float(row["p"]) for row in rows] == [pair.p for pair in one_way_pairs(ONE_WAY)]
    assert (rows[0]["test_count"], rows[0]["reverse_test_rate"]) == ("38", "0.05")
    even = Confusions(("a", "b"), None, np.array([[5.0, 5], [4, 6]]))
    assert format_confusions(even, only="one-way").startswith("No pair is confused one way more than the other")
    assert one_way_pairs(Confusions(("a", "b"), np.array([[0.0, 1], [1, 0]]), None)) == []


def test_groups_by_either_view() -> None:
    by_test = [group for group in named_groups(ONE_WAY) if group.by == "test"]
    assert [group.classes for group in by_test] == [("c", "d, e")]
    assert by_test[0].within == pytest.approx(44 / 45)
    assert by_test[0].weakest == pytest.approx(0.19)
    by_residual = named_groups(ONE_WAY, "residual")
    assert [group.classes for group in by_residual] == [("a", "b")]
    assert by_residual[0].weakest == pytest.approx(0.6)
    assert "test      c, d, e" in format_confusions(ONE_WAY, only="groups")
    rows = list(csv.DictReader(io.StringIO(format_confusions(ONE_WAY, 9, "csv", only="groups"))))
    assert [(row["group"], row["by"], row["class"]) for row in rows] == [
        ("1", "residual", "a"),
        ("1", "residual", "b"),
        ("2", "test", "c"),
        ("2", "test", "d, e"),
    ]
    data = json.loads(format_confusions(ONE_WAY, 1, "json", only="groups"))
    assert data.keys() == {"residual_runs", "test_runs", "groups", "group_details"}
    assert len(data["group_details"]) == 1


def test_the_details_of_the_agreement() -> None:
    data = json.loads(format_confusions(ONE_WAY, 2, "json"))
    details = data["agreement_details"]
    assert details["same_top_confusion"] == 1.0
    assert details["classes"] == 4
    assert [(pair["true"], pair["taken_for"]) for pair in details["differences"]] == [("c", "d, e"), ("a", "b")]
    assert details["differences"][0]["expected"] == pytest.approx(0.4 * 20)
    assert "agreement" not in json.loads(format_confusions(ONE_WAY, 2, "json", only="one-way"))
    without = Confusions(ONE_WAY.classes, None, ONE_WAY.counts)
    assert json.loads(format_confusions(without, 2, "json"))["agreement_details"] is None


def test_runs_that_do_not_fit_together_are_refused(maker: Any) -> None:
    first = maker.whole("alr", 0, classes=["a", "b", "c"])
    other = maker.whole("alr", 1, classes=["a", "b", "d"])
    with pytest.raises(RunError, match="has other classes than the runs before it"):
        read_confusions([first, other])
    with pytest.raises(RunError, match=r"There is neither a residual_labels\.npz nor a predictions\.npz in .*alr-s2"):
        read_confusions([maker.figures("alr", 2, 0.5)])
    bare = maker.create("slr", 0)
    bare.save_predictions(test_logits=np.zeros((1, 2)), test_labels=[0])
    assert read_confusions([bare]).classes == ("0", "1")
    with pytest.raises(RunError, match="The runs have 2 and 3 classes"):
        read_confusions([bare, first])


def test_predictions_that_are_none_are_the_files_fault(maker: Any) -> None:
    bare = maker.create("slr", 0)
    bare.save_predictions(test_logits=np.array([[0.0, np.nan]]), test_labels=[0])
    with pytest.raises(RunError, match=r"predictions\.npz holds no usable predictions: logits gives no .* in row 0"):
        read_confusions([bare])


def test_flat_residual_labels_are_said_to_be_so_and_not_ranked() -> None:
    counts = np.array([[5.0, 4.0, 1.0], [0.0, 9.0, 1.0], [0.0, 3.0, 7.0]])
    flat = Confusions(("a", "b", "c"), (1 - np.eye(3)) / 2, counts, 1, 1)
    assert (top_pairs(flat, 1)[0].true, top_pairs(flat, 1)[0].taken_for) == ("a", "b")  # most often on the test split
    assert "The residual labels are still nearly even (entropy 100.0%" in summarise_confusions(flat)
    learned = Confusions(("a", "b", "c"), np.array([[0, 0.1, 0.9], [0.5, 0, 0.5], [0.5, 0.5, 0]]), counts, 1, 1)
    assert (top_pairs(learned, 1)[0].true, top_pairs(learned, 1)[0].taken_for) == ("a", "c")
    assert "nearly even" not in summarise_confusions(learned)


def test_two_classes_leave_nothing_to_learn() -> None:
    both = Confusions(("a", "b"), 1 - np.eye(2), np.array([[9.0, 1.0], [5.0, 5.0]]), 1, 1)
    assert top_pairs(both, 1)[0].true == "b"
    assert "With two classes a residual label has one entry" in summarise_confusions(both)

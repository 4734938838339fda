import csv
import io
import json
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import confusion_matrix as sklearn_confusion_matrix

from adaptive_labels.lab.analysis.advice import advice_frame
from adaptive_labels.lab.analysis.confusion_matrix import order_by_similarity
from adaptive_labels.lab.analysis.confusions import (
    Confusions,
    group_frame,
    one_way_pairs,
    read_confusions,
    top_pairs,
)
from adaptive_labels.lab.analysis.confusions_text import format_confusions, groups_sentence, summarise_confusions
from adaptive_labels.lab.runs import RunError, RunFolder

ONE_WAY = Confusions(
    ("a", "b", "c", "d, e"),
    np.array([[0, 0.8, 0.1, 0.1], [0.6, 0, 0.2, 0.2], [0.3, 0.3, 0, 0.4], [0.1, 0.1, 0.8, 0]]),
    np.array([[60.0, 38, 1, 1], [5, 95, 0, 0], [0, 1, 80, 19], [0, 0, 25, 75]]),
    1,
    1,
)
TWO = Confusions(("a", "b"), np.array([[0.0, 1], [1, 0]]), None)


@pytest.fixture(scope="session")
def found(comparison: list[RunFolder]) -> Confusions:
    """The mean confusions of three seeds of ALR."""
    return read_confusions([run for run in comparison if run.config.method.name == "alr"])


def correlation(confusions: Confusions) -> float | None:
    return None if confusions.agreement is None else confusions.agreement.overall


def named(frame: Any) -> list[tuple[str, str]]:
    return list(zip(frame["true"], frame["taken_for"], strict=True))


def test_means_over_seeds(comparison: list[RunFolder], found: Confusions) -> None:
    assert (found.residual_runs, found.test_runs) == (3, 3)
    matrices, counts = [], []
    for run in comparison[6:]:
        labels, predictions = run.load_residual_labels(), run.load_predictions()
        matrices.append(labels.labels[-1])  # type: ignore[union-attr, index]
        counts.append(sklearn_confusion_matrix(predictions.test_labels, predictions.test_logits.argmax(1)))  # type: ignore[union-attr]
    np.testing.assert_allclose(found.residual, np.mean(matrices, axis=0), rtol=1e-6)
    np.testing.assert_allclose(found.counts, np.mean(counts, axis=0))
    assert found.rates is not None
    np.testing.assert_allclose(found.rates.sum(axis=1), 1)


def test_the_planted_pairs_are_found_in_both_directions(found: Confusions) -> None:
    planted = {(found.classes[i], found.classes[i ^ 1]) for i in range(8)}
    for by in ("residual", "test"):
        assert set(named(top_pairs(found, 8, by))) == planted
        assert named(top_pairs(found, 1, by))[0][0] in found.classes[1::2]  # odd classes were made worse
    assert (correlation(found) or 0) > 0.3
    groups = {frozenset(members) for members in group_frame(found, "residual")["classes"]}
    assert groups == {frozenset(found.classes[i : i + 2]) for i in (0, 2, 4, 6)}
    order = order_by_similarity(found.residual).tolist()
    assert all(abs(order.index(i) - order.index(i ^ 1)) == 1 for i in range(8))


def test_a_baseline_has_test_confusions_only(comparison: list[RunFolder]) -> None:
    found = read_confusions([comparison[0]])
    assert found.residual is None
    assert correlation(found) is None
    assert named(top_pairs(found, 3)) == named(top_pairs(found, 3, "test"))
    with pytest.raises(RunError, match="These runs have no residual labels"):
        top_pairs(found, 3, "residual")
    with pytest.raises(ValueError, match="by is 'odd'; it must be residual or test"):
        top_pairs(found, 3, "odd")


def test_one_way_confusion_is_a_pair_but_no_mutual_group() -> None:
    counts = np.array([[5.0, 5, 0, 0], [0, 9, 0, 1], [0, 0, 8, 2], [0, 0, 3, 7]])
    found = Confusions(("a", "b", "c", "d"), None, counts)
    pairs = top_pairs(found, 2)
    assert named(pairs) == [("a", "b"), ("d", "c")]
    assert (pairs["rate"].tolist(), pairs["errors"].tolist()) == ([0.5, pytest.approx(0.3)], [5.0, 3.0])
    assert pairs["reverse_errors"].tolist() == [0.0, 2.0]
    assert group_frame(found)["classes"].tolist() == [("c", "d")]
    assert len(top_pairs(found, 100)) == 4


def test_few_classes_do_not_break_anything() -> None:
    assert group_frame(TWO).empty
    assert correlation(TWO) is None
    assert one_way_pairs(TWO).empty
    perfect = Confusions(("a", "b"), None, np.diag([3.0, 4.0]))
    assert format_confusions(perfect) == summarise_confusions(perfect) == "No class is taken for another.\n"
    both = Confusions(("a", "b"), 1 - np.eye(2), np.array([[9.0, 1.0], [5.0, 5.0]]), 1, 1)
    assert named(top_pairs(both, 1)) == [("b", "a")]
    assert "With two classes a residual label has one entry" in summarise_confusions(both)


def test_many_classes_are_read_from_the_largest_of_each_row(maker: Any) -> None:
    found = read_confusions([maker.whole("alr", 0, classes=[f"class {i}" for i in range(300)], examples=900)])
    assert found.residual is not None
    assert found.residual.shape == (300, 300)
    assert {int(true[6:]) ^ 1 == int(taken[6:]) for true, taken in named(top_pairs(found, 20))} == {True}


def test_text_csv_and_json(found: Confusions) -> None:
    lines = summarise_confusions(found, 3).splitlines()
    assert lines[0].split("  ")[-3:] == ["residual label %", "test rate %", "test examples"]
    assert lines[4] == "Mean over 3 runs; last stored epoch."
    assert lines[5].startswith("Residual labels and test errors rank the pairs with a Spearman correlation of 0.")
    assert "; AT, DE; BE, NL; " in lines[6]
    assert format_confusions(found, 3).startswith("\n".join(lines[:6]))
    data = json.loads(format_confusions(found, 3, "json"))
    assert data["agreement"]["overall"] == correlation(found)
    assert [pair["true"] for pair in data["pairs"]] == top_pairs(found, 3)["true"].tolist()
    assert len(data["groups"]) == 3 < len(group_frame(found))
    rows = list(csv.DictReader(io.StringIO(format_confusions(found, 8, "csv"))))
    assert found.residual is not None
    assert found.counts is not None
    assert found.rates is not None
    for row in rows:
        i, j = found.classes.index(row["true"]), found.classes.index(row["taken_for"])
        for name, matrix in {"residual": found.residual, "rate": found.rates, "errors": found.counts}.items():
            assert float(row[name]) == matrix[i, j]
            assert float(row[f"reverse_{name}"]) == matrix[j, i]
    with pytest.raises(ValueError, match="format is 'xml'; it must be one of text, json, csv"):
        format_confusions(found, 3, "xml")


def test_pairs_that_are_confused_one_way() -> None:
    pairs = one_way_pairs(ONE_WAY)
    first = pairs.iloc[0]
    assert (first["true"], first["taken_for"], first["errors"], first["reverse_errors"]) == ("a", "b", 38, 5)
    assert (first["residual"], first["reverse_residual"]) == (0.8, 0.6)
    assert first["p"] == pytest.approx(stats.binomtest(38, 43, 0.5).pvalue)
    assert (pairs["p_holm"][1:] > 0.05).all()
    text = format_confusions(ONE_WAY).split("\n\n")[1].splitlines()
    assert text[0] == "One way more than the other:"
    assert text[2].split() == ["a", "b", "38.0", "5.0", "38", ":", "5", "<", "0.001"]
    assert text[3] == "Binomial test on the test split, p < 0.05."
    data = json.loads(format_confusions(ONE_WAY, 9, "json"))["one_way"]
    assert [pair["p"] for pair in data] == pairs["p"].tolist()
    assert (data[0]["errors"], data[0]["reverse_rate"]) == (38, 0.05)
    even = Confusions(("a", "b"), None, np.array([[5.0, 5], [4, 6]]))
    assert "No pair is confused one way more than the other" in format_confusions(even)


def test_groups_by_either_view() -> None:
    groups = group_frame(ONE_WAY).set_index("by")
    assert groups["classes"].to_dict() == {"residual": ("a", "b"), "test": ("c", "d, e")}
    assert groups["within"]["test"] == pytest.approx(44 / 45)
    assert groups["weakest"].to_dict() == {"residual": pytest.approx(0.6), "test": pytest.approx(0.19)}
    assert groups_sentence(ONE_WAY) == "Confused with each other: a, b."
    assert "test      c, d, e" in format_confusions(ONE_WAY)
    assert [group["classes"] for group in json.loads(format_confusions(ONE_WAY, 1, "json"))["groups"]] == [["a", "b"]]


def test_what_to_do_and_why() -> None:
    """c and d are confused with each other, a is taken for b only, and e is hard with errors everywhere."""
    counts = np.array([
        [60, 40, 0, 0, 0, 0],
        [2, 98, 0, 0, 0, 0],
        [0, 0, 70, 30, 0, 0],
        [0, 0, 28, 72, 0, 0],
        [13, 12, 12, 13, 40, 10],
        [1, 1, 1, 1, 1, 95],
    ], dtype=float)  # fmt: skip
    found = advice_frame(Confusions(tuple("abcdef"), None, counts, 0, 1))
    assert list(zip(found["kind"], found["classes"], strict=True))[:2] == [
        ("merge", ("c", "d")),
        ("one-way", ("a", "b")),
    ]
    assert [classes for kind, classes in zip(found["kind"], found["classes"], strict=True) if kind == "more-data"] == [
        ("e",)
    ]
    text = format_confusions(Confusions(tuple("abcdef"), None, counts, 0, 1))
    assert "c, d. 100% of their 58 test errors are with each other (p < 0.001)." in text
    assert "Look at examples of a: it is taken for b more than the reverse: 40.0% of its test examples (40)" in text
    assert "Get more examples of e: 40% of its 100 test examples are right, of all 72% (p < 0.001)" in text
    assert "its errors go to 5 classes." in text
    assert advice_frame(Confusions(tuple("abcdef"), None, np.rint(counts / 50), 0, 1)).empty  # too few to say
    assert advice_frame(TWO).empty
    assert json.loads(format_confusions(ONE_WAY, 9, "json"))["advice"][0]["kind"] == "merge"


def test_the_details_of_the_agreement() -> None:
    details = json.loads(format_confusions(ONE_WAY, 2, "json"))["agreement"]
    assert (details["same_top_confusion"], details["classes"]) == (1.0, 4)
    assert [(pair["true"], pair["taken_for"]) for pair in details["differences"]] == [("c", "d, e"), ("a", "b")]
    assert details["differences"][0]["expected"] == pytest.approx(0.4 * 20)
    without = Confusions(ONE_WAY.classes, None, ONE_WAY.counts)
    assert json.loads(format_confusions(without, 2, "json"))["agreement"] is None


def test_runs_that_do_not_fit_together_are_refused(maker: Any) -> None:
    first = maker.whole("alr", 0, classes=["a", "b", "c"])
    with pytest.raises(RunError, match="The runs have different classes; give runs of one data set"):
        read_confusions([first, maker.whole("alr", 1, classes=["a", "b", "d"])])
    with pytest.raises(RunError, match=r"There is neither a residual_labels\.npz nor a predictions\.npz in .*alr-s2"):
        read_confusions([maker.figures("alr", 2, 0.5)])
    broken = maker.create("slr", 1)
    broken.save_predictions(
        test_logits=np.array([[0.0, np.nan]]), test_labels=[0], validation_logits=np.zeros((1, 2)),
        validation_labels=[0], classes=["a", "b"],
    )  # fmt: skip
    with pytest.raises(RunError, match=r"predictions\.npz holds no usable predictions: logits gives no .* in row 0"):
        read_confusions([broken])


def test_flat_residual_labels_are_said_to_be_so_and_not_ranked() -> None:
    counts = np.array([[5.0, 4.0, 1.0], [0.0, 9.0, 1.0], [0.0, 3.0, 7.0]])
    flat = Confusions(("a", "b", "c"), (1 - np.eye(3)) / 2, counts, 1, 1)
    assert named(top_pairs(flat, 1)) == [("a", "b")]  # most often on the test split
    assert "The residual labels are still nearly even (entropy 100.0%" in summarise_confusions(flat)
    learned = Confusions(("a", "b", "c"), np.array([[0, 0.1, 0.9], [0.5, 0, 0.5], [0.5, 0.5, 0]]), counts, 1, 1)
    assert named(top_pairs(learned, 1)) == [("a", "c")]
    assert "nearly even" not in summarise_confusions(learned)

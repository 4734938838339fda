"""Label issues, beside cleanlab 2.9.0 on the same arrays and on labels that were made wrong on purpose."""

import numpy as np
import pytest

from adaptive_labels.label_issues import (
    _with_sum,
    calibrated,
    confident_joint,
    consensus,
    find_label_issues,
    get_label_quality_scores,
    neighbour_probs,
    num_label_issues,
    probabilities_wrong,
)

# True class, given label, and the probabilities in thousandths, of 60 examples.
EXAMPLES = """
03:462,449,26,63 11:52,802,126,20 22:5,30,902,63 33:120,70,129,681 01:891,20,50,39 11:56,373,423,148
22:387,11,555,47 31:55,3,103,839 00:567,87,104,242 10:25,935,11,29 22:38,195,635,132 33:8,20,10,962
00:853,36,31,80 11:29,204,93,674 22:176,130,634,60 33:96,133,57,714 00:835,95,18,52 11:177,654,99,70
22:73,236,605,86 33:210,178,508,104 03:840,24,45,91 11:85,737,34,144 22:34,39,901,26
33:299,95,303,303 00:617,118,209,56 11:92,559,317,32 22:389,72,472,67 33:20,78,188,714
03:688,209,53,50 11:156,371,438,35 22:61,31,879,29 31:45,143,57,755 00:814,76,72,38
11:272,349,280,99 22:337,393,142,128 33:102,41,197,660 00:360,179,201,260 11:15,861,108,16
22:42,75,417,466 33:117,34,43,806 00:961,9,12,18 11:11,960,6,23 22:101,159,238,502 33:133,155,59,653
00:661,112,88,139 11:133,601,149,117 22:25,56,885,34 32:43,122,399,436 00:650,69,268,13
11:40,825,12,123 22:125,43,816,16 32:9,97,6,888 00:683,222,86,9 11:47,905,26,22 22:350,127,401,122
33:50,13,54,883 00:856,30,25,89 11:145,712,104,39 22:155,71,743,31 30:44,134,72,750
"""
# What cleanlab 2.9.0 returns for them.
CLEANLAB_JOINT = [[9, 1, 0, 1], [1, 10, 0, 3], [0, 0, 9, 1], [2, 0, 0, 8]]
CLEANLAB_BY_SELF_CONFIDENCE = [7, 51, 4, 9, 59, 28, 0, 20, 31, 13, 42]
CLEANLAB_BY_MARGIN = [9, 51, 4, 7, 20, 59, 28, 31, 13, 0, 42]
CLEANLAB_LOWEST_MARGINS = [9, 51, 4, 7, 20, 59, 28, 31, 13, 19, 0, 42]


@pytest.fixture(scope="module")
def arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    cells = [cell.split(":") for cell in EXAMPLES.split()]
    true, labels = (np.array([int(pair[i]) for pair, _ in cells]) for i in (0, 1))
    return true, labels, np.array([[int(x) for x in p.split(",")] for _, p in cells]) / 1000


def noisy_clusters(rate: float, count: int = 600, classes: int = 4, spread: float = 0.5) -> tuple[np.ndarray, ...]:
    """True classes, labels of which a share is wrong, features in clusters, and probabilities learned from labels."""
    random = np.random.default_rng(0)
    true = np.arange(count) % classes
    labels = np.where(random.random(count) < rate, (true + random.integers(1, classes, count)) % classes, true)
    centres = random.normal(size=(classes, 8))
    features = centres[true] + spread * random.normal(size=(count, 8))
    logits = -((features[:, None] - centres) ** 2).sum(2) / (2 * spread**2)
    exact = np.exp(logits - logits.max(1, keepdims=True))
    exact /= exact.sum(1, keepdims=True)
    return true, labels, features, (1 - rate) * exact + rate / (classes - 1) * (1 - exact)


def test_the_confident_joint_is_cleanlabs(arrays: tuple[np.ndarray, ...]) -> None:
    _, labels, probs = arrays
    assert confident_joint(labels, probs).tolist() == CLEANLAB_JOINT


def test_the_same_labels_are_suspect_as_for_cleanlab(arrays: tuple[np.ndarray, ...]) -> None:
    true, labels, probs = arrays
    ours = find_label_issues(labels, probs, return_indices_ranked_by="label_quality")
    assert len(ours) == num_label_issues(labels, probs) == 12
    assert set(CLEANLAB_BY_MARGIN) - {42} < set(ours.tolist())
    for name, theirs in (
        ("self_confidence", CLEANLAB_BY_SELF_CONFIDENCE),
        ("normalized_margin", CLEANLAB_BY_MARGIN),
    ):
        found = find_label_issues(labels, probs, return_indices_ranked_by=name).tolist()
        assert [i for i in found if i in theirs] == [i for i in theirs if i in found], name
    assert set(np.argsort(get_label_quality_scores(labels, probs))[:11]) <= set(CLEANLAB_LOWEST_MARGINS) | {34}
    mask = find_label_issues(labels, probs)
    assert mask.dtype == bool
    assert set(np.flatnonzero(mask)) == set(ours.tolist())
    assert (true != labels)[mask].sum() == 9  # of 10, as cleanlab


@pytest.mark.slow
def test_the_confident_joint_is_cleanlabs_on_any_arrays() -> None:
    count = pytest.importorskip("cleanlab.count")
    for seed in range(20):
        random = np.random.default_rng(seed)
        probs = random.dirichlet(np.full(5, 0.4), 200)
        labels = np.array([random.choice(5, p=p) for p in probs])
        assert (confident_joint(labels, probs) == count.compute_confident_joint(labels, probs, calibrate=False)).all()


def test_the_score_is_the_labels_share_of_the_best_two() -> None:
    scores = get_label_quality_scores([0, 2], [[0.5, 0.25, 0.25], [0.6, 0.3, 0.1]])
    assert scores == pytest.approx([2 / 3, 1 / 7])
    assert get_label_quality_scores([0], [[0.0, 1.0]]) == pytest.approx([0.0])


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.4])
def test_the_number_and_the_probabilities_fit_wrong_labels(rate: float) -> None:
    true, labels, features, probs = noisy_clusters(rate)
    wrong = labels != true
    chances = probabilities_wrong(labels, probs, features)
    assert chances.sum() == pytest.approx(wrong.sum(), rel=0.15)
    assert num_label_issues(labels, probs, features) == round(chances.sum())
    assert chances[wrong].mean() > 0.75
    assert chances[~wrong].mean() < 0.1
    found = find_label_issues(labels, probs, features)
    assert wrong[found].mean() > 0.9


def test_odds_are_shifted_to_a_sum() -> None:
    shifted = _with_sum(np.array([0.1, 0.5, 0.9]), 2.0)
    assert shifted.sum() == pytest.approx(2.0)
    odds = shifted / (1 - shifted)
    assert odds / odds[1] == pytest.approx(np.array([1 / 9, 1.0, 9.0]))
    assert _with_sum(np.array([0.0, 1.0]), 1.0) == pytest.approx(np.array([0.0, 1.0]))


def test_neighbours_find_what_the_probabilities_do_not_know() -> None:
    true, labels, features, _ = noisy_clusters(0.2)
    blind = np.full((len(labels), 4), 0.25)
    scores = get_label_quality_scores(labels, blind, features)
    assert scores[labels != true].mean() < 0.25
    assert scores[labels == true].mean() > 0.7


def test_an_example_and_its_copies_are_no_neighbours() -> None:
    """Otherwise an input that is there a hundred times with a wrong label would vouch for itself."""
    true, labels, features, _ = noisy_clusters(0.0, count=80)
    labels[0] = 1
    copies = 40
    features, labels = np.concatenate([features, *[features[:1]] * copies]), np.append(labels, [1] * copies)
    probs = neighbour_probs(labels, features, 4)
    assert probs[0].argmax() == true[0] == 0
    assert np.allclose(probs.sum(1), 1)


def test_neighbours_among_a_part_are_like_those_among_all(monkeypatch: pytest.MonkeyPatch) -> None:
    _, labels, features, _ = noisy_clusters(0.1)
    all_of_them = neighbour_probs(labels, features, 4)
    monkeypatch.setattr("adaptive_labels.label_issues._POOL", 300)
    part = neighbour_probs(labels, features, 4)
    assert (part.argmax(1) == all_of_them.argmax(1)).mean() > 0.95


def test_the_consensus_is_the_geometric_mean() -> None:
    p, q = np.array([[0.2, 0.8]]), np.array([[0.8, 0.2]])
    assert consensus(p, q) == pytest.approx(np.array([[0.5, 0.5]]))
    assert consensus(p, p) == pytest.approx(p, abs=1e-3)


def test_calibrated_probabilities_keep_the_number_and_rise_with_the_margin() -> None:
    margins = np.linspace(-4, 4, 41)
    found = calibrated(margins, 1 / (1 + np.exp(-(2 * margins - 1))))
    assert found == pytest.approx(1 / (1 + np.exp(-(2 * margins - 1))), abs=1e-4)
    assert calibrated(margins, np.zeros(41)).max() < 0.01


@pytest.mark.parametrize(
    ("labels", "probs", "features", "message"),
    [
        ([0], [0.5, 0.5], None, r"pred_probs has shape \(2,\)"),
        ([0, 1], [[0.5, 0.5]], None, r"labels \(2,\)"),
        ([2], [[0.5, 0.5]], None, "labels must be integers from 0 to 1"),
        ([0.0], [[0.5, 0.5]], None, "labels must be integers"),
        ([0], [[2.0, -1.0]], None, "pred_probs must hold probabilities"),
        ([0], [[np.nan, 1.0]], None, "pred_probs must hold probabilities"),
        ([0], [[0.5, 0.5]], [1.0], r"features has shape \(1,\)"),
        ([0], [[0.5, 0.5]], [[np.inf]], "features holds NaN or infinity"),
    ],
)
def test_wrong_arguments_are_refused(labels: object, probs: object, features: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        get_label_quality_scores(labels, probs, features)  # type: ignore[arg-type]


def test_an_unknown_ranking_is_refused() -> None:
    with pytest.raises(ValueError, match="return_indices_ranked_by is 'best'"):
        find_label_issues([0, 1], [[0.5, 0.5], [0.5, 0.5]], return_indices_ranked_by="best")

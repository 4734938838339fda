"""Metrics against scikit-learn, worked examples and slow loops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.optimize import minimize_scalar
from sklearn import metrics as sk

from adaptive_labels import metrics
from adaptive_labels.metrics import evaluate, fit_temperature, risk_coverage

FUNCTIONS = [
    metrics.top_k_accuracy,
    metrics.confusion_matrix,
    metrics.balanced_accuracy,
    metrics.worst_class_accuracy,
    metrics.macro_f1,
    metrics.nll,
    metrics.brier,
    metrics.reliability,
    metrics.ece,
    metrics.adaptive_ece,
    metrics.classwise_ece,
    metrics.aurc,
    metrics.confidence_and_correct,
    metrics.fit_temperature,
    metrics.evaluate,
]


def sample(examples=300, classes=7, seed=0, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (examples,), generator=generator)
    logits = torch.randn(examples, classes, generator=generator) * scale
    logits[torch.arange(examples), labels] += 1.5
    return logits, labels


def slow_calibration_error(confidence, correct, groups):
    total = 0.0
    for group in groups:
        if len(group):
            total += abs(sum(correct[i] for i in group) - sum(confidence[i] for i in group))
    return total / len(confidence)


def slow_width_groups(values, bins=15):
    groups = [[] for _ in range(bins)]
    for i, value in enumerate(values):
        # The bin whose (b/B, (b+1)/B] holds the value, found by looking at every one.
        inside = [b for b in range(bins) if b / bins < value <= (b + 1) / bins]
        groups[inside[0] if inside else (0 if value <= 0 else bins - 1)].append(i)
    return groups


@pytest.mark.parametrize("seed", range(3))
def test_agree_with_scikit_learn(seed):
    logits, labels = sample(seed=seed)
    p = logits.double().softmax(1)
    predicted = logits.argmax(1)
    result = evaluate(logits, labels)
    assert result["top1"] == pytest.approx(sk.accuracy_score(labels, predicted))
    assert result["top5"] == pytest.approx(sk.top_k_accuracy_score(labels, p.numpy(), k=5))
    assert result["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(labels, predicted))
    assert result["macro_f1"] == pytest.approx(sk.f1_score(labels, predicted, average="macro"))
    assert result["worst_class"] == pytest.approx(min(sk.recall_score(labels, predicted, average=None)))
    assert result["nll"] == pytest.approx(sk.log_loss(labels, p.numpy()))
    assert metrics.confusion_matrix(logits, labels).tolist() == sk.confusion_matrix(labels, predicted).tolist()
    one_hot = np.eye(7)[labels.numpy()]
    assert result["brier"] == pytest.approx(7 * sk.mean_squared_error(one_hot, p.numpy()))


@pytest.mark.parametrize("scale", [0.5, 2.0, 8.0])
def test_calibration_errors_agree_with_slow_loops(scale):
    logits, labels = sample(examples=203, scale=scale)
    p = logits.double().softmax(1).numpy()
    y = labels.numpy()
    confidence = [max(row) for row in p]
    correct = [float(np.argmax(row) == label) for row, label in zip(p, y, strict=True)]
    groups = slow_width_groups(confidence)
    assert metrics.ece(logits, labels) == pytest.approx(slow_calibration_error(confidence, correct, groups))

    order = sorted(range(len(y)), key=lambda i: -confidence[i])
    masses = np.array_split(order, 15)
    assert metrics.adaptive_ece(logits, labels) == pytest.approx(slow_calibration_error(confidence, correct, masses))

    per_class = []
    for k in range(7):
        hits = [float(label == k) for label in y]
        per_class.append(slow_calibration_error(p[:, k], hits, slow_width_groups(p[:, k])))
    assert metrics.classwise_ece(logits, labels) == pytest.approx(sum(per_class) / 7)

    risks = [sum(1 - correct[i] for i in order[:n]) / n for n in range(1, len(y) + 1)]
    assert metrics.aurc(logits, labels) == pytest.approx(sum(risks) / len(risks))


def test_reliability_table_counts_every_example_once():
    logits, labels = sample()
    table = metrics.reliability(logits, labels)
    assert len(table.edges) == 16
    assert int(table.count.sum()) == 300
    groups = slow_width_groups(logits.double().softmax(1).amax(1).tolist())
    assert table.count.tolist() == [len(group) for group in groups]
    assert np.array_equal(np.isnan(table.confidence), table.count == 0)
    filled = table.count > 0
    assert ((table.confidence > table.edges[:-1]) & (table.confidence <= table.edges[1:]))[filled].all()
    hits = (table.accuracy * table.count)[filled].sum()
    assert float(hits) == pytest.approx(float((logits.argmax(1) == labels).sum()))


def test_one_bin_compares_the_means():
    logits, labels = sample()
    confidence, correct = metrics.confidence_and_correct(logits, labels)
    assert metrics.ece(logits, labels, bins=1) == pytest.approx(abs(confidence.mean() - correct.mean()))
    assert metrics._bin_of(np.array([-1e-9, 0.0, 1.0, 1 + 1e-9]), metrics._edges(2)).tolist() == [0, 0, 1, 1]


def test_the_temperature_is_found_in_a_few_steps(monkeypatch):
    steps, slope = [], metrics._slope
    monkeypatch.setattr(metrics, "_slope", lambda *given: steps.append(given) or slope(*given))
    for scale in (0.3, 2.0, 20.0):
        steps.clear()
        fit_temperature(*sample(scale=scale))
        assert len(steps) <= 12, scale  # bisection alone takes some forty


def test_reliability_bins_are_closed_on_the_right():
    # A confidence of exactly 0.5 belongs to (0, 0.5] with two bins.
    table = metrics.reliability(torch.zeros(3, 2), torch.tensor([0, 0, 1]), bins=2)
    assert table.count.tolist() == [3, 0]
    assert table.accuracy[0].item() == pytest.approx(2 / 3)


def test_lowest_index_wins_a_tie_everywhere():
    logits, labels = torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])
    assert metrics.top_k_accuracy(logits, labels, 1) == 0.5
    assert metrics.top_k_accuracy(logits, labels, 2) == 0.75
    assert metrics.confusion_matrix(logits, labels).tolist() == [[2, 0, 0], [1, 0, 0], [1, 0, 0]]


def test_ties_in_confidence_do_not_depend_on_the_order_of_the_examples():
    logits = torch.tensor([[1.0, 0.0]] * 40 + [[3.0, 0.0]] * 7)
    labels = torch.tensor([0, 1] * 20 + [0] * 5 + [1] * 2)
    order = torch.randperm(47, generator=torch.Generator().manual_seed(1))
    for function in (metrics.aurc, metrics.adaptive_ece, metrics.ece):
        assert function(logits, labels) == pytest.approx(function(logits[order], labels[order]))


def test_aurc_with_ties_is_the_mean_over_random_orders():
    correct = [1, 0, 0]  # one confidence for all
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    areas = [sum(sum(1 - correct[i] for i in order[:n]) / n for n in (1, 2, 3)) / 3 for order in orders]
    assert metrics.aurc(torch.tensor([[1.0, 0.0]] * 3), torch.tensor([0, 1, 1])) == pytest.approx(sum(areas) / 6)


def test_a_risk_coverage_curve_by_hand() -> None:
    # Sorted by confidence: wrong, then two that tie with one error between them, then right.
    curve = risk_coverage([0.5, 0.5, 0.9, 0.1], [True, False, False, True])
    np.testing.assert_allclose(curve.risk, [1, 1.5 / 2, 2 / 3, 2 / 4])
    assert curve.coverage.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert curve.threshold.tolist() == [0.9, 0.5, 0.5, 0.1]
    assert curve.area == pytest.approx(np.mean([1, 0.75, 2 / 3, 0.5]))
    assert curve.risk_at(0.5) == 0.75
    assert curve.risk_at(0.51) == pytest.approx(2 / 3)
    assert curve.risk_at(1.0) == 0.5


def test_bad_arguments_of_the_risk_coverage_curve() -> None:
    with pytest.raises(ValueError, match=r"confidence has shape \(2,\) and correct \(1,\)"):
        risk_coverage([0.1, 0.2], [True])
    with pytest.raises(ValueError, match=r"both must be \(N,\), N ≥ 1"):
        risk_coverage([], [])
    with pytest.raises(ValueError, match="confidence holds NaN"):
        risk_coverage([np.nan], [True])
    with pytest.raises(ValueError, match="coverage is 0; it must be above 0"):
        risk_coverage([0.5], [True]).risk_at(0)


def test_a_class_without_labels_is_left_out_but_its_predictions_cost():
    logits = torch.tensor([[5.0, 0.0, 0.0], [0.0, 5.0, 0.0], [0.0, 0.0, 5.0]])
    labels = torch.tensor([0, 0, 2])
    assert metrics.balanced_accuracy(logits, labels) == pytest.approx(0.75)
    assert metrics.worst_class_accuracy(logits, labels) == 0.5
    expected = sk.f1_score(labels, logits.argmax(1), average="macro")
    assert metrics.macro_f1(logits, labels) == pytest.approx(expected)
    assert metrics.macro_f1(logits[:, [0, 1, 2, 2]] - torch.tensor([0, 0, 0, 9.0]), labels) == pytest.approx(expected)


def test_one_example():
    result = evaluate(torch.tensor([[0.75, 0.25]]).log(), torch.tensor([0]), temperature=1.0)
    assert result["top1"] == result["balanced_accuracy"] == result["macro_f1"] == result["worst_class"] == 1.0
    assert result["nll"] == pytest.approx(-math.log(0.75))
    assert result["brier"] == pytest.approx(0.125)
    for name in ("ece", "ace", "cece", "ece_scaled", "ace_scaled"):
        assert result[name] == pytest.approx(0.25)
    assert result["aurc"] == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_extreme_logits_stay_finite(dtype):
    logits = torch.tensor([[1e4, -1e4, 0], [-1e4, 1e4, 0], [3e38, 0, -3e38]], dtype=dtype)
    labels = torch.tensor([0, 0, 2])
    result = evaluate(logits, labels, temperature=fit_temperature(logits, labels))
    assert all(math.isfinite(value) for value in result.values())
    assert result["ece"] == pytest.approx(2 / 3)


def test_log_probabilities_and_logits_give_the_same():
    logits, labels = sample()
    shifted = logits.double() + torch.linspace(-50, 50, 300, dtype=torch.float64)[:, None]
    for name, value in evaluate(shifted.log_softmax(1), labels, 1.7).items():
        if name.endswith("_scaled"):
            continue
        assert value == pytest.approx(evaluate(logits.double(), labels)[name] if name != "temperature" else 1.7), name


def test_a_certain_and_wrong_prediction_costs_infinitely():
    log_probabilities = torch.tensor([[0.0, -math.inf], [0.0, -math.inf]])
    labels = torch.tensor([0, 1])
    assert metrics.nll(log_probabilities, labels) == math.inf
    assert metrics.brier(log_probabilities, labels) == 1.0
    assert fit_temperature(log_probabilities, labels) == metrics.TEMPERATURE_RANGE[1]


@given(
    scale=st.floats(0.05, 40),
    classes=st.integers(2, 12),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=40, deadline=None)
def test_temperature_agrees_with_scipy(scale, classes, seed):
    logits, labels = sample(examples=80, classes=classes, seed=seed)
    logits = logits.double() * scale
    fitted = fit_temperature(logits, labels)
    low, high = (math.log(bound) for bound in metrics.TEMPERATURE_RANGE)
    found = minimize_scalar(
        lambda u: metrics.nll(logits / math.exp(u), labels),
        bounds=(low, high),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert metrics.nll(logits / fitted, labels) <= found.fun + 1e-9
    if low + 0.01 < found.x < high - 0.01:
        assert math.log(fitted) == pytest.approx(found.x, abs=1e-3)


def test_temperature_undoes_a_known_one():
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(20_000, 5, generator=generator).double() * 2
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    assert fit_temperature(logits * 3, labels) == pytest.approx(3 * fit_temperature(logits, labels), rel=1e-6)
    assert fit_temperature(logits * 3, labels) == pytest.approx(3, rel=0.05)
    assert metrics.ece(logits, labels) < 0.02 < metrics.ece(logits * 3, labels)


def test_temperature_ends_at_a_bound_or_at_one_when_nothing_is_to_be_found():
    logits = torch.tensor([[3.0, 0.0], [0.0, 3.0]])
    assert fit_temperature(logits, torch.tensor([0, 1])) == metrics.TEMPERATURE_RANGE[0]
    assert fit_temperature(logits, torch.tensor([1, 0])) == metrics.TEMPERATURE_RANGE[1]
    assert fit_temperature(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])) == 1.0


def test_evaluate_has_the_agreed_names():
    plain = ["top1", "balanced_accuracy", "macro_f1", "worst_class", "nll", "brier", "ece", "ace", "cece", "aurc"]
    scaled = ["temperature", "nll_scaled", "brier_scaled", "ece_scaled", "ace_scaled"]
    five, six = sample(classes=5), sample(classes=6)
    assert list(evaluate(*five)) == plain
    assert list(evaluate(*six)) == ["top1", "top5", *plain[1:]]
    assert list(evaluate(*five, temperature=2.0)) == plain + scaled
    assert all(type(value) is float for value in evaluate(*six, temperature=2.0).values())
    assert evaluate(*six, temperature=1.0)["ece_scaled"] == evaluate(*six)["ece"]
    assert evaluate(*six, temperature=2.0)["nll_scaled"] == pytest.approx(metrics.nll(six[0] / 2, six[1]))


def test_arguments_are_left_alone():
    logits, labels = sample()
    logits.requires_grad_()
    before = logits.detach().clone(), labels.clone()
    evaluate(logits, labels.to(torch.int32), temperature=1.5)
    assert torch.equal(logits.detach(), before[0])
    assert torch.equal(labels, before[1])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_bad_arguments_are_named(function):
    logits, labels = sample(examples=4, classes=3)
    with pytest.raises(ValueError, match=r"logits has shape \(4, 3, 1\); it must be \(N, K\)"):
        function(logits[..., None], labels)
    with pytest.raises(ValueError, match=r"logits has shape \(0, 3\)"):
        function(logits[:0], labels[:0])
    with pytest.raises(ValueError, match=r"labels has shape \(3,\) .* for each of the 4 rows"):
        function(logits, labels[:3])
    with pytest.raises(ValueError, match=r"labels has shape \(4,\) and type float32"):
        function(logits, labels.float())
    with pytest.raises(ValueError, match="labels holds 3; with 3 classes it must be between 0 and 2"):
        function(logits, torch.tensor([0, 1, 2, 3]))
    with pytest.raises(ValueError, match="labels holds -1"):
        function(logits, torch.tensor([0, 1, 2, -1]))
    with pytest.raises(ValueError, match="no probabilities in row 2: it holds NaN"):
        function(logits.index_fill(0, torch.tensor([2]), math.nan), labels)


def test_bad_options_are_named():
    logits, labels = sample(examples=4, classes=3)
    with pytest.raises(ValueError, match="k is 4; it must be between 1 and the number of classes, 3"):
        metrics.top_k_accuracy(logits, labels, k=4)
    for function in (metrics.ece, metrics.adaptive_ece, metrics.classwise_ece):
        with pytest.raises(ValueError, match="bins is 0; it must be at least 1"):
            function(logits, labels, bins=0)
    for temperature in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"temperature is .*; it must be a positive, finite number"):
            evaluate(logits, labels, temperature=temperature)


def test_lists_arrays_and_tensors_give_the_same():
    logits, labels = sample(examples=40)
    expected = evaluate(logits, labels, temperature=1.5)
    assert evaluate(logits.numpy(), labels.numpy(), temperature=1.5) == expected
    assert evaluate(logits.tolist(), labels.tolist(), temperature=1.5) == pytest.approx(expected)
    assert evaluate(logits.numpy(), labels.to(torch.uint8), temperature=1.5) == expected


def test_rows_in_several_parts_give_the_same_figures(monkeypatch):
    """What is computed of some rows at a time is that of all at once, but for the order of some sums."""
    draw = np.random.default_rng(0)
    logits, labels = draw.normal(size=(500, 20)).astype(np.float32), draw.integers(0, 20, 500)
    whole = metrics.evaluate(logits, labels, metrics.fit_temperature(logits, labels))
    monkeypatch.setattr("adaptive_labels.metrics.rows._AT_ONCE", 20 * 33)
    parts = metrics.evaluate(logits, labels, metrics.fit_temperature(logits, labels))
    assert {name for name in whole if whole[name] != parts[name]} <= {"cece"}
    assert parts["cece"] == pytest.approx(whole["cece"], rel=1e-12)

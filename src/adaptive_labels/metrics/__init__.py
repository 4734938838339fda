"""Metrics of predictions: accuracy, likelihood, calibration and selective risk, as pure functions.

Shapes: N examples, K classes, B bins. Every function takes ``logits`` (N, K), which may be log-probabilities, and
integer ``labels`` (N,) in 0 … K−1, as arrays, lists or torch tensors. p is the softmax of a row, ŷ its argmax (the
lowest index of equal ones), c = max p the confidence, and C the confusion matrix.

Everything is computed in float64 on the CPU, some rows at a time; arguments are not changed. Means over classes leave
out classes without labels. Logits that would give NaN are refused.
"""

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adaptive_labels.metrics.rows import Array, CheckedLogits, at_labels, softmax

Logits: TypeAlias = "ArrayLike | CheckedLogits"

BINS = 15  # of every calibration error
TEMPERATURE_RANGE = (0.1, 100.0)  # of `fit_temperature`
_LOWEST_LOG_PROBABILITY = -1e30  # instead of log 0, because 0 · log 0 is NaN; its square is still finite


@dataclass(frozen=True, eq=False)
class ReliabilityTable:
    """A reliability diagram as numbers: bin b has the confidences in (edges[b], edges[b+1]]; empty bins hold NaN."""

    edges: Array  # (B+1,)
    confidence: Array  # (B,) mean confidence
    accuracy: Array  # (B,)
    count: NDArray[np.int64]  # (B,)

    @property
    def ece(self) -> float:
        """The expected calibration error, Σ_b n_b/N |accuracy_b − confidence_b|."""
        filled = self.count > 0
        gaps = np.abs(self.accuracy - self.confidence)[filled]
        return float(gaps @ self.count[filled] / self.count.sum())


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The error rate of the most confident predictions, by how many are kept."""

    coverage: Array  # (N,) share of the examples kept, 1/N … 1
    risk: Array  # (N,) share of them that are wrong
    threshold: Array  # (N,) the least confidence among them
    area: float  # the mean risk over all N coverages, which is `aurc`

    def risk_at(self, coverage: float) -> float:
        """The risk when at least this share of the examples is kept."""
        if not 0 < coverage <= 1:
            raise ValueError(f"coverage is {coverage}; it must be above 0 and at most 1.")
        return float(self.risk[np.searchsorted(self.coverage, coverage - 1e-12)])


def top_k_accuracy(logits: Logits, labels: ArrayLike, k: int = 1) -> float:
    """Share of examples whose label is among the k classes with the largest logits; of equal ones the lower index wins.

    >>> logits = [[2.0, 1.0, 0.0], [2.0, 1.0, 0.0]]
    >>> top_k_accuracy(logits, [0, 1]), top_k_accuracy(logits, [0, 1], k=2)
    (0.5, 1.0)
    """
    checked = _checked(logits, labels)
    size = checked.scores.shape[1]
    if not 1 <= k <= size:
        raise ValueError(f"k is {k}; it must be between 1 and the number of classes, {size}")
    return float((checked.ranks < k).mean())


def confusion_matrix(logits: Logits, labels: ArrayLike) -> NDArray[np.int64]:
    """(K, K) how often each class (row) was predicted as each class (column): C_ij = #{n : y_n = i, ŷ_n = j}.

    >>> confusion_matrix([[2.0, 1.0], [2.0, 1.0], [0.0, 1.0]], [0, 1, 1]).tolist()
    [[1, 0], [1, 1]]
    """
    checked = _checked(logits, labels)
    size = checked.scores.shape[1]
    return np.bincount(checked.labels * size + checked.predicted, minlength=size**2).reshape(size, size)


def balanced_accuracy(logits: Logits, labels: ArrayLike) -> float:
    """Mean of the accuracies of the classes, mean_i C_ii / Σ_j C_ij.

    >>> balanced_accuracy([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0], [0.0, 1.0]], [0, 0, 1, 1])
    0.75
    """
    return float(_class_accuracies(logits, labels).mean())


def worst_class_accuracy(logits: Logits, labels: ArrayLike) -> float:
    """Lowest accuracy of a class, min_i C_ii / Σ_j C_ij.

    >>> worst_class_accuracy([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0], [0.0, 1.0]], [0, 0, 1, 1])
    0.5
    """
    return float(_class_accuracies(logits, labels).min())


def macro_f1(logits: Logits, labels: ArrayLike) -> float:
    """Mean F1 score, mean_i 2 C_ii / (Σ_j C_ij + Σ_j C_ji), of the classes that occur among labels or predictions.

    >>> round(macro_f1([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0], [0.0, 1.0]], [0, 0, 1, 1]), 4)
    0.7333
    """
    counts = confusion_matrix(logits, labels)
    occurrences = counts.sum(axis=0) + counts.sum(axis=1)
    seen = occurrences > 0
    return float((2 * counts.diagonal()[seen] / occurrences[seen]).mean())


def nll(logits: Logits, labels: ArrayLike) -> float:
    """Mean negative log-likelihood of the labels in nats, −mean_n log p_ny.

    >>> round(nll(np.log([[0.8, 0.2], [0.5, 0.5]]), [0, 1]), 4)
    0.4581
    """
    return float(_checked(logits, labels).losses.mean())


def brier(logits: Logits, labels: ArrayLike) -> float:
    """Brier score mean_n Σ_k (p_nk − [k = y_n])², from 0 (perfect) to 2.

    >>> round(brier(np.log([[0.8, 0.2], [0.5, 0.5]]), [0, 1]), 4)
    0.29
    """
    return float(_checked(logits, labels).confidence_and_brier[:, 1].mean())


def reliability(logits: Logits, labels: ArrayLike, bins: int = BINS) -> ReliabilityTable:
    """Mean confidence and accuracy in B ``bins`` of equal width: bin b has the examples with b/B < c_n ≤ (b+1)/B.

    >>> table = reliability(np.log([[0.8, 0.2], [0.7, 0.3]]), [0, 1], bins=2)
    >>> table.edges.tolist(), table.count.tolist(), round(float(table.confidence[1]), 4), float(table.accuracy[1])
    ([0.0, 0.5, 1.0], [0, 2], 0.75, 0.5)
    """
    confidence, correct = confidence_and_correct(logits, labels)
    edges = _edges(bins)
    bin_of = _bin_of(confidence, edges)
    count = np.bincount(bin_of, minlength=bins)
    sums = [np.bincount(bin_of, weights=values, minlength=bins) for values in (confidence, correct)]
    with np.errstate(invalid="ignore"):
        return ReliabilityTable(edges, sums[0] / count, sums[1] / count, count)


def ece(logits: Logits, labels: ArrayLike, bins: int = BINS) -> float:
    """Expected calibration error Σ_b n_b/N |accuracy_b − confidence_b| with B ``bins`` of equal width.

    >>> round(ece(np.log([[0.8, 0.2], [0.7, 0.3]]), [0, 1]), 4)
    0.45
    """
    return reliability(logits, labels, bins).ece


def adaptive_ece(logits: Logits, labels: ArrayLike, bins: int = BINS) -> float:
    """Expected calibration error with B ``bins`` of equal mass: examples sorted by confidence, then cut into B parts.

    The sizes of the parts differ by at most one; with fewer examples than bins, every example is a part. Examples of
    equal confidence share their mean accuracy, so that their order does not matter.

    >>> round(adaptive_ece(np.log([[0.8, 0.2], [0.7, 0.3]]), [0, 1], bins=2), 4)
    0.45
    """
    _edges(bins)  # refuses less than one bin
    confidence, correct = confidence_and_correct(logits, labels)
    confidence, shared = _by_falling_confidence(confidence, correct.astype(np.float64))
    return float(sum(abs(part.sum()) for part in np.array_split(shared - confidence, bins)) / len(shared))


def classwise_ece(logits: Logits, labels: ArrayLike, bins: int = BINS) -> float:
    """Calibration error of the probability of every class, with bins of equal width, averaged over all K classes.

    1/K Σ_k Σ_b n_bk/N |share of label k in bin b − mean p_k in bin b|.

    >>> round(classwise_ece(np.log([[0.8, 0.2], [0.7, 0.3]]), [0, 1]), 4)
    0.45
    """
    checked, edges = _checked(logits, labels), _edges(bins)
    size = checked.scores.shape[1]
    gaps = np.zeros(size * bins)  # (K · B,) how often a label occurs, less how often it was expected
    for scores, part_labels in checked.parts():
        probabilities = softmax(scores)
        cells = _bin_of(probabilities, edges) + bins * np.arange(size)
        gaps -= np.bincount(cells.ravel(), weights=probabilities.ravel(), minlength=len(gaps))
        gaps += np.bincount(at_labels(cells, part_labels), minlength=len(gaps))
    return float(np.abs(gaps).sum()) / checked.scores.size


def confidence_and_correct(logits: Logits, labels: ArrayLike) -> tuple[Array, NDArray[np.bool_]]:
    """(N,) the largest probability of each row, and (N,) whether that class is the label.

    >>> confidence, correct = confidence_and_correct(np.log([[0.8, 0.2], [0.3, 0.7]]), [0, 0])
    >>> confidence.round(6).tolist(), correct.tolist()
    ([0.8, 0.7], [True, False])
    """
    checked = _checked(logits, labels)
    return checked.confidence_and_brier[:, 0], checked.predicted == checked.labels


def risk_coverage(confidence: ArrayLike, correct: ArrayLike) -> RiskCoverage:
    """The risk–coverage curve: at coverage i / N the risk is (errors among the i most confident) / i.

    Examples of equal confidence share their mean error, which is what a random order of them gives on average.

    Args:
        confidence: (N,) how sure each prediction is, usually its largest probability.
        correct: (N,) whether it is right.

    >>> curve = risk_coverage([0.9, 0.6, 0.8, 0.7], [True, False, True, True])
    >>> curve.coverage.tolist(), curve.risk.tolist(), curve.area
    ([0.25, 0.5, 0.75, 1.0], [0.0, 0.0, 0.0, 0.25], 0.0625)
    """
    sure, right = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if sure.ndim != 1 or sure.shape != right.shape or not sure.size:
        raise ValueError(f"confidence has shape {sure.shape} and correct {right.shape}; both must be (N,), N ≥ 1.")
    if not np.isfinite(sure).all():
        raise ValueError("confidence holds NaN or infinity.")
    threshold, shared = _by_falling_confidence(sure, right)
    kept = np.arange(1, len(sure) + 1)
    risk = (1 - shared).cumsum() / kept
    return RiskCoverage(kept / len(sure), risk, threshold, float(risk.mean()))


def aurc(logits: Logits, labels: ArrayLike) -> float:
    """Area under the risk–coverage curve: the mean error rate of the most confident 1, 2, …, N examples.

    >>> aurc(np.log([[0.8, 0.2], [0.7, 0.3]]), [0, 1])
    0.25
    """
    return risk_coverage(*confidence_and_correct(logits, labels)).area


def fit_temperature(logits: Logits, labels: ArrayLike) -> float:
    """The temperature T that minimises −mean_n log softmax(z_n / T)_y; fit it on validation, never on test.

    With β = 1/T the NLL is convex, its slope f(β) = mean_n (E_p[z_n] − z_ny) rises, and f'(β) = mean_n Var_p[z_n]. The
    zero of f is found by Newton's method in log β inside a bracket. T is in `TEMPERATURE_RANGE`: at its lower end if
    all predictions are right, at its upper end if they are worse than chance, and 1 if every T is equally good.

    >>> logits = [[8.0, 0.0], [8.0, 0.0], [8.0, 0.0], [8.0, 0.0]]
    >>> round(fit_temperature(logits, [0, 0, 0, 1]), 4)  # 8 / T = log 3
    7.2819
    """
    checked = _checked(logits, labels)
    low, high = -math.log(TEMPERATURE_RANGE[1]), -math.log(TEMPERATURE_RANGE[0])  # of log β
    hottest, coldest = _slope(checked, low)[0], _slope(checked, high)[0]
    if hottest == coldest == 0:
        return 1.0
    if coldest <= 0:
        return TEMPERATURE_RANGE[0]
    if hottest >= 0:
        return TEMPERATURE_RANGE[1]
    position, before = 0.0, high - low  # and the length of the step before
    for _ in range(200):
        slope, curvature = _slope(checked, position)
        if slope == 0:
            break
        low, high = (position, high) if slope < 0 else (low, position)
        newton = position - slope / curvature if curvature > 0 else math.inf
        # Newton's steps shrink fast near the zero. One that does not halve the step before gives way to a bisection.
        fast = low < newton < high and abs(newton - position) <= before / 2
        following = newton if fast else (low + high) / 2
        position, before = following, abs(following - position)
        if before < 1e-9:  # after a step of Newton's the error is about its square
            break
    return math.exp(-position)


def evaluate(logits: Logits, labels: ArrayLike, temperature: float | None = None) -> dict[str, float]:
    """Every metric of a set of predictions by its short name, as fractions (NLL in nats).

    Returns:
        `top1`, `top5` (with more than five classes), `balanced_accuracy`, `macro_f1`, `worst_class`, `nll`, `brier`,
        `ece`, `ace` (equal-mass bins), `cece` (class-wise), `aurc`; with a temperature also `temperature`, and
        `nll_scaled`, `brier_scaled`, `ece_scaled`, `ace_scaled` of logits / temperature.

    >>> result = evaluate(np.log([[0.8, 0.2], [0.7, 0.3]]), [0, 1], temperature=2.0)
    >>> {name: round(value, 3) for name, value in result.items() if name.startswith(("top", "nll"))}
    {'top1': 0.5, 'nll': 0.714, 'nll_scaled': 0.666}
    """
    checked = _checked(logits, labels)  # so that what the metrics share is computed once
    metrics = {"top1": float((checked.predicted == checked.labels).mean())}
    if checked.scores.shape[1] > 5:
        metrics["top5"] = top_k_accuracy(checked, labels, k=5)
    accuracies = {"balanced_accuracy": balanced_accuracy, "macro_f1": macro_f1, "worst_class": worst_class_accuracy}
    scaled_too = {"nll": nll, "brier": brier, "ece": ece, "ace": adaptive_ece}
    for name, metric in (accuracies | scaled_too | {"cece": classwise_ece, "aurc": aurc}).items():
        metrics[name] = metric(checked, labels)
    if temperature is not None:
        if not (temperature > 0 and math.isfinite(temperature)):
            raise ValueError(f"temperature is {temperature}; it must be a positive, finite number")
        scaled = CheckedLogits(checked.scores, checked.labels, temperature)
        metrics["temperature"] = float(temperature)
        metrics |= {f"{name}_scaled": metric(scaled, labels) for name, metric in scaled_too.items()}
    return metrics


def _checked(logits: Logits, labels: ArrayLike) -> CheckedLogits:
    return logits if isinstance(logits, CheckedLogits) else CheckedLogits(logits, labels)


def _class_accuracies(logits: Logits, labels: ArrayLike) -> Array:
    counts = confusion_matrix(logits, labels)
    total = counts.sum(axis=1)
    return np.asarray(counts.diagonal()[total > 0] / total[total > 0])


def _by_falling_confidence(confidence: Array, correct: Array) -> tuple[Array, Array]:
    """Confidence and correctness, most confident first; equal confidences share their mean correctness."""
    levels, level_of, count = np.unique(confidence, return_inverse=True, return_counts=True)  # levels rise
    shared = np.bincount(level_of, weights=correct, minlength=len(levels)) / count
    return np.repeat(levels, count)[::-1], np.repeat(shared, count)[::-1]


def _edges(bins: int) -> Array:
    if bins < 1:
        raise ValueError(f"bins is {bins}; it must be at least 1")
    return np.linspace(0, 1, bins + 1)


def _bin_of(values: Array, edges: Array) -> NDArray[np.intp]:
    """The bin (edges[b], edges[b+1]] of each value; 0 itself, and what rounding puts above 1, stay inside."""
    return np.clip(np.searchsorted(edges, values) - 1, 0, len(edges) - 2)


def _slope(checked: CheckedLogits, log_beta: float) -> tuple[float, float]:
    """f(β) = mean (E_p[z] − z_y) at β = e^log_beta, and its derivative by log β."""
    beta = math.exp(log_beta)

    def of_rows(scores: Array, labels: NDArray[np.int64]) -> Array:
        # Differences from the row's largest first: E[z] − z_y would round to 0 long before it is.
        gaps = np.maximum(scores - scores.max(1, keepdims=True), _LOWEST_LOG_PROBABILITY)
        weights = gaps * beta
        np.exp(weights, out=weights)
        total = weights.sum(axis=1)
        weights *= gaps
        mean = weights.sum(axis=1) / total
        variance = np.einsum("nk,nk->n", weights, gaps) / total - mean**2
        return np.stack([mean - at_labels(gaps, labels), variance])

    slopes, variances = np.concatenate([of_rows(*part) for part in checked.parts()], axis=1)
    return float(slopes.mean()), beta * float(variances.mean())

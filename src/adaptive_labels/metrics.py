"""How good a set of predictions is: accuracy, likelihood, calibration and selective risk, as pure functions.

Shapes: N examples, K classes, B bins. Every function takes ``logits`` (N, K), logits or log-probabilities alike, and
integer ``labels`` (N,) in 0 … K−1, as arrays, lists or torch tensors. p is the softmax of a row, ŷ its argmax (of equal
ones, the lowest index), c = max p the confidence.

All works in float64 on the processor, leaves its arguments alone and returns plain floats. Classes that no label names
are left out of the means over classes. NaN never comes back as a number: logits that give one are refused.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Logits: TypeAlias = "ArrayLike | _Predictions"

BINS = 15
"""Number of bins of every calibration error here."""

TEMPERATURE_RANGE = (0.1, 100.0)
"""Between these `fit_temperature` looks; predictions that are all right, or worse than chance, end at a bound."""

# Stands in for log 0 where 0 · log 0 would be NaN; squares of it are still finite.
_LOWEST_LOG_PROBABILITY = -1e30


@dataclass(frozen=True, eq=False)
class ReliabilityTable:
    """A reliability diagram as numbers: bin b covers the confidences in (edges[b], edges[b+1]]; empty bins hold NaN."""

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
    """The error rate of the most confident predictions, by how many are kept.

    Attributes:
        coverage: (N,) share of the examples kept, 1/N … 1.
        risk: (N,) share of them that are wrong.
        threshold: (N,) the least confidence among them.
        area: the mean risk over all N coverages, which is `aurc`.
    """

    coverage: Array
    risk: Array
    threshold: Array
    area: float

    def risk_at(self, coverage: float) -> float:
        """The risk of the least number of examples that is at least this share of all."""
        if not 0 < coverage <= 1:
            raise ValueError(f"coverage is {coverage}; it must be above 0 and at most 1.")
        return float(self.risk[np.searchsorted(self.coverage, coverage - 1e-12)])


def top_k_accuracy(logits: Logits, labels: ArrayLike, k: int = 1) -> float:
    """Return the share of examples whose label is among the k classes with the largest logits.

    Formula: mean_n [ #{j : z_nj > z_ny, or z_nj = z_ny and j < y} < k ].

    >>> logits = [[2.0, 1.0, 0.0], [2.0, 1.0, 0.0]]
    >>> top_k_accuracy(logits, [0, 1]), top_k_accuracy(logits, [0, 1], k=2)
    (0.5, 1.0)
    """
    found = _checked(logits, labels)
    size = found.scores.shape[1]
    if not 1 <= k <= size:
        raise ValueError(f"k is {k}; it must be between 1 and the number of classes, {size}")
    return float((found.rank < k).mean())


def confusion_matrix(logits: Logits, labels: ArrayLike) -> NDArray[np.int64]:
    """Return how often each class (row) was predicted as each class (column), (K, K).

    Formula: C_ij = #{n : y_n = i, ŷ_n = j}.

    >>> confusion_matrix([[2.0, 1.0], [2.0, 1.0], [0.0, 1.0]], [0, 1, 1]).tolist()
    [[1, 0], [1, 1]]
    """
    return _checked(logits, labels).confusions


def balanced_accuracy(logits: Logits, labels: ArrayLike) -> float:
    """Return the mean of the classes' accuracies, each class counting the same.

    Formula: mean_i C_ii / Σ_j C_ij over the classes i that have labels.

    >>> balanced_accuracy([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0], [0.0, 1.0]], [0, 0, 1, 1])
    0.75
    """
    return float(_checked(logits, labels).class_accuracies.mean())


def worst_class_accuracy(logits: Logits, labels: ArrayLike) -> float:
    """Return the accuracy of the class that does worst.

    Formula: min_i C_ii / Σ_j C_ij over the classes i that have labels.

    >>> worst_class_accuracy([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0], [0.0, 1.0]], [0, 0, 1, 1])
    0.5
    """
    return float(_checked(logits, labels).class_accuracies.min())


def macro_f1(logits: Logits, labels: ArrayLike) -> float:
    """Return the mean of the classes' F1 scores, over the classes that occur among labels or predictions.

    Formula: mean_i 2 C_ii / (Σ_j C_ij + Σ_j C_ji).

    >>> round(macro_f1([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0], [0.0, 1.0]], [0, 0, 1, 1]), 4)
    0.7333
    """
    counts = confusion_matrix(logits, labels)
    occurrences = counts.sum(axis=0) + counts.sum(axis=1)
    seen = occurrences > 0
    return float((2 * counts.diagonal()[seen] / occurrences[seen]).mean())


def nll(logits: Logits, labels: ArrayLike) -> float:
    """Return the mean negative log-likelihood of the labels, in nats.

    Formula: −mean_n log p_ny.

    >>> round(nll(np.log([[0.8, 0.2], [0.5, 0.5]]), [0, 1]), 4)
    0.4581
    """
    found = _checked(logits, labels)
    gaps = found.scores - found.scores.max(axis=1, keepdims=True)
    own = found.own(gaps)
    return float((np.log(np.exp(gaps, out=gaps).sum(axis=1)) - own).mean())


def brier(logits: Logits, labels: ArrayLike) -> float:
    """Return the Brier score summed over the classes: 0 is perfect, 2 is the worst.

    Formula: mean_n Σ_k (p_nk − [k = y_n])².

    >>> round(brier(np.log([[0.8, 0.2], [0.5, 0.5]]), [0, 1]), 4)
    0.29
    """
    found = _checked(logits, labels)
    squares = np.einsum("nk,nk->n", found.probabilities, found.probabilities)
    return float((squares + 1 - 2 * found.own(found.probabilities)).mean())


def reliability(logits: Logits, labels: ArrayLike, bins: int = BINS) -> ReliabilityTable:
    """Return mean confidence and accuracy in B ``bins`` of equal width.

    Formula: bin b holds the examples with b/B < c_n ≤ (b+1)/B.

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
    """Return the expected calibration error with B ``bins`` of equal width.

    Formula: Σ_b n_b/N |accuracy_b − confidence_b|.

    >>> round(ece(np.log([[0.8, 0.2], [0.7, 0.3]]), [0, 1]), 4)
    0.45
    """
    return reliability(logits, labels, bins).ece


def adaptive_ece(logits: Logits, labels: ArrayLike, bins: int = BINS) -> float:
    """Return the expected calibration error with B ``bins`` of equal mass.

    The examples are sorted by confidence and cut into B runs whose sizes differ by at most one; with fewer examples
    than bins every example is a bin. Examples of equal confidence share their mean accuracy, so that their order does
    not matter.

    Formula: Σ_b n_b/N |accuracy_b − confidence_b|.

    >>> round(adaptive_ece(np.log([[0.8, 0.2], [0.7, 0.3]]), [0, 1], bins=2), 4)
    0.45
    """
    _edges(bins)
    confidence, correct = confidence_and_correct(logits, labels)
    confidence, shared = _by_falling_confidence(confidence, correct.astype(np.float64))
    return float(sum(abs(run.sum()) for run in np.array_split(shared - confidence, bins)) / len(shared))


def classwise_ece(logits: Logits, labels: ArrayLike, bins: int = BINS) -> float:
    """Return the calibration error of every class's probability, averaged over all K classes.

    Formula: 1/K Σ_k Σ_b n_bk/N |share of label k in bin b − mean p_k in bin b|, bins of equal width over each p_k.

    >>> round(classwise_ece(np.log([[0.8, 0.2], [0.7, 0.3]]), [0, 1]), 4)
    0.45
    """
    found, edges, error = _checked(logits, labels), _edges(bins), 0.0
    for k, column in enumerate(np.ascontiguousarray(found.probabilities.T)):
        bin_of = _bin_of(column, edges)
        observed = np.bincount(bin_of[found.labels == k], minlength=bins)
        error += float(np.abs(observed - np.bincount(bin_of, weights=column, minlength=bins)).sum())
    return error / found.scores.size


def confidence_and_correct(logits: Logits, labels: ArrayLike) -> tuple[Array, NDArray[np.bool_]]:
    """Return (N,) the largest probability of each row, and (N,) whether that class is the label.

    >>> confidence, correct = confidence_and_correct(np.log([[0.8, 0.2], [0.3, 0.7]]), [0, 0])
    >>> confidence.round(6).tolist(), correct.tolist()
    ([0.8, 0.7], [True, False])
    """
    found = _checked(logits, labels)
    return found.probabilities.max(axis=1), found.correct


def risk_coverage(confidence: ArrayLike, correct: ArrayLike) -> RiskCoverage:
    """Return the risk–coverage curve: risk_i = (errors among the i most confident) / i at coverage i / N.

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
    """Return the area under the risk–coverage curve: the mean error rate of the most confident 1, 2, …, N examples.

    Formula: 1/N Σ_i (errors among the i most confident) / i.

    >>> aurc(np.log([[0.8, 0.2], [0.7, 0.3]]), [0, 1])
    0.25
    """
    return risk_coverage(*confidence_and_correct(logits, labels)).area


def fit_temperature(logits: Logits, labels: ArrayLike) -> float:
    """Return the temperature T that makes softmax(logits / T) most likely; fit it on validation, never on test.

    With β = 1/T the NLL is convex, its slope f(β) = mean_n (E_p[z_n] − z_ny) rises, and f'(β) = mean_n Var_p[z_n]; the
    zero of f is found by Newton's method in log β, held in a bracket that is halved whenever Newton would leave it.
    The result lies in `TEMPERATURE_RANGE`, and is 1 where every T is as good as another.

    Formula: argmin_T −mean_n log softmax(z_n / T)_y.

    >>> logits = [[8.0, 0.0], [8.0, 0.0], [8.0, 0.0], [8.0, 0.0]]
    >>> round(fit_temperature(logits, [0, 0, 0, 1]), 4)  # 8 / T = log 3
    7.2819
    """
    found = _checked(logits, labels)
    # Differences from the row's largest first: E[z] − z_y would round to 0 long before it is.
    gaps = np.maximum(found.scores - found.scores.max(1, keepdims=True), _LOWEST_LOG_PROBABILITY)
    own = found.own(gaps)

    low, high = -math.log(TEMPERATURE_RANGE[1]), -math.log(TEMPERATURE_RANGE[0])  # of log β
    hottest, coldest = _slope(gaps, own, low)[0], _slope(gaps, own, high)[0]
    if hottest == coldest == 0:
        return 1.0
    if coldest <= 0:
        return TEMPERATURE_RANGE[0]
    if hottest >= 0:
        return TEMPERATURE_RANGE[1]
    position = 0.0
    for step in range(200):
        slope, curvature = _slope(gaps, own, position)
        if slope == 0:
            break
        low, high = (position, high) if slope < 0 else (low, position)
        newton = position - slope / curvature if curvature > 0 else math.inf
        # Every third step halves the bracket, so that slow progress from one side ends too.
        following = newton if low < newton < high and step % 3 != 2 else (low + high) / 2
        if abs(following - position) < 1e-12:
            break
        position = following
    return math.exp(-position)


def evaluate(logits: Logits, labels: ArrayLike, temperature: float | None = None) -> dict[str, float]:
    """Return every metric of a set of predictions by its short name, as fractions (NLL in nats).

    Args:
        logits: (N, K) logits or log-probabilities.
        labels: (N,) integer labels.
        temperature: when given, `nll`, `brier`, `ece` and `ace` are also computed for logits / temperature and stand
            beside the others as `nll_scaled` and so on.

    Returns:
        `top1`, `top5` (with more than five classes), `balanced_accuracy`, `macro_f1`, `worst_class`, `nll`, `brier`,
        `ece`, `ace` (equal-mass bins), `cece` (class-wise), `aurc`, and with a temperature also `temperature`,
        `nll_scaled`, `brier_scaled`, `ece_scaled`, `ace_scaled`.

    >>> result = evaluate(np.log([[0.8, 0.2], [0.7, 0.3]]), [0, 1], temperature=2.0)
    >>> {name: round(value, 3) for name, value in result.items() if name.startswith(("top", "nll"))}
    {'top1': 0.5, 'nll': 0.714, 'nll_scaled': 0.666}
    """
    found = _checked(logits, labels)  # so that what the metrics share is computed once
    metrics = {"top1": top_k_accuracy(found, labels)}
    if found.scores.shape[1] > 5:
        metrics["top5"] = top_k_accuracy(found, labels, k=5)
    metrics |= {
        "balanced_accuracy": balanced_accuracy(found, labels),
        "macro_f1": macro_f1(found, labels),
        "worst_class": worst_class_accuracy(found, labels),
    }
    functions = {"nll": nll, "brier": brier, "ece": ece, "ace": adaptive_ece}
    metrics |= {name: function(found, labels) for name, function in functions.items()}
    metrics |= {"cece": classwise_ece(found, labels), "aurc": aurc(found, labels)}
    if temperature is not None:
        if not (temperature > 0 and math.isfinite(temperature)):
            raise ValueError(f"temperature is {temperature}; it must be a positive, finite number")
        scaled = _checked(found.scores / temperature, found.labels)
        metrics["temperature"] = float(temperature)
        metrics |= {f"{name}_scaled": function(scaled, labels) for name, function in functions.items()}
    return metrics


class _Predictions:
    """Checked logits and labels, and what several metrics share of them, computed once."""

    def __init__(self, logits: ArrayLike, labels: ArrayLike) -> None:
        scores, classes = _array(logits), _array(labels)
        if scores.ndim != 2 or 0 in scores.shape:
            raise ValueError(f"logits has shape {scores.shape}; it must be (N, K), with an example and a class")
        if classes.shape != scores.shape[:1] or classes.dtype.kind not in "iu":
            raise ValueError(
                f"labels has shape {classes.shape} and type {classes.dtype}; "
                f"it must hold an integer for each of the {len(scores)} rows of logits"
            )
        size, low, high = scores.shape[1], int(classes.min()), int(classes.max())
        if low < 0 or high >= size:
            wrong = low if low < 0 else high
            raise ValueError(f"labels holds {wrong}; with {size} classes it must be between 0 and {size - 1}")
        largest = scores.max(axis=1)
        if not np.isfinite(largest).all():
            row = int(np.flatnonzero(~np.isfinite(largest))[0])
            raise ValueError(f"logits gives no probabilities in row {row}: it holds NaN, +inf or nothing but -inf")
        self.scores: Array = scores.astype(np.float64, copy=False)
        self.labels: NDArray[np.int64] = classes.astype(np.int64, copy=False)

    @cached_property
    def rank(self) -> NDArray[np.int64]:
        """(N,) how many classes are ahead of the label."""
        own = self.own(self.scores)[:, None]
        wins_tie = np.arange(self.scores.shape[1]) < self.labels[:, None]  # (N, K)
        return np.asarray(((self.scores > own) | ((self.scores == own) & wins_tie)).sum(axis=1))

    @cached_property
    def correct(self) -> NDArray[np.bool_]:
        return np.asarray(self.scores.argmax(axis=1) == self.labels)

    @cached_property
    def probabilities(self) -> Array:
        weights = self.scores - self.scores.max(axis=1, keepdims=True)
        np.exp(weights, out=weights)
        weights /= weights.sum(axis=1, keepdims=True)
        return np.asarray(weights)

    @cached_property
    def confusions(self) -> NDArray[np.int64]:
        size = self.scores.shape[1]
        cells = self.labels * size + self.scores.argmax(axis=1)
        return np.bincount(cells, minlength=size**2).reshape(size, size)

    @cached_property
    def class_accuracies(self) -> Array:
        """The accuracy of each class that has labels."""
        total = self.confusions.sum(axis=1)
        return np.asarray(self.confusions.diagonal()[total > 0] / total[total > 0])

    def own(self, values: Array) -> Array:
        """(N,) of (N, K) values the label's."""
        return np.asarray(values[np.arange(len(values)), self.labels])


def _checked(logits: Logits, labels: ArrayLike) -> _Predictions:
    return logits if isinstance(logits, _Predictions) else _Predictions(logits, labels)


def _array(values: Any) -> NDArray[Any]:
    """An array of anything; of a torch tensor without its graph, and bfloat16, which numpy lacks, as float32."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if str(values.dtype) == "torch.bfloat16" else values
    return np.asarray(values)


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


def _slope(gaps: Array, own: Array, log_beta: float) -> tuple[float, float]:
    """f(β) = mean (E_p[z] − z_y) at β = e^log_beta, and its derivative by log β."""
    beta = math.exp(log_beta)
    weights = gaps * beta
    np.exp(weights, out=weights)
    total = weights.sum(axis=1)
    weights *= gaps
    mean = weights.sum(axis=1) / total
    variance = np.einsum("nk,nk->n", weights, gaps) / total - mean**2
    return float((mean - own).mean()), beta * float(variance.mean())

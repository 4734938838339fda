"""How good a set of predictions is: accuracy, likelihood, calibration and selective risk, as pure functions.

Shapes: N examples, K classes, B bins; `logits` (N, K), `labels` (N,) with values in 0 … K−1.

Every function takes logits or log-probabilities alike (the softmax of log-probabilities gives them back), works in
float64 on the processor, leaves its arguments alone and returns plain floats. p is the softmax of a row, ŷ its argmax
(the lowest index wins a tie), c = max p the confidence. Classes that no label names are left out of the means over
classes. NaN never comes back as a number: logits that give one are refused.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

BINS = 15
"""Number of bins of every calibration error here."""

TEMPERATURE_RANGE = (0.1, 100.0)
"""Between these `fit_temperature` looks; predictions that are all right, or worse than chance, end at a bound."""

# Stands in for log 0 where 0 · log 0 would be NaN; squares of it are still finite.
_LOWEST_LOG_PROBABILITY = -1e30


@dataclass(frozen=True, eq=False)
class ReliabilityTable:
    """A reliability diagram as numbers: bin b covers the confidences in (edges[b], edges[b+1]]; empty bins hold NaN."""

    edges: Tensor  # (B+1,) float64
    confidence: Tensor  # (B,) float64, mean confidence
    accuracy: Tensor  # (B,) float64
    count: Tensor  # (B,) int64


def top_k_accuracy(logits: Tensor, labels: Tensor, k: int = 1) -> float:
    """Return the share of examples whose label is among the k classes with the largest logits.

    Formula: mean_n [ #{j : z_nj > z_ny, or z_nj = z_ny and j < y} < k ].

    Args:
        logits: (N, K) logits or log-probabilities.
        labels: (N,) integer labels.
        k: how many classes count, from 1 to K.

    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [2.0, 1.0, 0.0]])
    >>> top_k_accuracy(logits, torch.tensor([0, 1])), top_k_accuracy(logits, torch.tensor([0, 1]), k=2)
    (0.5, 1.0)
    """
    scores, labels = _log_probabilities(logits, labels)
    classes = scores.shape[1]
    if not 1 <= k <= classes:
        raise ValueError(f"k is {k}; it must be between 1 and the number of classes, {classes}")
    # The raw logits decide: the softmax may round two of them together.
    scores = logits.detach().to("cpu")
    own = scores.gather(1, labels[:, None])  # (N, 1)
    wins_tie = torch.arange(classes) < labels[:, None]  # (N, K)
    ahead = (scores > own) | ((scores == own) & wins_tie)
    return float((ahead.sum(1) < k).double().mean())


def confusion_matrix(logits: Tensor, labels: Tensor) -> Tensor:
    """Return how often each class (row) was predicted as each class (column), (K, K) int64.

    Formula: C_ij = #{n : y_n = i, ŷ_n = j}.

    Args:
        logits: (N, K) logits or log-probabilities.
        labels: (N,) integer labels.

    >>> confusion_matrix(torch.tensor([[2.0, 1.0], [2.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 1, 1])).tolist()
    [[1, 0], [1, 1]]
    """
    scores, labels = _log_probabilities(logits, labels)
    classes = scores.shape[1]
    predicted = logits.detach().to("cpu").argmax(1)
    return torch.bincount(labels * classes + predicted, minlength=classes**2).view(classes, classes)


def balanced_accuracy(logits: Tensor, labels: Tensor) -> float:
    """Return the mean of the classes' accuracies, each class counting the same.

    Formula: mean_i C_ii / Σ_j C_ij over the classes i that have labels.

    Args:
        logits: (N, K) logits or log-probabilities.
        labels: (N,) integer labels.

    >>> logits = torch.tensor([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0], [0.0, 1.0]])
    >>> balanced_accuracy(logits, torch.tensor([0, 0, 1, 1]))
    0.75
    """
    return float(_class_accuracies(logits, labels).mean())


def worst_class_accuracy(logits: Tensor, labels: Tensor) -> float:
    """Return the accuracy of the class that does worst.

    Formula: min_i C_ii / Σ_j C_ij over the classes i that have labels.

    Args:
        logits: (N, K) logits or log-probabilities.
        labels: (N,) integer labels.

    >>> logits = torch.tensor([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0], [0.0, 1.0]])
    >>> worst_class_accuracy(logits, torch.tensor([0, 0, 1, 1]))
    0.5
    """
    return float(_class_accuracies(logits, labels).min())


def macro_f1(logits: Tensor, labels: Tensor) -> float:
    """Return the mean of the classes' F1 scores, over the classes that occur among labels or predictions.

    Formula: mean_i 2 C_ii / (Σ_j C_ij + Σ_j C_ji).

    Args:
        logits: (N, K) logits or log-probabilities.
        labels: (N,) integer labels.

    >>> logits = torch.tensor([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0], [0.0, 1.0]])
    >>> round(macro_f1(logits, torch.tensor([0, 0, 1, 1])), 4)
    0.7333
    """
    counts = confusion_matrix(logits, labels).double()
    occurrences = counts.sum(0) + counts.sum(1)
    seen = occurrences > 0
    return float((2 * counts.diagonal()[seen] / occurrences[seen]).mean())


def nll(logits: Tensor, labels: Tensor) -> float:
    """Return the mean negative log-likelihood of the labels, in nats.

    Formula: −mean_n log p_ny.

    Args:
        logits: (N, K) logits or log-probabilities.
        labels: (N,) integer labels.

    >>> round(nll(torch.tensor([[0.8, 0.2], [0.5, 0.5]]).log(), torch.tensor([0, 1])), 4)
    0.4581
    """
    log_probabilities, labels = _log_probabilities(logits, labels)
    return float(-log_probabilities.gather(1, labels[:, None]).mean())


def brier(logits: Tensor, labels: Tensor) -> float:
    """Return the Brier score summed over the classes: 0 is perfect, 2 is the worst.

    Formula: mean_n Σ_k (p_nk − [k = y_n])².

    Args:
        logits: (N, K) logits or log-probabilities.
        labels: (N,) integer labels.

    >>> round(brier(torch.tensor([[0.8, 0.2], [0.5, 0.5]]).log(), torch.tensor([0, 1])), 4)
    0.29
    """
    probabilities, labels = _probabilities(logits, labels)
    target = torch.zeros_like(probabilities).scatter_(1, labels[:, None], 1.0)
    return float((probabilities - target).square().sum(1).mean())


def reliability(logits: Tensor, labels: Tensor, bins: int = BINS) -> ReliabilityTable:
    """Return mean confidence and accuracy in bins of equal width.

    Formula: bin b holds the examples with b/B < c_n ≤ (b+1)/B.

    Args:
        logits: (N, K) logits or log-probabilities.
        labels: (N,) integer labels.
        bins: the number of bins B.

    >>> table = reliability(torch.tensor([[0.8, 0.2], [0.7, 0.3]]).log(), torch.tensor([0, 1]), bins=2)
    >>> table.edges.tolist(), table.count.tolist(), round(table.confidence[1].item(), 4), table.accuracy[1].item()
    ([0.0, 0.5, 1.0], [0, 2], 0.75, 0.5)
    """
    confidence, correct = _confidence_and_correct(logits, labels)
    edges = _edges(bins)
    bin_of = _bin_of(confidence, edges)
    count = torch.bincount(bin_of, minlength=bins)
    return ReliabilityTable(
        edges=edges,
        confidence=torch.bincount(bin_of, weights=confidence, minlength=bins) / count,
        accuracy=torch.bincount(bin_of, weights=correct, minlength=bins) / count,
        count=count,
    )


def ece(logits: Tensor, labels: Tensor, bins: int = BINS) -> float:
    """Return the expected calibration error with bins of equal width.

    Formula: Σ_b n_b/N |accuracy_b − confidence_b|.

    Args:
        logits: (N, K) logits or log-probabilities.
        labels: (N,) integer labels.
        bins: the number of bins B.

    >>> round(ece(torch.tensor([[0.8, 0.2], [0.7, 0.3]]).log(), torch.tensor([0, 1])), 4)
    0.45
    """
    table = reliability(logits, labels, bins)
    gaps = (table.accuracy - table.confidence).abs() * table.count
    return float(gaps[table.count > 0].sum() / table.count.sum())


def adaptive_ece(logits: Tensor, labels: Tensor, bins: int = BINS) -> float:
    """Return the expected calibration error with bins of equal mass.

    The examples are sorted by confidence and cut into B runs whose sizes differ by at most one. Examples of equal
    confidence share their mean accuracy, so that their order does not matter.

    Formula: Σ_b n_b/N |accuracy_b − confidence_b|.

    Args:
        logits: (N, K) logits or log-probabilities.
        labels: (N,) integer labels.
        bins: the number of bins B; with fewer examples than bins every example is a bin.

    >>> round(adaptive_ece(torch.tensor([[0.8, 0.2], [0.7, 0.3]]).log(), torch.tensor([0, 1]), bins=2), 4)
    0.45
    """
    _edges(bins)
    confidence, correct = _by_falling_confidence(logits, labels)
    gaps = correct - confidence
    error = sum(float(run.sum().abs()) for run in gaps.tensor_split(bins))
    return error / len(gaps)


def classwise_ece(logits: Tensor, labels: Tensor, bins: int = BINS) -> float:
    """Return the calibration error of every class's probability, averaged over all K classes.

    Formula: 1/K Σ_k Σ_b n_bk/N |share of label k in bin b − mean p_k in bin b|, bins of equal width over each p_k.

    Args:
        logits: (N, K) logits or log-probabilities.
        labels: (N,) integer labels.
        bins: the number of bins B.

    >>> round(classwise_ece(torch.tensor([[0.8, 0.2], [0.7, 0.3]]).log(), torch.tensor([0, 1])), 4)
    0.45
    """
    probabilities, labels = _probabilities(logits, labels)
    examples, classes = probabilities.shape
    cell = _bin_of(probabilities, _edges(bins)) + bins * torch.arange(classes)  # (N, K), into K·B cells
    cells = classes * bins
    predicted = torch.bincount(cell.view(-1), weights=probabilities.reshape(-1), minlength=cells)
    observed = torch.bincount(cell.gather(1, labels[:, None]).view(-1), minlength=cells)
    return float((observed - predicted).abs().sum() / (examples * classes))


def aurc(logits: Tensor, labels: Tensor) -> float:
    """Return the area under the risk–coverage curve: the mean error rate of the most confident 1, 2, …, N examples.

    Confidence is the largest probability. Examples of equal confidence share their mean error, which is the expected
    area over a random order of them.

    Formula: 1/N Σ_i (errors among the i most confident) / i.

    Args:
        logits: (N, K) logits or log-probabilities.
        labels: (N,) integer labels.

    >>> aurc(torch.tensor([[0.8, 0.2], [0.7, 0.3]]).log(), torch.tensor([0, 1]))
    0.25
    """
    _, correct = _by_falling_confidence(logits, labels)
    covered = torch.arange(1, len(correct) + 1, dtype=torch.float64)
    return float(((1 - correct).cumsum(0) / covered).mean())


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the temperature T that makes softmax(logits / T) most likely; fit it on validation, never on test.

    With β = 1/T the NLL is convex, its slope f(β) = mean_n (E_p[z_n] − z_ny) rises, and f'(β) = mean_n Var_p[z_n]; the
    zero of f is found by Newton's method in log β, held in a bracket that is halved whenever Newton would leave it.
    The result lies in `TEMPERATURE_RANGE`, and is 1 where every T is as good as another.

    Formula: argmin_T −mean_n log softmax(z_n / T)_y.

    Args:
        logits: (N, K) logits or log-probabilities.
        labels: (N,) integer labels.

    >>> logits = torch.tensor([[8.0, 0.0], [8.0, 0.0], [8.0, 0.0], [8.0, 0.0]])
    >>> round(fit_temperature(logits, torch.tensor([0, 0, 0, 1])), 4)  # 8 / T = log 3
    7.2819
    """
    scores, labels = _log_probabilities(logits, labels)
    scores = scores.clamp(min=_LOWEST_LOG_PROBABILITY)
    own = scores.gather(1, labels[:, None])

    low, high = -math.log(TEMPERATURE_RANGE[1]), -math.log(TEMPERATURE_RANGE[0])  # of log β
    hottest, coldest = _slope(scores, own, low)[0], _slope(scores, own, high)[0]
    if hottest == coldest == 0:
        return 1.0
    if coldest <= 0:
        return TEMPERATURE_RANGE[0]
    if hottest >= 0:
        return TEMPERATURE_RANGE[1]
    position = 0.0
    for step in range(200):
        slope, curvature = _slope(scores, own, position)
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


def evaluate(logits: Tensor, labels: Tensor, temperature: float | None = None) -> dict[str, float]:
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

    >>> result = evaluate(torch.tensor([[0.8, 0.2], [0.7, 0.3]]).log(), torch.tensor([0, 1]), temperature=2.0)
    >>> {name: round(value, 3) for name, value in result.items() if name.startswith(("top", "nll"))}
    {'top1': 0.5, 'nll': 0.714, 'nll_scaled': 0.666}
    """
    metrics = {"top1": top_k_accuracy(logits, labels)}
    if logits.shape[1] > 5:
        metrics["top5"] = top_k_accuracy(logits, labels, k=5)
    metrics |= {
        "balanced_accuracy": balanced_accuracy(logits, labels),
        "macro_f1": macro_f1(logits, labels),
        "worst_class": worst_class_accuracy(logits, labels),
        "nll": nll(logits, labels),
        "brier": brier(logits, labels),
        "ece": ece(logits, labels),
        "ace": adaptive_ece(logits, labels),
        "cece": classwise_ece(logits, labels),
        "aurc": aurc(logits, labels),
    }
    if temperature is not None:
        if not (temperature > 0 and math.isfinite(temperature)):
            raise ValueError(f"temperature is {temperature}; it must be a positive, finite number")
        scaled = logits.detach().to("cpu", torch.float64) / temperature
        metrics |= {
            "temperature": float(temperature),
            "nll_scaled": nll(scaled, labels),
            "brier_scaled": brier(scaled, labels),
            "ece_scaled": ece(scaled, labels),
            "ace_scaled": adaptive_ece(scaled, labels),
        }
    return metrics


def _log_probabilities(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Check the arguments; return float64 log-probabilities (N, K) and int64 labels (N,), both on the processor."""
    if logits.ndim != 2 or logits.shape[0] == 0 or logits.shape[1] == 0:
        raise ValueError(f"logits has shape {tuple(logits.shape)}; it must be (N, K), with an example and a class")
    if labels.shape != logits.shape[:1] or labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(
            f"labels has shape {tuple(labels.shape)} and type {labels.dtype}; "
            f"it must hold an integer for each of the {logits.shape[0]} rows of logits"
        )
    labels = labels.detach().to("cpu", torch.int64)
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= logits.shape[1]:
        raise ValueError(
            f"labels holds {low if low < 0 else high}; with {logits.shape[1]} classes it must be between 0 and "
            f"{logits.shape[1] - 1}"
        )
    log_probabilities = logits.detach().to("cpu", torch.float64).log_softmax(1)
    if log_probabilities.isnan().any():
        row = int(log_probabilities.isnan().any(1).nonzero()[0])
        raise ValueError(f"logits gives no probabilities in row {row}: it holds NaN, +inf or nothing but -inf")
    return log_probabilities, labels


def _probabilities(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    log_probabilities, labels = _log_probabilities(logits, labels)
    return log_probabilities.exp(), labels


def _confidence_and_correct(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return each example's largest probability, and 1.0 where the prediction is right; both (N,) float64."""
    probabilities, labels = _probabilities(logits, labels)
    predicted = logits.detach().to("cpu").argmax(1)
    return probabilities.amax(1), (predicted == labels).double()


def _by_falling_confidence(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return confidence and correctness, most confident first; equal confidences share their mean correctness."""
    confidence, correct = _confidence_and_correct(logits, labels)
    levels, level_of, count = torch.unique(confidence, return_inverse=True, return_counts=True)  # levels rise
    shared = torch.bincount(level_of, weights=correct, minlength=len(levels)) / count
    return levels.repeat_interleave(count).flip(0), shared.repeat_interleave(count).flip(0)


def _class_accuracies(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the accuracy of each class that has labels."""
    counts = confusion_matrix(logits, labels).double()
    total = counts.sum(1)
    return counts.diagonal()[total > 0] / total[total > 0]


def _edges(bins: int) -> Tensor:
    if bins < 1:
        raise ValueError(f"bins is {bins}; it must be at least 1")
    return torch.linspace(0, 1, bins + 1, dtype=torch.float64)


def _bin_of(values: Tensor, edges: Tensor) -> Tensor:
    """Return the bin (edges[b], edges[b+1]] of each value; 0 itself, and what rounding puts above 1, stay inside."""
    return (torch.bucketize(values, edges) - 1).clamp(0, len(edges) - 2)


def _slope(scores: Tensor, own: Tensor, log_beta: float) -> tuple[float, float]:
    """Return f(β) = mean (E_p[z] − z_y) at β = e^log_beta, and its derivative by log β."""
    beta = math.exp(log_beta)
    weights = (scores * beta).softmax(1)
    # Differences from the own score first: E[z] − z_y would round to 0 long before it is.
    gaps = scores - own
    mean = (weights * gaps).sum(1, keepdim=True)
    variance = (weights * (gaps - mean).square()).sum(1)
    return float(mean.mean()), beta * float(variance.mean())

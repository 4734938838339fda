"""Which classes are taken for which: by the residual labels, and by the test split.

Shapes: K classes. Row k of a matrix is the true class k. The residual label of a pair is the share of class k's other
probability that goes to j, as training left it; the test rate is the share of k's test examples predicted as j.
"""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.cluster import hierarchy

from adaptive_labels.runs import RunError, RunFolder

FORMATS = ("text", "json", "csv")
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Confusions:
    """Both views of a few runs' confusions, means over the runs.

    Attributes:
        classes: K names.
        residual: (K, K) residual labels at the last stored epoch, or None if no run has any.
        counts: (K, K) test examples of the row's class predicted as the column's, or None without predictions.
        residual_runs: how many runs ``residual`` is the mean of.
        test_runs: how many runs ``counts`` is the mean of.
    """

    classes: tuple[str, ...]
    residual: Matrix | None
    counts: Matrix | None
    residual_runs: int = 0
    test_runs: int = 0

    @property
    def rates(self) -> Matrix | None:
        """(K, K) test counts as shares of the row's examples; rows of classes without examples are 0."""
        return None if self.counts is None else _shares(self.counts)


@dataclass(frozen=True)
class Pair:
    """``true`` is taken for ``taken_for``; the reverse is another pair."""

    true: str
    taken_for: str
    residual: float | None
    rate: float | None
    count: float | None


def read_confusions(runs: Sequence[RunFolder]) -> Confusions:
    """Average residual labels and test confusion matrices over ``runs``, usually the seeds of one method.

    The matrices are dense: (K, K) float64, which 1,000 classes fit in 8 MB.
    """
    classes: tuple[str, ...] | None = None
    residuals, counts = [], []
    for run in runs:
        labels, predictions = run.load_residual_labels(), run.load_predictions()
        if labels is not None and len(labels.epochs):
            residuals.append(labels.matrix().astype(np.float64))
            classes = _same(classes, labels.classes, run)
        if predictions is not None:
            size = predictions.test_logits.shape[1]
            predicted = predictions.test_logits.argmax(axis=1)
            counts.append(confusion_matrix(predictions.test_labels, predicted, size))
            classes = _same(classes, predictions.classes, run)
    sizes = {len(matrix) for matrix in [*residuals, *counts]}
    if not sizes:
        where = str(runs[0].path) if len(runs) == 1 else f"any of the {len(runs)} runs"
        raise RunError(f"There is neither a residual_labels.npz nor a predictions.npz in {where}.")
    if len(sizes) > 1:
        raise RunError(f"The runs have {_sizes(sizes)} classes; give runs of one data set.")
    return Confusions(
        classes or tuple(str(i) for i in range(sizes.pop())),
        np.mean(residuals, axis=0) if residuals else None,
        np.mean(counts, axis=0) if counts else None,
        len(residuals),
        len(counts),
    )


def confusion_matrix(labels: ArrayLike, predicted: ArrayLike, size: int) -> Matrix:
    """Count (K, K): examples of class i (row) predicted as j (column).

    >>> confusion_matrix([0, 0, 1], [0, 1, 1], 2).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    cells = np.asarray(labels, dtype=np.int64) * size + np.asarray(predicted, dtype=np.int64)
    return np.bincount(cells, minlength=size * size).reshape(size, size).astype(np.float64)


def top_pairs(confusions: Confusions, top: int = 10, by: str | None = None) -> list[Pair]:
    """The pairs with most confusion, largest first, pairs with none left out.

    ``by`` is ``"residual"`` (the default where there are residual labels) or ``"test"`` (the test rate).
    """
    ranking = _ranking(confusions, by).copy()
    np.fill_diagonal(ranking, 0.0)
    rates, size = confusions.rates, len(confusions.classes)
    order = np.argsort(-ranking, axis=None, kind="stable")[:top]
    pairs = []
    for i, j in (divmod(int(cell), size) for cell in order):
        if ranking[i, j] > 0:
            pairs.append(
                Pair(
                    confusions.classes[i],
                    confusions.classes[j],
                    None if confusions.residual is None else float(confusions.residual[i, j]),
                    None if rates is None else float(rates[i, j]),
                    None if confusions.counts is None else float(confusions.counts[i, j]),
                )
            )
    return pairs


def agreement(confusions: Confusions) -> float | None:
    """Spearman's rank correlation of residual labels and test errors over the off-diagonal pairs.

    Both are distributions over the wrong classes, row by row: the errors of a class are divided by their number, and
    classes without a test error are left out. None where one of the two is missing or does not vary.
    """
    if confusions.residual is None or confusions.counts is None:
        return None
    off_diagonal = ~np.eye(len(confusions.classes), dtype=bool)
    errors = np.where(off_diagonal, confusions.counts, 0.0)
    wrong = errors.sum(axis=1) > 0
    chosen = off_diagonal & wrong[:, None]
    first, second = confusions.residual[chosen], _shares(errors)[chosen]
    if first.size < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(stats.spearmanr(first, second).statistic)


def mutual_groups(confusions: Confusions, threshold: float | None = None, by: str | None = None) -> list[list[str]]:
    """Sets of classes in which every two are confused with each other, largest first.

    Two classes are when each is taken for the other with at least ``threshold``: unless given, 0.1 or twice the uniform
    residual label 2 / (K − 1), whichever is larger, and 0.05 for test rates. Complete linkage, so that a chain of
    neighbours does not become one set.
    """
    ranking = _ranking(confusions, by)
    size = len(confusions.classes)
    if size < 3:
        return []
    uses_residual = ranking is confusions.residual
    least = threshold if threshold is not None else (max(0.1, 2 / (size - 1)) if uses_residual else 0.05)
    apart = 1.0 - np.minimum(ranking, ranking.T)
    linkage = hierarchy.linkage(apart[np.triu_indices(size, 1)], method="complete")
    member_of = hierarchy.fcluster(linkage, t=1.0 - least + 1e-9, criterion="distance")
    sets = [[confusions.classes[i] for i in np.flatnonzero(member_of == c)] for c in np.unique(member_of)]
    return sorted((members for members in sets if len(members) > 1), key=lambda members: (-len(members), members))


def cluster_order(matrix: Matrix) -> list[int]:
    """An order of the classes in which confused ones are neighbours (average linkage, leaves ordered optimally)."""
    size = len(matrix)
    if size < 3:
        return list(range(size))
    similar = (matrix + matrix.T) / 2
    distance = similar.max() - similar
    condensed = distance[np.triu_indices(size, 1)]
    linkage = hierarchy.linkage(condensed, method="average", optimal_ordering=True)
    return [int(leaf) for leaf in hierarchy.leaves_list(linkage)]


def most_confused(matrix: Matrix, n: int) -> list[int]:
    """The n classes that take part in the strongest confusions, in their own order."""
    off_diagonal = matrix.copy()
    np.fill_diagonal(off_diagonal, 0.0)
    strength = np.maximum(off_diagonal.max(axis=0), off_diagonal.max(axis=1))
    return sorted(int(i) for i in np.argsort(-strength, kind="stable")[:n])


def format_confusions(confusions: Confusions, top: int = 10, format: str = "text", by: str | None = None) -> str:
    """The most confused pairs, the agreement of the two views, and the mutual groups, as text, JSON or CSV (pairs)."""
    if format not in FORMATS:
        raise ValueError(f"format is {format!r}; it must be one of {', '.join(FORMATS)}.")
    pairs = top_pairs(confusions, top, by)
    if format == "json":
        data: dict[str, Any] = {
            "pairs": [vars(pair) for pair in pairs],
            "agreement": agreement(confusions),
            "groups": mutual_groups(confusions, by=by),
            "residual_runs": confusions.residual_runs,
            "test_runs": confusions.test_runs,
        }
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    if format == "csv":
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["class", "taken_for", "residual_label", "test_rate", "test_count"])
        writer.writerows([pair.true, pair.taken_for, pair.residual, pair.rate, pair.count] for pair in pairs)
        return file.getvalue()
    return _text(confusions, pairs, by)


def agreement_sentence(confusions: Confusions) -> str | None:
    """The agreement in words, or None where it is not known."""
    rho = agreement(confusions)
    if rho is None:
        return None
    text = f"{rho:.2f}".replace("-", "−")
    return (
        f"Residual labels and test errors rank the pairs with a Spearman correlation of {text} (1 is the same order)."
    )


def groups_sentence(confusions: Confusions, by: str | None = None, most: int = 8) -> str | None:
    """The largest mutual groups in one sentence, or None where there is none."""
    groups = mutual_groups(confusions, by=by)
    if not groups:
        return None
    more = f"; and {len(groups) - most} more" if len(groups) > most else ""
    return f"Confused with each other: {'; '.join(', '.join(members) for members in groups[:most])}{more}."


def _text(confusions: Confusions, pairs: Sequence[Pair], by: str | None) -> str:
    if not pairs:
        return "No class is taken for another.\n"
    columns = [
        ["class", *(pair.true for pair in pairs)],
        ["taken for", *(pair.taken_for for pair in pairs)],
    ]
    if confusions.residual is not None:
        columns.append(["residual label", *(f"{pair.residual:.3f}" for pair in pairs)])
    if confusions.counts is not None:
        columns.append(["test rate", *(f"{100 * (pair.rate or 0):.1f}%" for pair in pairs)])
        columns.append(["test examples", *(f"{pair.count:.1f}".removesuffix(".0") for pair in pairs)])
    widths = [max(len(cell) for cell in column) for column in columns]
    lines = []
    for cells in zip(*columns, strict=True):
        aligned = [
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        lines.append("  ".join(aligned).rstrip())
    runs = max(confusions.residual_runs, confusions.test_runs)
    lines.append(f"Mean over {runs} runs; last stored epoch." if runs > 1 else "One run; last stored epoch.")
    sentence = agreement_sentence(confusions)
    lines += [sentence] if sentence else []
    groups = groups_sentence(confusions, by=by)
    lines += [groups] if groups else []
    return "\n".join(lines) + "\n"


def _ranking(confusions: Confusions, by: str | None) -> Matrix:
    if by not in (None, "residual", "test"):
        raise ValueError(f"by is {by!r}; it must be residual or test.")
    if by != "test" and confusions.residual is not None:
        return confusions.residual
    if by != "residual" and confusions.rates is not None:
        return confusions.rates
    raise RunError(f"These runs have no {'residual labels' if by == 'residual' else 'test predictions'}.")


def _shares(matrix: Matrix) -> Matrix:
    totals = matrix.sum(axis=1, keepdims=True)
    shares: Matrix = np.divide(matrix, totals, out=np.zeros_like(matrix), where=totals > 0)
    return shares


def _same(known: tuple[str, ...] | None, names: tuple[str, ...] | None, run: RunFolder) -> tuple[str, ...] | None:
    if known is not None and names is not None and known != names:
        raise RunError(f"{run.path} has other classes than the runs before it; give runs of one data set.")
    return known or names


def _sizes(sizes: set[int]) -> str:
    return " and ".join(str(size) for size in sorted(sizes))

"""Which classes are taken for which, by the residual labels and by the test split, as frames.

Shapes: K classes. Row k of a matrix is the true class k. The residual label of a pair (k, j) is the learned share of j
in the probability that k gives to other classes; the test rate is the share of k's test examples predicted as j.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from adaptive_labels.errors import UserError
from adaptive_labels.lab.analysis.confusion_matrix import (
    Matrix,
    asymmetric_pairs,
    confused_groups,
    row_shares,
    without_diagonal,
)
from adaptive_labels.lab.analysis.format import percent
from adaptive_labels.lab.analysis.residual_labels import Agreement, agreement, largest_differences, row_entropy
from adaptive_labels.lab.analysis.statistics import SIGNIFICANCE
from adaptive_labels.lab.runs import Predictions, RunError, RunFolder
from adaptive_labels.lab.words import plural
from adaptive_labels.metrics import confusion_matrix

NEARLY_EVEN, FLAT = 0.98, 0.9999  # shares of the largest entropy that residual labels can have


@dataclass(frozen=True)
class Confusions:
    """Both views of the confusions of some runs, means over the runs; a view is None if no run has it."""

    classes: tuple[str, ...]
    residual: Matrix | None  # (K, K) residual labels at the last stored epoch
    counts: Matrix | None  # (K, K) test examples of the row's class predicted as the column's
    residual_runs: int = 0  # how many runs ``residual`` is the mean of
    test_runs: int = 0  # how many runs ``counts`` is the mean of

    @cached_property
    def rates(self) -> Matrix | None:
        """(K, K) test counts as shares of the row's examples; rows of classes without examples are 0."""
        return None if self.counts is None else row_shares(self.counts)

    @cached_property
    def evenness(self) -> float:
        """How even the residual labels are: their mean entropy as a share of the largest possible; 1 of two classes."""
        if self.residual is None or len(self.classes) == 2:
            return 1.0
        return float(row_entropy(self.residual, normalised=True).mean())

    @cached_property
    def agreement(self) -> Agreement | None:
        """How well residual labels and test errors agree; None where one of the two is missing."""
        if self.residual is None or self.counts is None:
            return None
        return agreement(self.residual, self.counts)

    @property
    def little_learned(self) -> str:
        """Why there is little to read from the residual labels, in a sentence; empty where there is more."""
        if self.residual is None or self.evenness < NEARLY_EVEN:
            return ""
        if len(self.classes) == 2:
            return "With two classes a residual label has one entry: there is nothing to learn, and ALR is its L_hard."
        return (
            f"The residual labels are still nearly even (entropy {percent(self.evenness)}% of the largest possible): "
            "there is little to read from them yet. Longer training, or a larger residual_lr, would move them."
        )

    @property
    def averaged(self) -> str:
        """How many runs the means are of, in words."""
        if self.residual_runs and self.test_runs and self.residual_runs != self.test_runs:
            residual, test = plural(self.residual_runs, "run"), plural(self.test_runs, "run")
            return f"mean over {residual} of the residual labels, over {test} of the test figures"
        return f"mean over {plural(max(self.residual_runs, self.test_runs), 'run')}"

    def ranking(self, by: str | None = None) -> Matrix:
        """(K, K) residual labels or test rates, as ``by`` says; without it, residual labels that are not flat."""
        if by not in (None, "residual", "test"):
            raise UserError(f"by is {by!r}; it must be residual or test.")
        if by is None and self.evenness >= FLAT and self.rates is not None:
            return self.rates
        if by != "test" and self.residual is not None:
            return self.residual
        if by != "residual" and self.rates is not None:
            return self.rates
        raise RunError(f"These runs have no {'residual labels' if by == 'residual' else 'test predictions'}.")


def read_confusions(runs: Sequence[RunFolder]) -> Confusions:
    """Average residual labels and test confusion matrices over ``runs``, usually the seeds of one method.

    The matrices are dense: (K, K) float64, which is 8 MB for 1,000 classes.
    """
    names, residuals, counts = set(), [], []
    for run in runs:
        labels, predictions = run.load_residual_labels(), run.load_predictions()
        if labels is not None and len(labels.epochs):
            residuals.append(labels.matrix().astype(np.float64))
        if predictions is not None:
            counts.append(count_confusions(run, predictions))
        names |= {stored.classes for stored in (labels, predictions) if stored is not None}
    if not residuals and not counts:
        where = str(runs[0].path) if len(runs) == 1 else f"any of the {len(runs)} runs"
        raise RunError(f"There is neither a residual_labels.npz nor a predictions.npz in {where}.")
    if len(names) > 1:
        raise RunError("The runs have different classes; give runs of one data set.")
    return Confusions(
        names.pop(),
        np.mean(residuals, axis=0) if residuals else None,
        np.mean(counts, axis=0) if counts else None,
        len(residuals),
        len(counts),
    )


def count_confusions(run: RunFolder, predictions: Predictions) -> Matrix:
    """(K, K) test examples of the row's class predicted as the column's; unusable predictions are a `RunError`."""
    try:
        return confusion_matrix(predictions.test_logits, predictions.test_labels).astype(np.float64)
    except ValueError as error:
        raise RunError(f"{run.path / 'predictions.npz'} holds no usable predictions: {error}.") from None


def pair_frame(confusions: Confusions, cells: Sequence[tuple[int, int]]) -> pd.DataFrame:
    """One row per pair of class indices: names, and of each view that is there the value and that of the reverse."""
    true, taken_for = np.array(cells, dtype=np.intp).reshape(-1, 2).T
    views = {"residual": confusions.residual, "rate": confusions.rates, "errors": confusions.counts}
    known = {name: view for name, view in views.items() if view is not None}
    there = {name: view[true, taken_for] for name, view in known.items()}
    back = {f"reverse_{name}": view[taken_for, true] for name, view in known.items()}
    return _named(confusions, pd.DataFrame({"true": true, "taken_for": taken_for, **there, **back}))


def _named(confusions: Confusions, pairs: pd.DataFrame) -> pd.DataFrame:
    """The pairs with the names of the classes in the place of their indices."""
    # As objects: text of pandas cannot hold the names of files that are no UTF-8.
    names = np.array([*confusions.classes, None], dtype=object)[:-1]
    return pairs.assign(**{side: pd.Series(names[pairs[side]], dtype=object) for side in ("true", "taken_for")})


def top_pairs(confusions: Confusions, top: int = 10, by: str | None = None) -> pd.DataFrame:
    """The pairs with most confusion by `Confusions.ranking`, largest first; pairs with none are left out."""
    ranking = without_diagonal(confusions.ranking(by))
    cells = [divmod(cell, len(ranking)) for cell in np.argsort(-ranking, axis=None, kind="stable")[:top].tolist()]
    return pair_frame(confusions, [cell for cell in cells if ranking[cell] > 0])


def one_way_pairs(confusions: Confusions) -> pd.DataFrame:
    """Pairs that the test split confuses more in one direction, smallest p first; empty without test predictions.

    The columns of `asymmetric_pairs` with the names of the classes, and the residual labels of both directions.
    """
    one_way = asymmetric_pairs(np.zeros((0, 0)) if confusions.counts is None else confusions.counts)
    pairs = pair_frame(confusions, list(zip(one_way["true"], one_way["taken_for"], strict=True)))
    return one_way.assign(**pairs[[name for name in pairs if name not in one_way or name in ("true", "taken_for")]])


def significant_pairs(confusions: Confusions) -> pd.DataFrame:
    """The `one_way_pairs` whose two directions differ by more than chance."""
    pairs = one_way_pairs(confusions)
    return pairs[pairs["p_holm"] < SIGNIFICANCE]


def group_frame(confusions: Confusions, by: str | None = None) -> pd.DataFrame:
    """Groups of classes that are confused with each other, by either view unless ``by`` names one.

    The smallest threshold is a residual label of 0.1 or a test rate of 0.05. ``within``: the share of the confusions of
    these classes that are with each other; ``weakest``: the smallest share of one that is taken for another.
    """
    views = {"residual": (confusions.residual, 0.1), "test": (confusions.counts, 0.05)}
    rows = [
        (name, tuple(confusions.classes[i] for i in group.members), group.mass, group.within, group.weakest)
        for name, (matrix, least) in views.items()
        if matrix is not None and by in (None, name)
        for group in confused_groups(matrix, least=least)
    ]
    return pd.DataFrame(rows, columns=["by", "classes", "mass", "within", "weakest"])


def differing_pairs(confusions: Confusions, top: int) -> pd.DataFrame:
    """The `largest_differences` with the names of the classes; both views must be there."""
    assert confusions.residual is not None
    assert confusions.counts is not None
    return _named(confusions, largest_differences(confusions.residual, confusions.counts, top))

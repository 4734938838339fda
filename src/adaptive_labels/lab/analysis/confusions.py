"""Which classes are taken for which, by the residual labels and by the test split, as frames, text, JSON and CSV.

Shapes: K classes. Row k of a matrix is the true class k. The residual label of a pair (k, j) is the learned share of j
in the probability that k gives to other classes; the test rate is the share of k's test examples predicted as j.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from adaptive_labels.errors import UserError
from adaptive_labels.lab import tables
from adaptive_labels.lab.analysis.confusion_matrix import (
    Matrix,
    asymmetric_pairs,
    confused_groups,
    row_shares,
    without_diagonal,
)
from adaptive_labels.lab.analysis.format import p_value, percent
from adaptive_labels.lab.analysis.residual_labels import Agreement, agreement, row_entropy
from adaptive_labels.lab.analysis.statistics import SIGNIFICANCE
from adaptive_labels.lab.runs import Predictions, RunError, RunFolder
from adaptive_labels.lab.words import plural
from adaptive_labels.metrics import confusion_matrix

FORMATS = ("text", "json", "csv")
LISTS = ("pairs", "one-way", "groups", "advice")
NOTHING = "No class is taken for another.\n"
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
        """How many runs the figures are means of, in words."""
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

    def agreement(self, pairs: int = 0) -> Agreement | None:
        """How well residual labels and test errors agree; None where one of the two is missing."""
        if self.residual is None or self.counts is None:
            return None
        return agreement(self.residual, self.counts, pairs=pairs)


def read_confusions(runs: Sequence[RunFolder]) -> Confusions:
    """Average residual labels and test confusion matrices over ``runs``, usually the seeds of one method.

    The matrices are dense: (K, K) float64, which is 8 MB for 1,000 classes.
    """
    classes: tuple[str, ...] | None = None
    residuals, counts = [], []
    for run in runs:
        labels, predictions = run.load_residual_labels(), run.load_predictions()
        if labels is not None and len(labels.epochs):
            residuals.append(labels.matrix().astype(np.float64))
            classes = _same(classes, labels.classes, run)
        if predictions is not None:
            counts.append(count_confusions(run, predictions))
            classes = _same(classes, predictions.classes, run)
    sizes = sorted({len(matrix) for matrix in [*residuals, *counts]})
    if not sizes:
        where = str(runs[0].path) if len(runs) == 1 else f"any of the {len(runs)} runs"
        raise RunError(f"There is neither a residual_labels.npz nor a predictions.npz in {where}.")
    if len(sizes) > 1:
        raise RunError(f"The runs have {' and '.join(map(str, sizes))} classes; give runs of one data set.")
    return Confusions(
        classes or tuple(str(i) for i in range(sizes[0])),
        np.mean(residuals, axis=0) if residuals else None,
        np.mean(counts, axis=0) if counts else None,
        len(residuals),
        len(counts),
    )


def _same(known: tuple[str, ...] | None, names: tuple[str, ...] | None, run: RunFolder) -> tuple[str, ...] | None:
    if known is not None and names is not None and known != names:
        raise RunError(f"{run.path} has other classes than the runs before it; give runs of one data set.")
    return known or names


def count_confusions(run: RunFolder, predictions: Predictions) -> Matrix:
    """(K, K) test examples of the row's class predicted as the column's; unusable predictions are a `RunError`."""
    try:
        return confusion_matrix(predictions.test_logits, predictions.test_labels).astype(np.float64)
    except ValueError as error:
        raise RunError(f"{run.path / 'predictions.npz'} holds no usable predictions: {error}.") from None


def most_confused(matrix: Matrix, n: int) -> list[int]:
    """The n classes that take part in the strongest confusions, in their own order."""
    others = without_diagonal(matrix)
    strength = np.maximum(others.max(axis=0), others.max(axis=1))
    return sorted(np.argsort(-strength, kind="stable")[:n].tolist())


def pair_frame(confusions: Confusions, cells: Sequence[tuple[int, int]]) -> pd.DataFrame:
    """One row per pair of class indices: names, and of each view that is there the figure and that of the reverse."""
    true, taken_for = np.array(cells, dtype=np.intp).reshape(-1, 2).T
    # As objects: text of pandas cannot hold the names of files that are no UTF-8.
    names = pd.Series(confusions.classes, dtype=object)
    views = {"residual": confusions.residual, "rate": confusions.rates, "count": confusions.counts}
    known = {name: view for name, view in views.items() if view is not None}
    there = {name: view[true, taken_for] for name, view in known.items()}
    back = {f"reverse_{name}": view[taken_for, true] for name, view in known.items()}
    who = {"true": names[true].reset_index(drop=True), "taken_for": names[taken_for].reset_index(drop=True)}
    return pd.DataFrame({**who, **there, **back})


def top_pairs(confusions: Confusions, top: int = 10, by: str | None = None) -> pd.DataFrame:
    """The pairs with most confusion by `Confusions.ranking`, largest first; pairs with none are left out."""
    ranking = without_diagonal(confusions.ranking(by))
    cells = [divmod(cell, len(ranking)) for cell in np.argsort(-ranking, axis=None, kind="stable")[:top].tolist()]
    return pair_frame(confusions, [cell for cell in cells if ranking[cell] > 0])


def one_way_pairs(confusions: Confusions) -> pd.DataFrame:
    """Pairs that the test split confuses more in one direction, smallest p first; empty without test predictions.

    The columns of `asymmetric_pairs` with the names of the classes, and the residual labels of both directions.
    """
    found = asymmetric_pairs(np.zeros((0, 0)) if confusions.counts is None else confusions.counts)
    pairs = pair_frame(confusions, list(zip(found["true"], found["taken_for"], strict=True)))
    return found.assign(**pairs[[name for name in pairs if name not in found or name in ("true", "taken_for")]])


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


def groups_sentence(confusions: Confusions, by: str | None = None, most: int = 8) -> str:
    """The largest mutual groups of one view in one sentence; empty where there is none."""
    view = by or ("residual" if confusions.ranking() is confusions.residual else "test")
    groups = sorted(group_frame(confusions, view)["classes"], key=lambda names: (-len(names), names))
    more = f"; and {len(groups) - most} more" if len(groups) > most else ""
    listed = "; ".join(", ".join(members) for members in groups[:most])
    return f"Confused with each other: {listed}{more}." if groups else ""


def agreement_sentence(found: Agreement | None) -> str:
    """How well residual labels and test errors agree; empty where that is not known."""
    if found is None or found.overall is None:
        return ""
    order = f"with a Spearman correlation of {found.overall:.2f} (1 is the same order)".replace("-", "−")
    sentence = f"Residual labels and test errors rank the pairs {order}"
    if found.top1 is None:
        return f"{sentence}."
    share = f"{percent(found.top1, 0)}% of the {found.classes} classes with test errors"
    return f"{sentence}; for {share}, the largest residual label is the most frequent error."


def pair_cells(pairs: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of `top_pairs` for reading; views that are not there have no column."""
    shown = {"class": pairs["true"].tolist(), "taken for": pairs["taken_for"].tolist()}
    if "residual" in pairs:
        shown["residual label %"] = [percent(share) for share in pairs["residual"]]
    if "rate" in pairs:
        shown["test rate %"] = [percent(rate) for rate in pairs["rate"]]
        shown["test examples"] = [f"{count:.1f}".removesuffix(".0") for count in pairs["count"]]
    return list(shown), [list(row) for row in zip(*shown.values(), strict=True)]


def one_way_cells(pairs: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of pairs confused one way."""
    rows = [
        [
            *(pair.true, pair.taken_for, percent(pair.rate), percent(pair.reverse_rate)),
            *(f"{pair.count_} : {pair.reverse_count}", p_value(pair.p_holm)),
        ]
        for pair in pairs.rename(columns={"count": "count_"}).itertuples()
    ]
    return ["class", "taken for", "test rate %", "reverse %", "test examples", "p Holm"], rows


# -------------------------------------------------------------------------------------------------------- the command


def summarise_confusions(confusions: Confusions, top: int = 10, by: str | None = None) -> str:
    """The most confused pairs as a table, the agreement of the two views and the groups as sentences."""
    pairs = top_pairs(confusions, top, by)
    if pairs.empty:
        return NOTHING
    return "\n".join(filter(None, [_pair_text(confusions, pairs), groups_sentence(confusions, by)])) + "\n"


def format_confusions(
    confusions: Confusions, top: int = 10, format: str = "text", by: str | None = None, only: str | None = None
) -> str:
    """Pairs, pairs confused one way more than the other, groups, and what to do: the ``top`` of each list, as one text.

    Args:
        format: text, json or csv. CSV holds one list, the pairs unless ``only`` says otherwise.
        by: which view pairs are ranked and groups found by: residual or test; groups by both unless given.
        only: pairs, one-way, groups or advice, to leave the others out.
    """
    from adaptive_labels.lab.analysis.advice import advice_frame  # which reads these frames

    if format not in FORMATS:
        raise UserError(f"format is {format!r}; it must be one of {', '.join(FORMATS)}.")
    if only not in (None, *LISTS):
        raise UserError(f"only is {only!r}; it must be one of {', '.join(LISTS)}.")
    pairs = top_pairs(confusions, top, by)  # refuses a view that is not there, whatever is shown
    wanted = [only] if only else ["pairs"] if format == "csv" else LISTS
    make = {
        "pairs": lambda: pairs,
        "one-way": lambda: one_way_pairs(confusions) if format != "text" else significant_pairs(confusions),
        "groups": lambda: group_frame(confusions, by),
        "advice": lambda: advice_frame(confusions),
    }
    frames = {name: make[name]() for name in wanted}
    if format == "json":
        return json.dumps(_data(confusions, frames, top), indent=2, ensure_ascii=False) + "\n"
    if format == "csv":
        frame = frames[wanted[0]].head(top)
        if "classes" in frame:  # one line per class, so that names with any separator in them stay whole
            frame = frame.reset_index(names="group").explode("classes")
        return tables.as_csv(list(frame), frame.astype(object).to_numpy().tolist())
    if pairs.empty:
        return NOTHING
    texts = [_text(confusions, name, frame, top) for name, frame in frames.items()]
    return "\n\n".join(filter(None, texts)) + "\n"


def _data(confusions: Confusions, frames: dict[str, pd.DataFrame], top: int) -> dict[str, Any]:
    data: dict[str, Any] = {"residual_runs": confusions.residual_runs, "test_runs": confusions.test_runs}
    for name, frame in frames.items():
        data[name.replace("-", "_")] = frame.head(top).to_dict(orient="records")
    if "pairs" in frames:
        found, names = confusions.agreement(top), confusions.classes
        data["agreement"] = None
        if found is not None:
            values = {"overall": found.overall, "by_class_median": found.median, "same_top_confusion": found.top1}
            differences = [
                {**asdict(pair), "true": names[pair.true], "taken_for": names[pair.taken_for]}
                for pair in found.differences
            ]
            data["agreement"] = {**values, "classes": found.classes, "differences": differences}
    return data


def _text(confusions: Confusions, name: str, frame: pd.DataFrame, top: int) -> str:
    """One of the lists for reading."""
    more = f" {len(frame)} in all, {top} shown." if len(frame) > top else ""
    shown = frame.head(top)
    if name == "pairs":
        return _pair_text(confusions, shown)
    if name == "advice":
        first = frame.groupby("kind", sort=False).head(top)["sentence"]
        return "\n".join(["What to do:", *(f"- {sentence}" for sentence in first)]) if len(frame) else ""
    if name == "one-way":
        if confusions.counts is None:
            return ""
        if frame.empty:
            return (
                "No pair is confused one way more than the other by more than chance (binomial test, Holm, p < 0.05)."
            )
        lines = tables.aligned(*one_way_cells(shown), left=(0, 1))
        title, note = "One way more than the other:", f"Binomial test on the test split, p < 0.05.{more}"
    else:
        if frame.empty:
            return "No classes are confused with each other enough to form a group."
        rows = [
            [group.by, ", ".join(group.classes), percent(group.within, 0), percent(group.weakest)]
            for group in shown.itertuples()
        ]
        lines = tables.aligned(["by", "classes", "within %", "weakest %"], rows, left=(0, 1))
        title = "Confused with each other:"
        note = (
            "Within: the share of the confusions of these classes that are with each other. Weakest: the smallest "
            f"share of one of them that is taken for another.{more}"
        )
    return "\n".join([title, *lines, note])


def _pair_text(confusions: Confusions, pairs: pd.DataFrame) -> str:
    one = max(confusions.residual_runs, confusions.test_runs) == 1
    lines = tables.aligned(*pair_cells(pairs), left=(0, 1))
    lines.append(f"{'One run' if one else confusions.averaged.capitalize()}; last stored epoch.")
    return "\n".join([*lines, *filter(None, [confusions.little_learned or agreement_sentence(confusions.agreement())])])

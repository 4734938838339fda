"""The verdict on a group of runs in one breath: which method, by how much, and is it more than noise."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.lab.analysis.confusions import NEARLY_EVEN
from adaptive_labels.lab.analysis.format import p_phrase, percent, percent_summary, signed
from adaptive_labels.lab.analysis.records import RunGroup, RunRecord
from adaptive_labels.lab.analysis.residual_labels import row_entropy
from adaptive_labels.lab.analysis.statistics import SIGNIFICANCE, Bootstrap, PairedDifference, bootstrap_difference
from adaptive_labels.lab.analysis.table import MethodRow, best_rows, group_rows
from adaptive_labels.lab.runs import CANDIDATES, RunError, RunFolder
from adaptive_labels.lab.words import joined, plural

_ENOUGH_SEEDS = 6  # from which a sign-flip test can fall below p = 0.05


@dataclass(frozen=True)
class Verdict:
    """A headline of at most 25 words, and at most three bullets."""

    headline: str
    bullets: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([self.headline, *(f"- {bullet}" for bullet in self.bullets)])


def verdict(group: RunGroup) -> Verdict:
    """Say which method is best here, by how much, whether that is more than noise, and what limits it.

    The method is chosen by its mean validation accuracy alone; its test figure is then shown, never searched. A plain
    classifier is mentioned only if it differs from that method by more than the noise of the test split.
    """
    rows = group_rows(group)
    best = best_rows(rows)
    if not best:
        if not rows:
            return Verdict("No run has finished yet, so there is nothing to compare.")
        missing = [row.label for row in rows if not row.values("validation_top1")]
        return Verdict(
            f"No method is named best: {_few(missing)} without validation accuracy, and the test split chooses nothing."
        )
    bullets = [_against_plain(group, best[0]), _limits(group, best)]
    if len(best) > 1:
        figures = joined([f"{row.label} {_top1(row)}%" for row in best])
        names, reached = _few([row.label for row in best]), percent(best[0].mean("validation_top1") or 0.0)
        headline = f"A tie on validation ({reached}%): {names} are equally good."
        return Verdict(headline, tuple(filter(None, [f"On the test split they reach {figures}.", *bullets])))
    return Verdict(_headline(rows, best[0]), tuple(filter(None, [_against_smoothing(group, best[0]), *bullets])))


def _headline(rows: Sequence[MethodRow], best: MethodRow) -> str:
    reached = f"{_top1(best)}% on test"
    if len(rows) == 1:
        return f"{best.label} reaches {reached} ({plural(best.n, 'seed')}); there is no other method to compare with."
    if best.versus is not None:
        where, found = _where(best.versus, "baseline"), best.versus
        if found.p is None:
            return f"{best.label} is best on validation: {reached}{where} ({found.note})."
        tested = f"{p_phrase(found.p if found.p_holm is None else found.p_holm)}, {plural(found.n, 'seed')}"
        return f"{best.label} is best on validation: {reached}{where}, {_noise(found)} ({tested})."
    if best.method != "baseline":
        return (
            f"{best.label} is best of {len(rows)} methods on validation: {reached}, with no baseline to compare with."
        )
    nearest = max((row for row in rows if row is not best), key=lambda row: row.mean("validation_top1") or 0.0)
    behind = percent((best.mean("validation_top1") or 0.0) - (nearest.mean("validation_top1") or 0.0), 2)
    return f"The baseline is best on validation: {reached}; the next, {nearest.label}, is {behind} points behind there."


def _against_smoothing(group: RunGroup, best: MethodRow) -> str:
    found = best.versus_slr
    if found is None or found.difference is None:
        return ""
    where = _where(found, group.label_of("slr") or "").removeprefix(", ")
    if found.p is None or found.low is None or found.high is None:
        return f"Against label smoothing: {where} ({found.note})."
    # One question was asked of these runs, so there is nothing to correct for.
    interval = f"95% interval {signed(found.low)} to {signed(found.high)}, {p_phrase(found.p)}"
    return f"Against label smoothing: {where}, {_noise(found, corrected=False)} ({interval})."


def _against_plain(group: RunGroup, best: MethodRow) -> str:
    """Against the linear model that was tried before, by a bootstrap over the test examples; silent within noise."""
    plain = next((one for one in group.tried if one["model"].startswith("linear")), None)
    found = None if plain is None or plain["model"] == group.model else _over_examples(group, best.label, plain["run"])
    if plain is None or found is None or found.low <= 0 <= found.high:
        return ""
    interval = f"95% interval over test examples {signed(found.low)} to {signed(found.high)}"
    gap, name = percent(abs(found.difference)), plain["model"]
    if found.difference > 0:
        return f"Against a plain classifier ({name}): {gap} points above, more than noise ({interval})."
    return (
        f"A plain classifier is {gap} points ahead of {best.label} on test, more than noise ({interval}), though not "
        f"on validation: try --model {name}."
    )


def _over_examples(group: RunGroup, label: str, run: str) -> Bootstrap | None:
    """The difference of a method's runs from a candidate's; None where predictions are missing or of other examples."""
    records = group.by_label()[label]
    own = mean_correct(records)
    with contextlib.suppress(RunError):  # of a damaged file
        plain = RunFolder(records[0].run.path.parent / CANDIDATES / run).load_predictions()
        if own is not None and plain is not None and np.array_equal(own[1], plain.test_labels):
            return bootstrap_difference(own[0], plain.test_logits.argmax(axis=1) == own[1], repeats=1000)
    return None


def mean_correct(records: Sequence[RunRecord]) -> tuple[NDArray[np.float64], NDArray[np.int64]] | None:
    """(N,) how many of the runs are right on each test example, as shares, and (N,) the labels.

    None where no run has predictions, or where they are of different examples.
    """
    stored = []
    for record in records:
        with contextlib.suppress(RunError):  # of a damaged file
            stored.append(record.predictions)
    right = [(one.test_logits.argmax(axis=1) == one.test_labels, one.test_labels) for one in stored if one is not None]
    if not right or any(not np.array_equal(labels, right[0][1]) for _, labels in right):
        return None
    return np.mean([correct for correct, _ in right], axis=0), right[0][1]


def _limits(group: RunGroup, best: Sequence[MethodRow]) -> str:
    """What a user should know before acting on the verdict, in one sentence."""
    found = [f"{row.label} never finds at least one class" for row in best if row.mean("test_worst_class") == 0]
    for row in best:
        if row.method.startswith("alr") and row.parameters.get("criterion") == 2:
            found.append("with two classes ALR is its L_hard, since there is only one wrong class")
        elif _are_flat(group.by_label()[row.label]):
            found.append(f"the residual labels of {row.label} are nearly flat, so there is little to read from them")
    seeds = max((0 if row.versus is None else row.versus.n) for row in best)  # without a test there is no p to doubt
    if 2 <= seeds < _ENOUGH_SEEDS:
        found.append(
            f"{plural(seeds, 'seed')} are few: a sign-flip test could not give less than p = {2 / 2**seeds:.4g}"
        )
    return f"Limits: {'; '.join(dict.fromkeys(found))}." if found else ""


def _are_flat(records: Sequence[RunRecord]) -> bool:
    """Whether the residual labels at the last epoch are still nearly even."""
    try:
        stored = [record.residual_labels for record in records]
    except RunError:
        return False
    evenness = [row_entropy(one.matrix(), normalised=True).mean() for one in stored if one is not None]
    return bool(evenness) and float(np.mean(evenness)) >= NEARLY_EVEN


def _where(found: PairedDifference, other: str) -> str:
    """The size of a difference in words; ", level with slr" or ", 2.1 points above slr on 2 shared seeds"."""
    if found.difference is None:
        return ""
    digits = 1 if abs(found.difference) >= 0.0005 else 2
    gap = percent(abs(found.difference), digits)
    if float(gap) == 0:
        return f", level with {other}"
    return f", {gap} points {'above' if found.difference > 0 else 'below'} {other}"


def _noise(found: PairedDifference, corrected: bool = True) -> str:
    p = found.p_holm if corrected and found.p_holm is not None else found.p
    return "more than noise" if p is not None and p < SIGNIFICANCE else "within noise"


def _few(labels: Sequence[str]) -> str:
    return joined(list(labels)) if len(labels) < 4 else f"{len(labels)} methods"


def _top1(row: MethodRow) -> str:
    return percent_summary(row.summary("test_top1"))

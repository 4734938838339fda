"""The verdict on a group of runs in one breath: which method, by how much, and is it more than noise."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.lab.analysis.confusions import NEARLY_EVEN
from adaptive_labels.lab.analysis.format import p_phrase, percent, percent_summary, signed
from adaptive_labels.lab.analysis.records import RunGroup, RunRecord
from adaptive_labels.lab.analysis.residual_labels import row_entropy
from adaptive_labels.lab.analysis.statistics import SIGNIFICANCE, Bootstrap, PairedDifference, bootstrap_difference
from adaptive_labels.lab.analysis.table import MethodRow, best_row, group_rows
from adaptive_labels.lab.runs import CANDIDATES, RunError, RunFolder
from adaptive_labels.lab.words import joined, plural

_ENOUGH_SEEDS = 5


@dataclass(frozen=True)
class Verdict:
    """A headline of at most 25 words, and at most three bullets."""

    headline: str
    bullets: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([self.headline, *(f"- {bullet}" for bullet in self.bullets)])


def verdict(group: RunGroup) -> Verdict:
    """Say which method is best here, by how much, whether that is more than noise, and what limits it.

    The method is chosen by its mean validation accuracy alone (of equal ones by validation NLL); its test figures are
    then shown, never searched. Where its accuracy is within noise of the baseline's, its likelihood is said if that is
    not. A plain classifier is mentioned only if it differs from that method by more than the noise of the test split.
    """
    rows = group_rows(group)
    best = best_row(rows)
    if not rows:
        return Verdict("No run has finished yet, so there is nothing to compare.")
    if best is None:
        missing = [row.label for row in rows if not row.values("validation_top1")]
        return Verdict(
            f"No method is named best: {_few(missing)} without validation accuracy, and the test split chooses nothing."
        )
    likelihoods = _likelihoods(group)
    headline = _headline(rows, best, likelihoods)
    worse = likelihoods.get(best.label, "") if "likelihood" not in headline else ""
    bullets = [_against_smoothing(group, best), _against_plain(group, best), _limits(group, best, worse)]
    return Verdict(headline, tuple(filter(None, bullets)))


def _likelihoods(group: RunGroup) -> dict[str, str]:
    """The methods whose test NLL differs from the baseline's visibly and beyond noise, each with that in words."""
    rows = {row.label: row for row in group_rows(group, "test_nll")}
    found = {}
    for label, row in rows.items():
        versus, own, other = (
            row.versus,
            row.mean("test_nll"),
            rows[group.label_of("baseline") or label].mean("test_nll"),
        )
        figures = [f"{value or 0.0:.2f}" for value in (own, other)]
        if versus is not None and is_beyond_noise(versus) and len(set(figures)) == 2:
            how = "better" if (versus.difference or 0.0) < 0 else "worse"
            found[label] = f"{how} likelihood (NLL {', not '.join(figures)}, {p_phrase(_corrected(versus))})"
    return found


def _headline(rows: Sequence[MethodRow], best: MethodRow, likelihoods: Mapping[str, str]) -> str:
    """Of accuracy; where that is within noise and the likelihood is not, of both."""
    reached = f"{_top1(best)}% on test"
    if len(rows) == 1:
        return f"{best.label} reaches {reached} ({plural(best.n, 'seed')}); there is no other method to compare with."
    is_baseline = best.method == "baseline"
    other = (best_row([row for row in rows if row is not best]) or best) if is_baseline else best
    found = other.versus
    if found is None:
        return (
            f"{best.label} is best of {len(rows)} methods on validation: {reached}, with no baseline to compare with."
        )
    likelihood = "" if is_beyond_noise(found) else likelihoods.get(other.label, "")
    if likelihood:
        reached = f"{percent(best.mean('test_top1') or 0.0)}% on test"  # so that the headline stays short
    if is_baseline:
        where = f"The baseline leads on validation: {reached}; {other.label} is {_where(found)}"
    else:
        where = f"{best.label} is best on validation: {reached}, {_where(found, 'baseline')}"
    if found.p is None:
        return f"{where} ({found.note})."
    if likelihood:
        return f"{where}, {_noise(found)}, with {likelihood}."
    return f"{where}, {_noise(found)} ({p_phrase(_corrected(found))}, {plural(found.n, 'seed')})."


def _against_smoothing(group: RunGroup, best: MethodRow) -> str:
    found = best.versus_slr
    if found is None or found.difference is None:
        return ""
    where = _where(found, group.label_of("slr") or "")
    if found.note or found.p is None or found.low is None or found.high is None:
        return f"Against label smoothing: {where} ({found.note})."
    # One question was asked of these runs, so there is nothing to correct for.
    alone = replace(found, p_holm=None)
    interval = f"95% interval {signed(found.low)} to {signed(found.high)}, {p_phrase(found.p)}"
    return f"Against label smoothing: {where}, {_noise(alone)} ({interval})."


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


def _limits(group: RunGroup, best: MethodRow, likelihood: str) -> str:
    """What a user should know before acting on the verdict, in one sentence."""
    found = []
    if best.mean("test_worst_class") == 0:
        found.append(f"{best.label} never finds at least one class")
    if likelihood.startswith("worse"):
        found.append(f"{best.label} has {likelihood}")
    if best.method.startswith("alr") and best.parameters.get("criterion") == 2:
        found.append("with two classes ALR is its L_hard, since there is only one wrong class")
    elif _are_flat(group.by_label()[best.label]):
        found.append(f"the residual labels of {best.label} are nearly flat, so there is little to read from them")
    seeds = best.n if best.versus is None else best.versus.n
    if 2 <= seeds < _ENOUGH_SEEDS and len(group.by_label()) > 1:
        found.append(f"{seeds} seeds are few: rerun with --seeds {_ENOUGH_SEEDS}")
    return f"Limits: {'; '.join(found)}." if found else ""


def _are_flat(records: Sequence[RunRecord]) -> bool:
    """Whether the residual labels at the last epoch are still nearly even."""
    try:
        stored = [record.residual_labels for record in records]
    except RunError:
        return False
    evenness = [row_entropy(one.matrix(), normalised=True).mean() for one in stored if one is not None]
    return bool(evenness) and float(np.mean(evenness)) >= NEARLY_EVEN


def _where(found: PairedDifference, other: str = "") -> str:
    """The size of a difference in words: "level with slr", or "2.1 points above slr"; of no ``other``, "level"."""
    if found.difference is None:
        return "without a seed in common"
    gap = percent(abs(found.difference), 1 if abs(found.difference) >= 0.0005 else 2)
    if float(gap) == 0:
        return f"level with {other}" if other else "level"
    return f"{gap} points {'above' if found.difference > 0 else 'below'} {other}".rstrip()


def is_beyond_noise(found: PairedDifference) -> bool:
    """Whether a difference is significant, corrected for the number of methods where that was done."""
    return found.p is not None and _corrected(found) < SIGNIFICANCE


def _corrected(found: PairedDifference) -> float:
    p = found.p if found.p_holm is None else found.p_holm
    return 1.0 if p is None else p


def _noise(found: PairedDifference) -> str:
    return "more than noise" if is_beyond_noise(found) else "within noise"


def _few(labels: Sequence[str]) -> str:
    return joined(list(labels)) if len(labels) < 4 else f"{len(labels)} methods"


def _top1(row: MethodRow) -> str:
    return percent_summary(row.summary("test_top1"))

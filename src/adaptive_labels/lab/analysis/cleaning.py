"""Does it pay to clean the training data? The same methods and seeds on it as it is, and cleaned."""

from collections.abc import Sequence

from adaptive_labels.lab.analysis.format import p_phrase, percent, points
from adaptive_labels.lab.analysis.records import RunRecord, group_by
from adaptive_labels.lab.analysis.statistics import SIGNIFICANCE, PairedDifference, compare_paired, holm


def does_cleaning_pay(what: str, before: Sequence[RunRecord], after: Sequence[RunRecord]) -> str:
    """A sentence that answers, with the test accuracy of each method before and after, paired by seed.

    ``what`` was done, such as "Leaving out the suspects". p values are corrected for several methods (Holm).
    """
    first, second = ({name: _by_seed(runs) for name, runs in _by_label(records).items()} for records in (before, after))
    differences = {name: compare_paired(second[name], first[name]) for name in first if name in second}
    if not differences:
        return f"{what} cannot be judged: no method has finished on both."
    corrected = dict(zip(differences, holm([difference.p for difference in differences.values()]), strict=True))
    certain = {name for name, p in corrected.items() if p is not None and p < SIGNIFICANCE}
    better = sum((differences[name].difference or 0) > 0 for name in certain)
    if better and better == len(certain):
        answer = f"{what} pays"
    elif certain and not better:
        answer = f"{what} does harm"
    elif certain:
        answer = f"{what} pays for some methods and harms others"
    else:
        answer = f"{what} makes no difference that these seeds can show"
    words = [_words(name, first[name], second[name], differences[name], corrected[name]) for name in differences]
    return f"{answer}. On the same test split: {'; '.join(words)}."


def _words(
    name: str, before: dict[int, float], after: dict[int, float], difference: PairedDifference, p: float | None
) -> str:
    means = [percent(sum(values.values()) / len(values)) for values in (before, after)]
    test = difference.note if p is None else p_phrase(p)
    return f"{name} {means[0]} → {means[1]}% ({points(difference)} points, {test})"


def _by_label(records: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    return group_by([record for record in records if record.status == "finished"], lambda record: record.label)


def _by_seed(records: Sequence[RunRecord]) -> dict[int, float]:
    return {record.seed: record.metrics["test_top1"] for record in records}

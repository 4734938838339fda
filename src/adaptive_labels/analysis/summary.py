"""A group of runs summed up, a row a method: what tables, verdict and report all print."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adaptive_labels.analysis.records import Group, Record
from adaptive_labels.analysis.statistics import Comparison, Summary, compare_all, summarise

METRICS = ("top1", "top5", "nll", "ece", "ece_scaled", "aurc")


@dataclass(frozen=True)
class Row:
    """One method of a group.

    Attributes:
        test: metric → summary over the seeds that have it, for `METRICS`.
        validation: summary of validation top-1, or None.
        comparison: test top-1 against the baseline, or None for the baseline itself and where there is none.
        epochs: the last epochs of its runs, sorted.
        parameters: how many there are in its first run, by whose they are (see `Record`).
    """

    label: str
    method: str
    n: int
    test: Mapping[str, Summary | None]
    validation: Summary | None
    comparison: Comparison | None
    seconds: Summary | None
    epochs: tuple[int, ...]
    parameters: Mapping[str, int]


def baseline_label(group: Group) -> str | None:
    """The label of the group's baseline, or None; of several variants of it, the first."""
    return next((record.label for record in group.counted if record.method == "baseline"), None)


def summarise_group(group: Group) -> list[Row]:
    """A row for each method with finished runs, the baseline first."""
    methods = group.by_label()
    top1 = {
        label: {record.seed: record.metrics["test"]["top1"] for record in records} for label, records in methods.items()
    }
    baseline = baseline_label(group)
    comparisons = {} if baseline is None else compare_all(top1, baseline)
    return [
        Row(
            label=label,
            method=records[0].method,
            n=len(records),
            test={metric: _over_seeds(records, "test", metric) for metric in METRICS},
            validation=_over_seeds(records, "validation", "top1"),
            comparison=comparisons.get(label),
            seconds=summarise([record.seconds for record in records if record.seconds is not None]),
            epochs=tuple(sorted({record.epochs for record in records if record.epochs is not None})),
            parameters=dict(records[0].parameters),
        )
        for label, records in methods.items()
    ]


def _over_seeds(records: Sequence[Record], split: str, metric: str) -> Summary | None:
    values = [record.value(split, metric) for record in records]
    return summarise([value for value in values if value is not None])

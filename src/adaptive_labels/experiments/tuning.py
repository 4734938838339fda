"""The same number of trials for every method, and the choice among them, on validation only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from adaptive_labels.experiments.studies.study import Variant

TUNE_SEEDS = 2  # seeds that every trial is run with; the chosen one gets the study's others as well


def trials_of(variant: Variant) -> list[Variant]:
    """A variant with ``tune = n`` at n values of its method's main option, the ones that `alr tune` tries."""
    from adaptive_labels.losses import find_method

    assert variant.tune is not None
    option, values = find_method(variant.method).trials(variant.tune)
    return [
        dataclasses.replace(
            variant, name=f"{variant.name} ({option} {value:g})", options={**variant.options, option: value}, tune=None
        )
        for value in values
    ]


def best_trial(
    variant: Variant, task: str, records: Mapping[tuple[str, str, int], Mapping[str, Any]]
) -> Variant | None:
    """The trial with the highest mean validation accuracy over the tuning seeds (the first of equals).

    None while a trial is missing. One that diverged counts as 0.
    """
    best: tuple[float, Variant] | None = None
    for trial in trials_of(variant):
        found = [records.get((task, trial.key, seed)) for seed in range(TUNE_SEEDS)]
        if any(record is None for record in found):
            return None
        mean = _mean([validation_accuracy(record) for record in found if record is not None])
        if best is None or mean > best[0]:
            best = mean, trial
    return None if best is None else best[1]


def validation_accuracy(record: Mapping[str, Any]) -> float:
    """A run's accuracy on validation; 0 for one that diverged."""
    return float(record["metrics"].get("validation", {}).get("top1", 0.0))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)

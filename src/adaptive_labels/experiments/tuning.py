"""The same number of trials for every method, and the choice among them, on validation only."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping
from typing import Any

from adaptive_labels.experiments.studies.study import Variant
from adaptive_labels.losses import find_method

TUNE_SEEDS = 2  # seeds that every trial is run with; the chosen one gets the study's others as well


def trials_of(variant: Variant) -> list[Variant]:
    """A variant with ``tune = n`` at n values of its method's main option, the ones that `alr tune` tries."""
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
    trials = trials_of(variant)
    found = [[records.get((task, trial.key, seed)) for seed in range(TUNE_SEEDS)] for trial in trials]
    if any(record is None for runs in found for record in runs):
        return None
    scores = [statistics.fmean(_validation(record) for record in runs if record is not None) for runs in found]
    return trials[scores.index(max(scores))]


def _validation(record: Mapping[str, Any]) -> float:
    return float(record["metrics"].get("validation", {}).get("top1", 0.0))

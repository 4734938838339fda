"""The network, chosen by evidence before any method is: the baseline of each candidate, one seed, on validation.

A candidate is trained as an ordinary run, in the folder `candidates` beside the runs, so that choosing again costs
nothing. That of the chosen network is the comparison's own first run of the baseline.
"""

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from adaptive_labels.lab.config import MethodConfig, RunConfig, changed
from adaptive_labels.lab.data import Dataset
from adaptive_labels.lab.data.sources.images import USUAL_SIZE
from adaptive_labels.lab.experiments import budget as budgets, build
from adaptive_labels.lab.experiments.defaults import candidates, is_pretrained, missing_encoder
from adaptive_labels.lab.experiments.plan import Plan, plan_runs
from adaptive_labels.lab.experiments.resolve import resolve_for
from adaptive_labels.lab.machine import TimeBudget
from adaptive_labels.lab.runs import CANDIDATES, RunFolder, write_choice
from adaptive_labels.lab.words import joined, plural

SHARE = 0.2  # of what is left of a time budget, for all candidates

Train = Callable[[Plan], object]
"""Does the runs of a plan."""


@dataclass(frozen=True)
class Candidate:
    """A network: the configuration that names it, the data as it reads it, and the baseline's run with it."""

    config: RunConfig
    dataset: Dataset
    baseline: RunConfig
    plan: Plan

    @property
    def name(self) -> str:
        """The network's."""
        return str(self.baseline.model.name)

    @property
    def result(self) -> dict[str, Any] | None:
        """What its run came to, if it is finished."""
        return RunFolder(self.plan.own[0].folder).result if self.plan.own[0].folder.exists() else None

    @property
    def reached(self) -> float:
        """Its validation accuracy; below any if it diverged, or is not there."""
        validation = (self.result or {}).get("metrics", {}).get("validation", {})
        return float(validation.get("top1", -1.0))


def choose_network(
    config: RunConfig, seed: int, dataset: Dataset, out: Path, train: Train | None, budget: TimeBudget | None = None
) -> tuple[RunConfig, Dataset, tuple[str, ...]]:
    """The configuration with its network, the data as that reads it, and why it is this one, in sentences.

    A network that is given stays. Without ``train`` nothing is trained: what was is read, or the default taken.
    """
    names = candidates(dataset, config.model.options)
    if config.model.name is not None or config.model.weights is not None or len(names) == 1:
        return config, dataset, ()
    tried = [_candidate(config, name, seed, dataset, out) for name in names]
    first = tried[0]
    if train is not None and budget is not None and not _fit_into(budget, tried):
        return first.config, first.dataset, ("The time budget has no room to try several networks.",)
    missing = [one for one in tried if one.plan.todo]
    if missing and train is None:
        would = joined([one.name for one in tried])
        waits = f"{would} would be tried first, with the baseline and one seed; this is {first.name}."
        return first.config, first.dataset, tuple(filter(None, [waits, missing_encoder(dataset)]))
    if train is not None:
        for plan in _joined(missing):
            train(plan)
    ranked = sorted(tried, key=lambda one: -one.reached)  # of equal ones, the first stays first
    if ranked[0].reached < 0:
        return first.config, first.dataset, ()
    _keep(out, ranked)
    return ranked[0].config, ranked[0].dataset, tuple(filter(None, [_reason(ranked), missing_encoder(dataset)]))


def with_candidates(plan: Plan) -> Plan:
    """The plan with those of its runs finished that were a candidate's: they are copied into their place."""
    own = [
        dataclasses.replace(entry, is_finished=_copy(plan.out, entry.folder) or entry.is_finished) for entry in plan.own
    ]
    return dataclasses.replace(plan, own=tuple(own))


def _copy(out: Path, folder: Path) -> bool:
    """Copy a candidate's finished run to a folder that is not there; whether there was one."""
    source = out / CANDIDATES / folder.name
    if folder.exists() or not (source / "result.json").exists():
        return False
    copy = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(copy, ignore_errors=True)  # of an earlier process that was ended meanwhile
    shutil.copytree(source, copy)
    copy.replace(folder)
    return True


def _candidate(config: RunConfig, name: str, seed: int, dataset: Dataset, out: Path) -> Candidate:
    config = changed(config, "model", name=name)
    images = dataset.train.inputs
    large = isinstance(images, Tensor) and min(images.shape[2:]) > USUAL_SIZE
    if large and config.data.image_size is None and not is_pretrained(name, config.model.options):
        smaller = build.load_data(config.data, config.model)
        dataset = dataset if smaller.fingerprint == dataset.fingerprint else smaller
    baseline, _ = resolve_for(dataclasses.replace(config, method=MethodConfig(), seed=seed), dataset)
    return Candidate(config, dataset, baseline, plan_runs(dataset, [baseline], out / CANDIDATES))


def _fit_into(budget: TimeBudget, tried: Sequence[Candidate]) -> bool:
    """Whether what is left to do of the candidates takes a small share of what is left of a time budget."""
    seconds = [budgets.measured(one.plan).seconds or 0.0 for one in tried if one.plan.todo]
    return sum(seconds) <= SHARE * budget.left


def _joined(missing: Sequence[Candidate]) -> list[Plan]:
    """One plan for all that read the same data."""
    return [
        plan_runs(dataset, [one.baseline for one in missing if one.dataset is dataset], missing[0].plan.out)
        for dataset in dict.fromkeys(one.dataset for one in missing)
    ]


def _keep(out: Path, ranked: Sequence[Candidate]) -> None:
    """Write down what was tried."""
    found = []
    for one in ranked:
        seconds = (one.result or {}).get("seconds")
        reached = one.reached if one.reached >= 0 else None
        found.append(
            {"model": one.name, "run": one.plan.own[0].folder.name, "validation_top1": reached, "seconds": seconds}
        )
    write_choice(out, ranked[0].baseline, {"tried": found})


def _reason(ranked: Sequence[Candidate]) -> str:
    best, *others = ranked
    behind = joined([f"{one.name} {100 * max(one.reached, 0):.1f}%" for one in others])
    seconds = sum((one.result or {}).get("seconds", 0.0) for one in ranked)
    return (
        f"The network is {best.name}: with it the baseline reaches {100 * best.reached:.1f}% on validation, with "
        f"{behind} (one seed each, {plural(round(seconds), 'second')}; --model skips this)."
    )

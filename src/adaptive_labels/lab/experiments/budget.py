"""A time budget: shorten a comparison to fit into it, before it begins and while it runs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from adaptive_labels.lab.config import ConfigError, RunConfig, TrainingConfig, with_settings
from adaptive_labels.lab.data import ImageFiles
from adaptive_labels.lab.experiments.defaults import choose_from_scratch, is_pretrained
from adaptive_labels.lab.experiments.plan import Budget, Plan, cost_key, name_of_run, plan_runs
from adaptive_labels.lab.files import parse_json, write_json

BUDGETS = "time-budgets.json"
USED = 0.8  # of what is left is planned for: there is also a reference to fit, a test and a report
LATEST, OVER = 1.12, 1.2  # times the budget, after which nothing is trained, and the whole command is over
# Below a quarter of a recipe's epochs, or within these bounds, something else is made smaller first.
LEAST_SHARE, LEAST_EPOCHS, ENOUGH_EPOCHS = 0.25, 3, 10
PROMISING = 0.7  # of the work that can be afforded: what is expected to need less is measured
SMALLEST_IMAGE, SMALLEST_NETWORK = 16, "preact-resnet18-w8"
LEAST_TRAIN = 0.01
MOST_ENCODING = 0.5  # of the time that is left may be planned for a pretrained encoder
LATEST_ENCODING = 0.7  # of it, after which it is given up
HURRY = 0.4  # of the budget: with less left, there is no time to measure more than the smallest comparison
ENCODED_SIZES = (112, 80)  # pixels of images that a pretrained network sees, where its own size takes too long
SMALL_IMAGE = 32
_SIZE, _NETWORK, _SHARE = "data.image_size", "model.name", "data.train_fraction"
_INPUT = "model.options.input_size"
_WORDS = {
    _INPUT: "the pretrained network sees images of {} pixels",
    _SIZE: "images are {} pixels wide and high",
    _NETWORK: "the network is {}",
    _SHARE: "a share of {} of the training examples is used",
}


class Smaller(NamedTuple):
    """What a budget led to: settings in the place of the user's open choices, and so many seeds (None for all)."""

    settings: tuple[str, ...] = ()
    seeds: int | None = None

    def changed(self, key: str, value: object) -> Smaller:
        """The same with another value of a setting."""
        others = (setting for setting in self.settings if setting.partition("=")[0] != key)
        return self._replace(settings=(*others, f"{key}={value}"))

    def __str__(self) -> str:
        words = [_WORDS[key].format(value) for key, _, value in (one.partition("=") for one in self.settings)]
        return ", ".join([*words, *(["there is one seed"] if self.seeds is not None else [])])


Planned = Callable[[RunConfig, int | None], Plan]
"""Makes a plan for a configuration and so many seeds (None for all)."""
Measured = Callable[[Plan, float], list[Plan]]
"""The ways to carry a plan out, with their costs, measured in so many seconds each; none if encoding alone takes it."""
Encoded = Callable[[Plan, float], float | None]
"""Encodes the data of a plan until a moment, in seconds since the epoch; if that is too early, the seconds it takes."""


def fit_into(
    budget: Budget, config: RunConfig, planned: Planned, measured: Measured, encoded: Encoded | None = None
) -> Plan:
    """The plan that fits into a budget: the whole, fewer epochs, or less of what the user left open.

    In this order, as far as it takes: epochs down to a quarter, the images' size, the network, the training examples,
    one seed. What an earlier call with this budget led to is found again. With ``encoded`` the data is encoded here,
    since only then it is known that there was time for it.
    """
    if budget.left <= 0:
        raise _too_small(budget, None)
    plan = planned(config, None)
    asked = json.dumps([[name_of_run(config) for config in plan.configs], budget.seconds])
    budget = dataclasses.replace(budget, key=hashlib.sha256(asked.encode()).hexdigest()[:16])
    kept = kept_choice(plan.out, budget)
    if kept is not None:
        plan = _named(_apply(planned, config, kept[0], budget), *kept)
        if not plan.todo:
            return plan
        if ways := measured(plan, _sample(budget)):
            return min(ways, key=_seconds)
    fitted: tuple[Plan, Smaller, float] | None = None
    shares, slowness = [0.5], 1.0  # the latter of encoding, beside what was measured
    for choice, last in _choices(config, plan, shares):
        if budget.left <= 0:
            break
        if budget.left < HURRY * budget.seconds and not last and choice != Smaller():
            continue
        plan = _apply(planned, config, choice, budget)
        whole = plan.configs[0].training.epochs or 1
        if not plan.todo:
            return _named(plan, choice, whole)
        least = min(max(LEAST_EPOCHS, LEAST_SHARE * whole), ENOUGH_EPOCHS, whole)
        ways = [dataclasses.replace(way, encoding=slowness * way.encoding) for way in measured(plan, _sample(budget))]
        best, epochs = _best(ways, budget)
        if best is not None and int(epochs) >= least and best.encoding and encoded is not None:
            needed = encoded(plan, budget.clock() + LATEST_ENCODING * budget.left)
            slowness *= 1.0 if needed is None else max(1.0, needed / best.encoding)
            best, epochs = _best([dataclasses.replace(way, encoding=needed or 0.0) for way in ways], budget)
        if best is not None:
            fitted = best, choice, epochs
            if int(epochs) >= least:
                break
            shares.append(epochs / least)
    if budget.left <= 0 or fitted is None or fitted[2] < 1 / (LATEST / USED):
        raise _too_small(budget, None if fitted is None else fitted[0])
    best, choice, epochs = fitted
    return _named(best, choice, max(1, int(epochs)))


def _too_small(budget: Budget, smallest: Plan | None) -> ConfigError:
    """Why there is no answer within a budget."""
    spent = budget.seconds - budget.left
    if budget.left <= 0:
        return ConfigError(
            f"time-budget is {budget.seconds:.3g} s, but {spent:.3g} s have passed before anything could be trained; "
            "give more time, or wait until the machine is less busy"
        )
    takes = "" if smallest is None else f": about {spent + _seconds(with_epochs(smallest, 1)) / USED:.2g} s"
    return ConfigError(
        f"time-budget is {budget.seconds:.3g} s, but even one epoch and one seed of the smallest comparison take "
        f"longer{takes}; give more time, or fewer methods"
    )


def _best(ways: Sequence[Plan], budget: Budget) -> tuple[Plan | None, float]:
    """The way that leaves most time, and its epochs: all of them, or as many as can be afforded; or none."""
    ways = [way for way in ways if not way.encoding or way.encoding <= MOST_ENCODING * budget.left]
    if fitting := [way for way in ways if _seconds(way) <= USED * budget.left]:
        best = min(fitting, key=_seconds)
        return best, best.configs[0].training.epochs or 1
    return max(((way, _affordable(way, budget)) for way in ways), key=lambda pair: pair[1], default=(None, 0.0))


def _choices(config: RunConfig, plan: Plan, shares: Sequence[float]) -> Iterator[tuple[Smaller, bool]]:
    """Ever smaller comparisons, each with whether it is the last.

    ``shares`` grows by the share of each one's work that could be afforded: those are passed over that would clearly
    not be small enough.
    """
    choice, gain = Smaller(), 1.0  # what was gained since the last one that was measured
    yield choice, False
    images, model = plan.dataset.train.inputs, plan.configs[0].model
    of_images, pretrained = isinstance(images, Tensor | ImageFiles), is_pretrained(model.name, model.options)
    can_choose = config.model.name is None and of_images
    if config.model.name is None and pretrained and not of_images:
        # A network from scratch learns nearly as much from texts; from images much less than from a share of them.
        yield (choice := choice.changed(_NETWORK, choose_from_scratch(plan.dataset).settings[_NETWORK])), False
    if can_choose and pretrained and "input_size" not in config.model.options:
        for size in ENCODED_SIZES:
            yield (choice := choice.changed(_INPUT, size)), False
    if isinstance(images, Tensor) and config.data.image_size is None and not pretrained:
        size = int(images.shape[-1]) // 2
        while size >= SMALLEST_IMAGE:
            choice, gain, size = choice.changed(_SIZE, size), 4 * gain, size // 2
            if shares[-1] * gain >= PROMISING:
                yield choice, False
                gain = 1.0
    if can_choose and not pretrained:
        choice, gain = choice.changed(_NETWORK, SMALLEST_NETWORK), 2 * gain
        if shares[-1] * gain >= PROMISING:
            yield choice, False
            gain = 1.0
    share, whole = 1.0, config.data.train_fraction
    for _ in range(3):
        share, gain = max(LEAST_TRAIN, share * min(0.5, shares[-1] * gain)), 1.0
        yield (choice := choice.changed(_SHARE, float(f"{whole * share:.2g}"))), False
        if share < 0.1:
            break
    yield (choice := choice._replace(seeds=1)), False
    if can_choose and pretrained:
        choice = Smaller(seeds=1).changed(_NETWORK, SMALLEST_NETWORK)
        if config.data.image_size is None and not (isinstance(images, Tensor) and images.shape[-1] <= SMALL_IMAGE):
            choice = choice.changed(_SIZE, SMALL_IMAGE)
        yield choice, False
    yield choice.changed(_SHARE, float(f"{whole * LEAST_TRAIN:.2g}")), True


def _apply(planned: Planned, config: RunConfig, choice: Smaller, budget: Budget) -> Plan:
    return dataclasses.replace(planned(with_settings(config, choice.settings), choice.seeds), budget=budget)


def _named(plan: Plan, choice: Smaller, epochs: int) -> Plan:
    """The plan with so many epochs, and with what was made smaller in its notes; it is kept when it is carried out."""
    if str(choice):
        plan = dataclasses.replace(plan, notes=(*plan.notes, f"To stay within the time budget, {choice}."))
    return dataclasses.replace(with_epochs(plan, epochs), smaller=choice)


def _seconds(plan: Plan) -> float:
    return plan.seconds or 0.0


def _affordable(plan: Plan, budget: Budget) -> float:
    epochs = plan.configs[0].training.epochs or 1
    return epochs * (USED * budget.left - plan.starting) / max(plan.training_seconds, 1e-9)


def _sample(budget: Budget) -> float:
    """How long one kind of run may be measured."""
    return min(2.0, budget.seconds / 25)


def with_epochs(plan: Plan, epochs: int) -> Plan:
    """A plan with so many epochs in every run, and its costs and notes accordingly."""
    before = plan.configs[0].training.epochs
    assert before is not None
    if epochs == before:
        return plan
    configs = [dataclasses.replace(c, training=shortened(c.training, epochs)) for c in plan.configs]
    costs = None if plan.costs is None else {key: cost * epochs / before for key, cost in plan.costs.items()}
    notes = (*plan.notes, f"To stay within the time budget, every run has {epochs} instead of {before} epochs.")
    again = plan_runs(plan.dataset, configs, plan.out)
    return dataclasses.replace(plan, configs=again.configs, finished=again.finished, costs=costs, notes=notes)


def shortened(training: TrainingConfig, epochs: int) -> TrainingConfig:
    """A recipe with another number of epochs: its milestones and its warm-up keep their share of the run.

    >>> config = TrainingConfig(epochs=200, schedule="step", milestones=(60, 120), warmup=10)
    >>> shorter = shortened(config, 10)
    >>> shorter.milestones, shorter.warmup
    ((3.0, 6.0), 0.5)
    """
    assert training.epochs is not None
    share = epochs / training.epochs
    milestones = tuple(share * epoch for epoch in training.milestones)
    return dataclasses.replace(training, epochs=epochs, milestones=milestones, warmup=share * training.warmup)


# ------------------------------------------------------------------------------------------------- while it is running


def stretch(plan: Plan, stage: Sequence[RunConfig]) -> float | None:
    """How much longer than estimated the runs of a stage may take; None if nothing is known about that.

    In the first seed it is as much as the budget has left, since without one there is no answer; all others may be left
    out.
    """
    if plan.budget is None or plan.costs is None:
        return None
    rest = _of_first_seed(plan)
    if tuple(stage) not in rest:
        return None
    ahead = sum(map(plan.stage_seconds, rest[rest.index(tuple(stage)) :]))
    return max(plan.budget.left, 0.0) / max(ahead, 1e-9)


def latest_moment(plan: Plan) -> float | None:
    """When nothing is trained any more, in seconds since the epoch: the end takes about as long as the start did."""
    if plan.budget is None:
        return None
    seconds = plan.budget.seconds
    return plan.budget.began + max(USED * seconds, min(LATEST * seconds, OVER * seconds - plan.importing))


def _of_first_seed(plan: Plan) -> list[tuple[RunConfig, ...]]:
    first = min(run.seed for run in plan.configs)
    return [stage for stage in plan.stages if stage[0].seed <= first]


def fits(plan: Plan, stage: Sequence[RunConfig], slowness: float) -> bool:
    """Whether a stage can still be begun: one of the first seed always can, unless the time is up."""
    if plan.budget is None:
        return True
    if plan.costs is None or tuple(stage) in _of_first_seed(plan):
        return plan.budget.left > 0
    return plan.stage_seconds(stage) * slowness <= plan.budget.left


def replanned(plan: Plan, late: Sequence[tuple[RunConfig, float]]) -> Plan:
    """The plan with as many epochs as the time left allows at the speed of runs that were found to be late.

    ``late`` has each such run with the seconds that it would take.
    """
    assert plan.budget is not None
    assert plan.costs is not None
    slowness = max(seconds / plan.costs[cost_key(run)] for run, seconds in late)
    needed = slowness * sum(map(plan.stage_seconds, _of_first_seed(plan)))
    before = plan.configs[0].training.epochs or 1
    epochs = max(1, min(before - 1, int(before * USED * max(plan.budget.left, 0.0) / needed)))
    costs = {key: cost * slowness for key, cost in plan.costs.items()}
    return with_epochs(dataclasses.replace(plan, costs=costs), epochs)


# -------------------------------------------------------------------------------------- what a budget has led to before


def keep_choice(plan: Plan) -> None:
    """Keep what the plan's budget led to beside its runs."""
    if plan.budget is not None:
        plan.out.mkdir(parents=True, exist_ok=True)
        choice = plan.smaller or Smaller()
        kept = {**choice._asdict(), "epochs": plan.configs[0].training.epochs}
        write_json(plan.out / BUDGETS, _kept(plan.out) | {plan.budget.key: kept})


def kept_choice(out: Path, budget: Budget) -> tuple[Smaller, int] | None:
    """What a budget has led to in ``out``, and the epochs; None if there is nothing that can be used."""
    kept: Any = _kept(out).get(budget.key)
    if isinstance(kept, int):  # as earlier versions wrote it
        return Smaller(), kept
    try:
        return Smaller(tuple(kept["settings"]), kept["seeds"]), int(kept["epochs"])
    except (KeyError, TypeError, ValueError):
        return None


def _kept(out: Path) -> dict[str, Any]:
    try:
        kept = parse_json((out / BUDGETS).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # none yet, or not ours: then it is measured again
        return {}
    return kept if isinstance(kept, dict) else {}

"""Run folders → small records, in groups whose methods can be compared."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeGuard

from adaptive_labels.lab.runs import Predictions, ResidualLabels, RunError, RunFolder, identity_settings, read_choice

METHOD_ORDER = ("baseline", "slr", "alr", "alr-s")

# Settings of the method rather than of the recipe: two runs that differ in these can share a baseline.
_METHOD_KEYS = (
    "method.",
    "plugin_hash",
    "training.residual_lr.",
    "training.residual_weight_decay.",
    "training.residual_schedule.",
)
# Not compared: the seed, and which run or file taught a student, since each seed has a teacher of its own.
_IGNORED_KEYS = ("seed", "method.options.teacher_hash")


@dataclass(frozen=True)
class RunRecord:
    """One run: what it is of, whether it counts, and its metrics."""

    run: RunFolder
    dataset: str
    model: str
    method: str
    label: str  # the method, and in brackets its options where runs of the method differ in them
    seed: int
    epochs: int | None
    settings: Mapping[str, Any]  # the configuration without seed and method, flattened to dotted keys
    options: Mapping[str, Any]  # the method's own settings, flattened
    status: str  # ``finished``, ``diverged``, ``unfinished``, ``unreadable`` or ``duplicate``
    reason: str | None  # why the run is not counted; None when it is
    metrics: Mapping[str, float]  # ``test_top1``, ``validation_nll``, … as fractions, and ``seconds``
    parameters: Mapping[str, int] = field(default_factory=dict)  # how many the network has, and the criterion

    @cached_property
    def predictions(self) -> Predictions | None:
        """What the run predicts, read once."""
        return self.run.load_predictions()

    @cached_property
    def residual_labels(self) -> ResidualLabels | None:
        """What the run has learned at its stored epochs, read once; None if there is no such epoch."""
        stored = self.run.load_residual_labels()
        return stored if stored is not None and len(stored.epochs) else None


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ in method and seed only, so that they can be compared."""

    title: str
    dataset: str
    model: str
    records: tuple[RunRecord, ...]

    @property
    def counted(self) -> tuple[RunRecord, ...]:
        """The records of finished runs, each run once."""
        return tuple(record for record in self.records if record.status == "finished")

    @property
    def left_out(self) -> tuple[RunRecord, ...]:
        """The records that are not counted, each with its reason."""
        return tuple(record for record in self.records if record.status != "finished")

    @cached_property
    def tried(self) -> tuple[Mapping[str, Any], ...]:
        """The networks among which this one was chosen, best first, as `runs.write_choice` has them; none if given."""
        choice = read_choice(self.records[0].run)
        return () if choice is None else tuple(choice["tried"])

    def label_of(self, method: str) -> str | None:
        """The label of a method, or None; of several variants of it, the first."""
        return next((record.label for record in self.counted if record.method == method), None)

    def by_label(self) -> dict[str, list[RunRecord]]:
        """The counted records by method, the baseline first."""
        return group_by(self.counted, lambda record: record.label)


def group_by(records: Iterable[RunRecord], key: Callable[[RunRecord], str]) -> dict[str, list[RunRecord]]:
    """The records by their key, in the order of the first of each."""
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def read_run_records(runs: Iterable[RunFolder]) -> list[RunRecord]:
    """A record for each run, in a fixed order; runs that cannot be counted carry a status and a reason.

    A run without a readable configuration belongs to no data set and raises a `RunError`.
    """
    return _mark_duplicates(sorted(_with_labels([_read(run) for run in runs]), key=_order))


def group_records(records: Sequence[RunRecord]) -> list[RunGroup]:
    """Put together the runs that may be compared; titles name what tells apart groups of the same data and model."""
    by_settings = list(group_by(records, lambda record: _text(record.settings)).values())
    named = ("data.name", "dataset", "model.name", "model")
    groups = []
    for members in by_settings:
        first = members[0]
        title = f"{first.dataset}, {first.model}"
        alike = [record.settings for record, *_ in by_settings if f"{record.dataset}, {record.model}" == title]
        extra = [key for key in differing(alike) if key not in named]
        title += f" ({describe_settings(first.settings, extra)})" if extra else ""
        groups.append(RunGroup(title, first.dataset, first.model, tuple(members)))
    return sorted(groups, key=lambda group: group.title)


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys whose values are not the same in all ``settings``, sorted."""
    keys = sorted({key for values in settings for key in values})
    return [key for key in keys if len({_text(values.get(key)) for values in settings}) > 1]


def describe_settings(settings: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Write settings as ``name=value`` pairs, each by the last part of its key; of a fingerprint the beginning."""
    values = {key: "none" if settings.get(key) is None else settings[key] for key in keys}
    if "data.fingerprint" in values:
        values["data.fingerprint"] = str(values["data.fingerprint"])[:8]
    return ", ".join(
        f"{key.rpartition('.')[2]}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in values.items()
    )


def flatten(config: Mapping[str, Any], prefix: str = "", joint: str = ".") -> dict[str, Any]:
    """Turn nested dicts into one with dotted keys; an empty dict disappears.

    >>> flatten({"a": {"b": 1, "c": {}}, "d": [2]})
    {'a.b': 1, 'd': [2]}
    """
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{key}{joint}", joint))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _read(run: RunFolder) -> RunRecord:
    config = run.config
    flat = {key: value for key, value in flatten(identity_settings(config)).items() if key not in _IGNORED_KEYS}
    options = {key: value for key, value in flat.items() if f"{key}.".startswith(_METHOD_KEYS)}
    status, reason, result = _status(run)
    measured = flatten({**result.get("metrics", {}), "seconds": result.get("seconds")}, joint="_")
    metrics = {name: float(value) for name, value in measured.items() if is_number(value)}
    if status == "finished" and "test_top1" not in metrics:
        status, reason = "unreadable", "result.json has no test top1"
    return RunRecord(
        run=run,
        dataset=result.get("dataset", config.data.name),
        model=result.get("model", str(config.model.name)),
        method=config.method.name,
        label=config.method.name,
        seed=config.seed,
        epochs=result.get("epochs", config.training.epochs),
        settings={key: value for key, value in flat.items() if key not in options},
        options=options,
        status=status,
        reason=reason,
        metrics=metrics,
        parameters={name: count for name, count in result.get("parameters", {}).items() if isinstance(count, int)},
    )


def _status(run: RunFolder) -> tuple[str, str | None, dict[str, Any]]:
    try:
        result = run.result
    except RunError as error:
        return "unreadable", str(error), {}
    if result is None:
        return "unfinished", "has no result yet; rerunning its command goes on where it stopped", {}
    if result["status"] != "finished":
        return result["status"], result["reason"] or "no reason was recorded", result
    return "finished", None, result


def _mark_duplicates(records: list[RunRecord]) -> list[RunRecord]:
    first: dict[str, RunRecord] = {}
    marked = []
    for record in records:
        if record.status == "finished":
            known = first.setdefault(_text([record.settings, record.options, record.seed]), record)
            if known is not record:
                reason = f"the same configuration and seed as {known.run.path}"
                if _teacher(record) != _teacher(known):  # which is not compared
                    reason += ", with another teacher; give the runs of one teacher only"
                record = replace(record, status="duplicate", reason=reason)
        marked.append(record)
    return marked


def _teacher(record: RunRecord) -> Any:
    return record.run.config.method.options.get("teacher_hash")


def _with_labels(records: list[RunRecord]) -> list[RunRecord]:
    """Put into the label the options in which the runs of one method and one group differ."""
    labelled = []
    for members in group_by(records, lambda record: _text([record.settings, record.method])).values():
        keys = differing([record.options for record in members])
        for record in members:
            given = [key for key in keys if record.options.get(key) is not None]
            label = f"{record.method} ({describe_settings(record.options, given)})" if given else record.method
            labelled.append(replace(record, label=label))
    return labelled


def _order(record: RunRecord) -> tuple[Any, ...]:
    """By data and model; baseline, slr, alr, alr-s, then the other methods by name; then options and seed."""
    place = METHOD_ORDER.index(record.method) if record.method in METHOD_ORDER else len(METHOD_ORDER)
    options = _text(record.options)
    return (record.dataset, record.model, place, record.method, options, record.seed, str(record.run.path))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value of a JSON file is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)

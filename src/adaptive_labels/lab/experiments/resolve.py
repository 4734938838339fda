"""What the data leaves open, chosen: from a configuration as the user gave it to one that can be trained."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adaptive_labels.errors import did_you_mean
from adaptive_labels.lab.config import ConfigError, DataConfig, RunConfig, changed, resolve
from adaptive_labels.lab.data import (
    DATASETS,
    Dataset,
    Encoder,
    Pretrained,
    encoder_options,
    encoder_to_dict,
    length_notes,
    pretraining_notes,
)
from adaptive_labels.lab.experiments import build, teachers
from adaptive_labels.lab.experiments.defaults import choose
from adaptive_labels.lab.files import expanded
from adaptive_labels.lab.models import match_weights


def resolve_for(config: RunConfig, dataset: Dataset) -> tuple[RunConfig, tuple[str, ...]]:
    """Choose what the user left open: the whole configuration, and why, in sentences.

    The data set's fingerprint becomes part of it, so that changed data is a new run. What is misspelt or impossible is
    refused here, before anything is trained.
    """
    choice = choose(dataset, config.model.name, config.model.options)
    config = resolve(config, {**choice.settings, "data.fingerprint": dataset.fingerprint})
    config = changed(config, "data", name=_place_of(config.data))
    config = changed(config, "model", options={**choice.model_options, **config.model.options})
    _check_options(config, dataset)
    encoder = build.make_encoder(config, dataset)
    network = build.outline(config, dataset, encoder)
    with build.from_user("method"):
        config = teachers.with_plugin_hash(teachers.resolve_networks(config))
    options = config.method.options
    if isinstance(options.get("initial_labels"), str):
        found = build.checked_hash(build.LABELS, options["initial_labels"], options.get("initial_labels_hash"))
        config = changed(config, "method", options={**options, "initial_labels_hash": found})
    build.make_criterion(config, dataset)
    build.make_augment(config, dataset)
    _check_other_networks(config, dataset, encoder)
    config = teachers.check_teacher(config, dataset, encoder_to_dict(encoder))
    notes = (*length_notes(encoder, dataset.train.inputs), *pretraining_notes(encoder, dataset.name))
    reasons = (choice.reason, *notes)
    if isinstance(encoder, Pretrained) and encoder.name:  # what is in the folder of that name may change
        config = changed(config, "model", weights_hash=encoder.weights)
    if config.model.weights is not None:
        with build.from_user(build.WEIGHTS):
            reasons += (match_weights(network, config.model.weights).note,)
        found = build.checked_hash(build.WEIGHTS, config.model.weights, config.model.weights_hash)
        config = changed(config, "model", weights_hash=found)
    return config, reasons


def resolve_methods(
    config: RunConfig, methods: Sequence[tuple[str, Mapping[str, Any]]], dataset: Dataset
) -> list[tuple[RunConfig, tuple[str, ...]]]:
    """The configuration of each method (its name and options) that shares ``config``, and why it is so."""
    # Shared options on teachers and peers are for the methods that have such.
    of_some = {option for name, _ in methods for option in teachers.options_on_networks(name)}
    resolved = []
    for name, options in methods:
        others = of_some - {*teachers.options_on_networks(name)}
        shared = {key: value for key, value in config.method.options.items() if key not in others}
        resolved.append(resolve_for(teachers.with_method(config, name, {**shared, **options}), dataset))
    return resolved


def _place_of(data: DataConfig) -> str:
    """The data set's name; of the user's own data the whole path, so that every spelling of it is the same run."""
    if data.name not in DATASETS:
        for path in (expanded(data.name), Path(data.data_dir or ".") / data.name):
            if path.exists():
                return str(path.resolve())
    return data.name


def _check_options(config: RunConfig, dataset: Dataset) -> None:
    """Refuse a network that reads something else, and an option that neither it nor its encoder has."""
    with build.from_user("model"):
        entry = build.entry_of(config)
    if entry.kind != dataset.kind:
        raise ConfigError(f"model: {config.model.name!r} reads {entry.kind}s, but {dataset.name} holds {dataset.kind}s")
    known = sorted({*entry.options, *encoder_options(build.reads(config))})
    for option in config.model.options:
        if option not in known:
            raise ConfigError(
                f"model.options.{option}: {entry.name!r} has {', '.join(known)}{did_you_mean(option, known)}"
            )


def _check_other_networks(config: RunConfig, dataset: Dataset, encoder: Encoder) -> None:
    own = build.reads(config)
    for other in (*teachers.networks(config)[1:], *(needed.model for needed in teachers.needed_runs(config))):
        if other != config.model:
            beside = dataclasses.replace(config, model=other)
            _check_options(beside, dataset)
            if build.reads(beside) != own:
                raise ConfigError(
                    f"method: {config.model.name!r} reads {own} and {other.name!r} reads {build.reads(beside)}: "
                    "networks that learn from one another must read the same inputs"
                )
            build.outline(beside, dataset, encoder)

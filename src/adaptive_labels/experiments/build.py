"""From a configuration to objects: data, encoder, model, criterion. The only place where plain data becomes objects."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from adaptive_labels.config import ConfigError, DataConfig, RunConfig, changed, from_dict, resolve
from adaptive_labels.data import (
    DATASETS,
    DataError,
    Dataset,
    EncodedExamples,
    Encoder as Encoder,
    encode as encode,
    encoder_from_dict,
    encoder_options,
    encoder_to_dict as encoder_to_dict,
    fit_encoder,
    inject_noise,
    length_notes,
    load_dataset,
)
from adaptive_labels.data.augment import alternating_flip, random_crop, random_cutout, random_flip
from adaptive_labels.errors import did_you_mean
from adaptive_labels.experiments import teachers as teaching
from adaptive_labels.experiments.defaults import choose
from adaptive_labels.files import read_json, read_npz
from adaptive_labels.losses import Criterion, create_loss
from adaptive_labels.models import create_model, file_hash, find_model, load_weights, match_weights
from adaptive_labels.models.registry import ModelEntry, shapes_only as shapes_only
from adaptive_labels.objectives import Distilled, Inputs, Mutual, Objective, Refined, Supervised
from adaptive_labels.runs import RunError, RunFolder
from adaptive_labels.runs.arrays import load_residual_labels

_LABELS, _WEIGHTS = "method.options.initial_labels", "model.weights"
FITTED_EXAMPLES = 5_000  # what a network with `fit_inputs` is shown


@dataclass(frozen=True)
class Prepared:
    """A data set as a model reads it."""

    dataset: Dataset
    encoder: Encoder
    train: EncodedExamples
    validation: EncodedExamples
    test: EncodedExamples


def load_data(config: DataConfig) -> Dataset:
    """The data set that a configuration names, with label noise if it asks for it."""
    dataset = load_dataset(
        config.name,
        split_seed=config.split_seed,
        train_fraction=config.train_fraction,
        data_dir=None if config.data_dir is None else Path(config.data_dir),
        text_column=config.text_column,
        label_column=config.label_column,
        image_size=config.image_size,
        skip_unreadable=config.skip_unreadable,
        drop_unlabelled=config.drop_unlabelled,
        min_per_class=config.min_per_class,
    )
    return inject_noise(dataset, config.label_noise, config.noise_seed) if config.label_noise > 0 else dataset


def resolve_for(config: RunConfig, dataset: Dataset) -> tuple[RunConfig, tuple[str, ...]]:
    """Choose what the user left open: the whole configuration, and why, in sentences.

    The data set's fingerprint becomes part of it, so that changed data is a new run. What is misspelt or impossible is
    refused here, before anything is trained.
    """
    choice = choose(dataset, config.model.name)
    config = resolve(config, {**choice.settings, "data.fingerprint": dataset.fingerprint})
    config = changed(config, "data", name=_place_of(config.data))
    config = changed(config, "model", options={**choice.model_options, **config.model.options})
    _check_options(config, dataset)
    encoder = make_encoder(config, dataset)
    outline = _outline(config, dataset, encoder)
    with _from_user("method"):
        config = teaching.settle(config)
    options = config.method.options
    if isinstance(options.get("initial_labels"), str):
        found = _checked_hash(_LABELS, options["initial_labels"], options.get("initial_labels_hash"))
        config = changed(config, "method", options={**options, "initial_labels_hash": found})
    make_criterion(config, dataset)
    _check_other_networks(config, dataset, encoder)
    config = teaching.check_teacher(config, dataset, encoder_to_dict(encoder))
    reasons = (choice.reason, *length_notes(encoder, dataset.splits()))
    if config.model.weights is not None:
        with _from_user(_WEIGHTS):
            reasons += (match_weights(outline, config.model.weights).note,)
        found = _checked_hash(_WEIGHTS, config.model.weights, config.model.weights_hash)
        config = changed(config, "model", weights_hash=found)
    return config, reasons


def _place_of(data: DataConfig) -> str:
    """The data set's name; of the user's own data the whole path, so that every spelling of it is the same run."""
    if data.name not in DATASETS:
        for path in (Path(data.name).expanduser(), Path(data.data_dir or ".") / data.name):
            if path.exists():
                return str(path.resolve())
    return data.name


def _check_options(config: RunConfig, dataset: Dataset) -> None:
    """Refuse a network that reads something else, and an option that neither it nor its encoder has."""
    with _from_user("model"):
        entry = _entry(config)
    if entry.kind != dataset.kind:
        raise ConfigError(f"model: {config.model.name!r} reads {entry.kind}s, but {dataset.name} holds {dataset.kind}s")
    known = sorted({*entry.options, *encoder_options(entry.reads)})
    for option in config.model.options:
        if option not in known:
            raise ConfigError(
                f"model.options.{option}: {entry.name!r} has {', '.join(known)}{did_you_mean(option, known)}"
            )


def _check_other_networks(config: RunConfig, dataset: Dataset, encoder: Encoder) -> None:
    own = _entry(config).reads
    for other in (*teaching.networks(config)[1:], *(needed.model for needed in teaching.needed_runs(config))):
        if other != config.model:
            beside = dataclasses.replace(config, model=other)
            _check_options(beside, dataset)
            if _entry(beside).reads != own:
                raise ConfigError(
                    f"method: {config.model.name!r} reads {own} and {other.name!r} reads {_entry(beside).reads}: "
                    "networks that learn from one another must read the same inputs"
                )
            _outline(beside, dataset, encoder)


def _outline(config: RunConfig, dataset: Dataset, encoder: Encoder) -> nn.Module:
    """The network's shapes without numbers; options that make no network are refused."""
    with shapes_only():
        return make_model(config, dataset.num_classes, encoder.sizes)


def _checked_hash(key: str, path: str, stated: str | None) -> str:
    """The hash of a file that a setting names; a ConfigError if it cannot be read or has changed."""
    with _from_user(key):
        found = file_hash(path)
    if stated not in (None, found):
        raise ConfigError(f"{key}: {path} has changed: its content is not what {key}_hash says")
    return found


@contextmanager
def _from_user(key: str) -> Iterator[None]:
    """A context for calls with the user's values: what they refuse becomes a ConfigError that names the setting."""
    try:
        yield
    except (ConfigError, DataError):
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{key}: {error}") from error


# ---------------------------------------------------------------------------------------------------- encoded data


def prepare(config: RunConfig, dataset: Dataset) -> Prepared:
    """Encode all three splits; what is fitted is fitted on train."""
    encoder = make_encoder(config, dataset)
    return Prepared(dataset, encoder, *(encode(encoder, examples) for _, examples in dataset.splits()))


def save_prepared(prepared: Prepared, path: Path) -> bool:
    """Write prepared data for other processes of this command; False, and nothing, if it is in files already."""
    if not isinstance(prepared.dataset.train.inputs, list | Tensor):
        return False
    torch.save(prepared, path)
    return True


def load_prepared(path: str) -> Prepared:
    """What `save_prepared` wrote, its tensors memory-mapped: several processes share them.

    It may run code, as pickles do, and so only ever opens a file that this command has written.
    """
    prepared: Prepared = torch.load(path, mmap=True, weights_only=False)
    return prepared


def reading(config: RunConfig) -> str:
    """What a configuration's network reads and how, in a text: equal for networks that can share encoded data."""
    reads = _entry(config).reads
    known = encoder_options(reads)
    return json.dumps([reads, {name: value for name, value in config.model.options.items() if name in known}])


_ENCODERS: WeakKeyDictionary[Dataset, dict[str, Encoder]] = WeakKeyDictionary()


def make_encoder(config: RunConfig, dataset: Dataset) -> Encoder:
    """The encoder that makes what the network reads, fitted on train; once per data set, for all methods."""
    fitted, key = _ENCODERS.setdefault(dataset, {}), reading(config)
    if key not in fitted:
        reads, settings = json.loads(key)
        with _from_user("model.options"):
            fitted[key] = fit_encoder(reads, dataset.train, settings)
    return fitted[key]


# -------------------------------------------------------------------------------------------- networks and criterion


def _entry(config: RunConfig) -> ModelEntry:
    assert config.model.name is not None  # it is resolved
    return find_model(config.model.name)[0]


def kind_of_inputs(config: RunConfig) -> str:
    """What the network of a configuration reads: ``"image"`` or ``"text"``."""
    return _entry(config).kind


def make_model(config: RunConfig, num_classes: int, sizes: Mapping[str, int]) -> nn.Module:
    """The network of a configuration; ``sizes`` are those that its encoder decides (see `Encoder.sizes`)."""
    others = encoder_options(_entry(config).reads)
    own = {name: value for name, value in config.model.options.items() if name not in others}
    with _from_user("model"):
        return create_model(str(config.model.name), num_classes, **{**sizes, **own})


def make_criterion(config: RunConfig, dataset: Dataset) -> Criterion:
    """The method's criterion, with class weights if the configuration asks for them."""
    weight = None
    if config.training.class_weights == "balanced":
        counts = torch.bincount(dataset.train.labels, minlength=dataset.num_classes).clamp_min(1)
        weight = len(dataset.train) / (dataset.num_classes * counts.float())
    options = {"weight": weight, **teaching.criterion_options(config)}
    if isinstance(path := options.get("initial_labels"), str):
        _checked_hash(_LABELS, path, config.method.options.get("initial_labels_hash"))  # it may have changed meanwhile
        options["initial_labels"] = _read_labels(path)
    with _from_user("method"):
        return create_loss(config.method.name, dataset.num_classes, **options)


def _read_labels(path: str) -> Tensor:
    """A (K, K) matrix from a file: a run's residual_labels.npz (its last epoch), or any .npz with ``labels``."""
    try:
        arrays = read_npz(path)
        labels = (arrays["labels"] if "labels" in arrays else load_residual_labels(Path(path)).matrix()).astype(
            np.float32
        )
    except RunError as error:
        raise ConfigError(f"{_LABELS}: {path} cannot be read as labels: {error}") from error
    return torch.from_numpy(labels if labels.ndim == 2 else labels[-1])


def make_objective(
    config: RunConfig, dataset: Dataset, encoder: Encoder, teacher: nn.Module | None = None
) -> Objective:
    """Networks and criterion, initialised from the run's seed; torch's random state is put back.

    The first network starts as that of any other method with this seed; further ones are drawn after it. ``teacher`` is
    what a method learns from that has one.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        models = [
            make_model(dataclasses.replace(config, model=model), dataset.num_classes, encoder.sizes)
            for model in teaching.networks(config)
        ]
        for model in models:
            _fit_inputs(model, dataset, encoder)
        if config.model.weights is not None:
            _checked_hash(_WEIGHTS, config.model.weights, config.model.weights_hash)
            with _from_user(_WEIGHTS):
                load_weights(models[0], config.model.weights)
        criterion = make_criterion(config, dataset)
    guide = teaching.guide_of(config)
    if guide is None:
        return Supervised(models[0], criterion)
    if guide == "peers":
        return Mutual(models, criterion)
    if teacher is None:
        raise ValueError(f"teacher is None, but {config.method.name!r} learns from one")
    return Distilled(models[0], criterion, teacher) if guide == "teacher" else Refined(models[0], criterion, teacher)


def _fit_inputs(model: nn.Module, dataset: Dataset, encoder: Encoder) -> None:
    """Show a network with `fit_inputs` encoded training examples, evenly spread and the same for every seed."""
    fit_inputs = getattr(model, "fit_inputs", None)
    if fit_inputs is not None:
        count = len(dataset.train)
        chosen = torch.linspace(0, count - 1, min(count, FITTED_EXAMPLES)).round().long()
        fit_inputs(encode(encoder, dataset.train).batch(chosen))


def load_network(run: RunFolder) -> tuple[nn.Module, Encoder, tuple[str, ...]]:
    """The network of a finished run with its weights, how it reads its inputs, and its classes."""
    encoder = encoder_from_dict(read_json(run.path / "encoder.json"))
    predictions = run.load_predictions()
    if predictions is None or predictions.classes is None:
        raise RunError(f"{run.path / 'predictions.npz'} is missing; the class names are in it")
    with torch.random.fork_rng(devices=[]):
        model = make_model(from_dict(run.config), len(predictions.classes), encoder.sizes)
    model.load_state_dict(load_file(run.path / "model.safetensors"))
    return model, encoder, tuple(predictions.classes)


def make_augment(
    config: RunConfig, dataset: Dataset
) -> Callable[[Inputs, torch.Generator, int, Tensor], Inputs] | None:
    """Flips of whole image batches where they are in colour, shifts and cutouts; or None.

    Grey images are mostly writing, and a mirrored character is another one. Images that stay files are cropped and
    flipped one by one as they are read (see `data.encoders.images`), not here.
    """
    training, images = config.training, dataset.train.inputs
    if not training.augment or not isinstance(images, Tensor):
        return None
    flip = training.flip if images.shape[1] == 3 else "none"
    reflect = training.translate is not None
    padding = max(1, images.shape[3] // 8) if training.translate is None else training.translate
    first = torch.rand(len(images), generator=torch.Generator().manual_seed(config.seed)) < 0.5

    def augment(inputs: Inputs, generator: torch.Generator, epoch: int, indices: Tensor) -> Inputs:
        assert isinstance(inputs, Tensor)
        if flip == "random":
            inputs = random_flip(inputs, generator)
        elif flip == "alternating":
            inputs = alternating_flip(inputs, first[indices], epoch)
        if padding:
            inputs = random_crop(inputs, padding, generator, reflect=reflect)
        return random_cutout(inputs, training.cutout, generator) if training.cutout else inputs

    return augment


def describe(config: RunConfig) -> str:
    """The resolved recipe in a line."""
    training = config.training
    shown = [
        f"{training.epochs} {'epoch' if training.epochs == 1 else 'epochs'}",
        f"batch {training.batch_size}",
        f"{training.optimizer} at {training.lr:g}",
        str(training.schedule),
        *(f"{name} {value}" for name, value in config.model.options.items()),
    ]
    return f"{config.model.name}: " + ", ".join(shown)

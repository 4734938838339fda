"""From a configuration to objects: data, encoder, model, criterion. The only place where plain data becomes objects."""

import dataclasses
import inspect
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from adaptive_labels.errors import UserError
from adaptive_labels.lab.config import ConfigError, DataConfig, ModelConfig, RunConfig
from adaptive_labels.lab.data import (
    DataError,
    Dataset,
    EncodedExamples,
    Encoder as Encoder,
    OnProgress,
    TableRows,
    encode_split as encode_split,
    encoder_from_dict,
    encoder_options,
    encoder_to_dict as encoder_to_dict,
    fit_encoder,
    inject_noise,
    load_dataset,
)
from adaptive_labels.lab.data.augment import alternating_flip, random_crop, random_cutout, random_flip
from adaptive_labels.lab.experiments import teachers
from adaptive_labels.lab.experiments.corrections import correct
from adaptive_labels.lab.experiments.defaults import has_needless_pixels, largest_size
from adaptive_labels.lab.files import file_hash, read_json, read_npz, refuse_special
from adaptive_labels.lab.models import create_model, find_model, load_weights
from adaptive_labels.lab.models.pretrained import PackageError
from adaptive_labels.lab.models.registry import ModelEntry, shapes_only as shapes_only
from adaptive_labels.lab.objectives import Distilled, Inputs, Mutual, Objective, Refined, Supervised
from adaptive_labels.lab.runs import RunError, RunFolder
from adaptive_labels.lab.runs.arrays import load_residual_labels
from adaptive_labels.lab.training.batches import Augment, ProcessSlice
from adaptive_labels.lab.words import plural
from adaptive_labels.losses import Criterion, create_loss

LABELS, WEIGHTS = "method.options.initial_labels", "model.weights"
_READING = inspect.signature(load_dataset).parameters  # the settings of data that say how it is read and split
FITTED_EXAMPLES = 5_000  # what a network with `fit_inputs` is shown


@dataclass(frozen=True)
class Prepared:
    """A data set as a model reads it."""

    dataset: Dataset
    encoder: Encoder
    train: EncodedExamples
    validation: EncodedExamples
    test: EncodedExamples


def load_data(config: DataConfig, model: ModelConfig = ModelConfig()) -> Dataset:  # noqa: B008 (it never changes)
    """The data set that a configuration names, with the label noise and the corrections that it asks for.

    ``model`` is the network that it is for, if that is known: a pretrained one sees images larger than others do.
    """
    settings = {name: value for name, value in vars(config).items() if name in _READING}
    load = partial(load_dataset, config.name, **settings)
    dataset = load(largest_size=largest_size(model.name, model.options))
    if model.name is None and has_needless_pixels(dataset):
        dataset = load()
    if config.label_noise > 0:
        dataset = inject_noise(dataset, config.label_noise, config.noise_seed)
    return correct(dataset, config.drop_suspects, config.relabel)


def data_of_run(run: RunFolder) -> Dataset:
    """The data set that a run was trained on, read again; a `RunError` if it is gone or has changed."""
    config = run.config
    try:
        dataset = load_data(config.data, config.model)
    except DataError as error:
        raise RunError(f"the training data of {run.path} cannot be read again: {error}") from error
    if dataset.fingerprint != config.data.fingerprint:
        raise RunError(f"{config.data.name} is not the data that {run.path} was trained on: its content has changed")
    return dataset


def outline(config: RunConfig, dataset: Dataset, encoder: Encoder) -> nn.Module:
    """The network's shapes without numbers; options that make no network are refused."""
    with shapes_only():
        return make_model(config, dataset.num_classes, encoder.sizes)


def checked_hash(key: str, path: str, stated: str | None) -> str:
    """The hash of a file that a setting names; a ConfigError if it cannot be read or has changed."""
    try:
        content_hash = file_hash(path)
    except OSError as error:
        raise ConfigError(f"{key}: {path} cannot be read: {error.strerror}") from error
    if stated not in (None, content_hash):
        raise ConfigError(f"{key}: {path} has changed: its content is not what {key}_hash says")
    return content_hash


@contextmanager
def from_user(key: str, options: Mapping[str, Any] | None = None) -> Iterator[None]:
    """A context for calls with the user's values: what they refuse becomes a ConfigError that names the setting.

    Python's own words for a text where a number belongs name no setting: then ``options`` are searched for it.
    """
    try:
        yield
    except (ConfigError, DataError, PackageError):
        raise
    except (TypeError, ValueError) as error:
        if "not supported between" in str(error) or "unsupported operand" in str(error):
            texts = [f"{name} is {value!r}" for name, value in (options or {}).items() if _has_text(value)]
            if texts:
                raise ConfigError(f"{key}: {', '.join(texts)}: allowed is a number") from error
        raise ConfigError(f"{key}: {error}") from error


def _has_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list | tuple) and any(map(_has_text, value)))


# ---------------------------------------------------------------------------------------------------- encoded data


def prepare_data(config: RunConfig, dataset: Dataset, progress: OnProgress | None = None) -> Prepared:
    """Encode all splits by what is fitted on train; ``progress`` hears how far a pretrained encoder is."""
    encoder = make_encoder(config, dataset)
    return Prepared(dataset, encoder, *(encode_split(encoder, examples, progress) for _, examples in dataset.splits()))


def save_prepared(prepared: Prepared, path: Path) -> bool:
    """Write prepared data for other processes of this command; False, and nothing, if it is in files already."""
    if not isinstance(prepared.dataset.train.inputs, list | Tensor | TableRows):
        return False
    torch.save(prepared, path)
    return True


def load_prepared(path: Path) -> Prepared:
    """What `save_prepared` wrote, its tensors memory-mapped: several processes share them.

    It may run code, as pickles do, and so only ever opens a file that this command has written.
    """
    prepared: Prepared = torch.load(path, mmap=True, weights_only=False)
    return prepared


def reading(config: RunConfig) -> str:
    """What a configuration's network reads and how, in a text: equal for networks that can share encoded data."""
    encoder = reads(config)
    known = encoder_options(encoder)
    return json.dumps([encoder, {name: value for name, value in config.model.options.items() if name in known}])


_ENCODERS: WeakKeyDictionary[Dataset, dict[str, Encoder]] = WeakKeyDictionary()


def make_encoder(config: RunConfig, dataset: Dataset) -> Encoder:
    """The encoder that makes what the network reads, fitted on train; once per data set, for all methods."""
    fitted, key = _ENCODERS.setdefault(dataset, {}), reading(config)
    if key not in fitted:
        reads, settings = json.loads(key)
        with from_user("model.options", settings):
            fitted[key] = fit_encoder(reads, dataset.train, settings)
    return fitted[key]


def make_augment(config: RunConfig, dataset: Dataset) -> Augment | None:
    """Flips of whole image batches where they are in colour, shifts and cutouts; or None.

    Grey images are mostly writing, and a mirrored character is another one. Images that stay files are cropped and
    flipped one by one as they are read (see `data.encoders.images`), not here.
    """
    training, images = config.training, dataset.train.inputs
    sees_pixels = reads(config) == "pixels" or config.model.options.get("tune")
    if not training.augment or not isinstance(images, Tensor) or not sees_pixels:
        return None
    side, reflect = min(images.shape[2:]), training.translate is not None
    for key, most in (("cutout", side), ("translate", side - 1)):
        if reads(config) == "pixels" and (value := getattr(training, key) or 0) > most:
            raise ConfigError(f"training.{key} is {value}: for images of {side} pixels at most {most} is allowed")
    flip = training.flip if images.shape[1] == 3 else "none"
    padding = max(1, images.shape[3] // 8) if training.translate is None else training.translate
    first = torch.rand(len(images), generator=torch.Generator().manual_seed(config.seed)) < 0.5

    def augment(inputs: Inputs, generator: torch.Generator, epoch: int, part: ProcessSlice) -> Inputs:
        assert isinstance(inputs, Tensor)
        in_batch = part.begin, len(part.whole)
        if flip == "random":
            inputs = random_flip(inputs, generator, in_batch)
        elif flip == "alternating":
            inputs = alternating_flip(inputs, first[part.indices], epoch)
        if padding:
            inputs = random_crop(inputs, padding, generator, in_batch, reflect=reflect)
        return random_cutout(inputs, training.cutout, generator, in_batch) if training.cutout else inputs

    return augment


# -------------------------------------------------------------------------------------------- networks and criterion


def entry_of(config: RunConfig) -> ModelEntry:
    """What the network of a resolved configuration is registered as."""
    assert config.model.name is not None  # it is resolved
    return find_model(config.model.name)[0]


def reads(config: RunConfig) -> str:
    """The name of the encoder that the network of a configuration reads through."""
    return entry_of(config).reads_with(config.model.options)


def make_model(config: RunConfig, num_classes: int, sizes: Mapping[str, int]) -> nn.Module:
    """The network of a configuration; ``sizes`` are those that its encoder decides (see `Encoder.sizes`)."""
    options = network_options(config, sizes)
    with from_user("model", options):
        return create_model(str(config.model.name), num_classes, **options)


def network_options(config: RunConfig, sizes: Mapping[str, int]) -> dict[str, Any]:
    """The options that the network itself is built with, those that its encoder decides among them."""
    others = encoder_options(reads(config))
    return {**sizes, **{name: value for name, value in config.model.options.items() if name not in others}}


def make_criterion(config: RunConfig, dataset: Dataset) -> Criterion:
    """The method's criterion, with class weights if the configuration asks for them."""
    weight = None
    if config.training.class_weights == "balanced":
        counts = torch.bincount(dataset.train.labels, minlength=dataset.num_classes).clamp_min(1)
        weight = len(dataset.train) / (dataset.num_classes * counts.float())
    options = {"weight": weight, **teachers.criterion_options(config)}
    if isinstance(path := options.get("initial_labels"), str):
        checked_hash(LABELS, path, config.method.options.get("initial_labels_hash"))  # it may have changed meanwhile
        options["initial_labels"] = _read_labels(path)
    with from_user("method", options):
        criterion = create_loss(config.method.name, dataset.num_classes, **options)
    if criterion.reduction != "mean":
        raise ConfigError(f"method.options.reduction is {criterion.reduction!r}: a run trains the mean and records it")
    return criterion


def _read_labels(path: str) -> Tensor:
    """A (K, K) matrix from a file: a run's residual_labels.npz (its last epoch), or any .npz with ``labels``."""
    try:
        arrays = read_npz(path)
        labels = arrays["labels"] if "labels" in arrays else load_residual_labels(Path(path)).matrix()
        labels = labels.astype(np.float32)
        return torch.from_numpy(labels if labels.ndim == 2 else labels[-1])
    except (RunError, ValueError, TypeError, IndexError) as error:
        raise ConfigError(f"{LABELS}: {path} cannot be read as labels: {error}") from error


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
            for model in teachers.networks(config)
        ]
        for model in models:
            _fit_inputs(model, dataset, encoder)
        if config.model.weights is not None:
            checked_hash(WEIGHTS, config.model.weights, config.model.weights_hash)
            with from_user(WEIGHTS):
                load_weights(models[0], config.model.weights)
        criterion = make_criterion(config, dataset)
    source = teachers.learns_from(config)
    if source is None:
        return Supervised(models[0], criterion)
    if source == "peers":
        return Mutual(models, criterion)
    if teacher is None:
        raise ValueError(f"teacher is None, but {config.method.name!r} learns from one")
    return Distilled(models[0], criterion, teacher) if source == "teacher" else Refined(models[0], criterion, teacher)


def _fit_inputs(model: nn.Module, dataset: Dataset, encoder: Encoder) -> None:
    """Show a network with `fit_inputs` encoded training examples, evenly spread and the same for every seed.

    One with `start`, whose encoder is trained along, gets all features that the encoder makes before that.
    """
    start = getattr(model, "start", None)
    if start is not None and dataclasses.is_dataclass(encoder):
        frozen: Any = dataclasses.replace(encoder, tune=False)
        features = frozen.encode(dataset.train.inputs)
        start(features.batch(torch.arange(len(dataset.train))), dataset.train.labels)
        return
    fit_inputs = getattr(model, "fit_inputs", None)
    if fit_inputs is not None:
        count = len(dataset.train)
        chosen = torch.linspace(0, count - 1, min(count, FITTED_EXAMPLES)).round().long()
        fit_inputs(encode_split(encoder, dataset.train).batch(chosen))


def has_batch_norm(config: RunConfig, prepared: Prepared) -> bool:
    """Whether the network of a configuration normalises by what a batch has in common."""
    network = outline(config, prepared.dataset, prepared.encoder)
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in network.modules())


def load_network(run: RunFolder) -> tuple[nn.Module, Encoder, tuple[str, ...]]:
    """The network of a finished run with its weights, how it reads its inputs, and its classes."""
    config, path = run.config, run.checked("encoder.json")
    if config.model.name is None:
        raise RunError(f"{run.path / 'config.json'} names no model.")
    if config.plugin_hash is not None:
        _check_plugin(config, run)
    try:
        encoder = encoder_from_dict(read_json(path))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RunError(f"{path} does not say how inputs are read: {error}.") from error
    predictions = run.load_predictions()
    if predictions is None:
        raise RunError(f"{run.path / 'predictions.npz'} is missing; the class names are in it")
    with torch.random.fork_rng(devices=[]):
        model = make_model(config, len(predictions.classes), encoder.sizes)
    weights = run.checked("model.safetensors")
    try:
        refuse_special(weights)
        model.load_state_dict(load_file(weights))
    except (OSError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise RunError(f"{weights} does not hold the weights of the run's network: {reason}") from error
    return model, encoder, predictions.classes


def _check_plugin(config: RunConfig, run: RunFolder) -> None:
    """Refuse a network of the user's own that is not loaded, or is another one than the run was trained with."""
    try:
        if entry_of(config).source_hash is not None and teachers.with_plugin_hash(config) != config:
            raise RunError(f"{run.path} was trained with another version of the plugin than the one that is loaded")
    except UserError as error:
        if isinstance(error, RunError):
            raise
        raise RunError(f"{run.path} needs the file of its model, with --plugin FILE.py: {error}") from error


def describe_recipe(config: RunConfig) -> str:
    """The resolved recipe in a line."""
    training = config.training
    shown = [
        plural(training.epochs or 0, "epoch"),
        f"batch {training.batch_size}",
        f"{training.optimizer} at {training.lr:g}",
        str(training.schedule),
        *(f"{name} {value}" for name, value in config.model.options.items()),
    ]
    return f"{config.model.name}: " + ", ".join(shown)

"""A run as plain data: frozen dataclasses, strict about names, types and ranges.

`None` in a setting marked *chosen by the data* (epochs, rate, model, …) stands for "not given": the builder fills it
with `resolve` before training. Everywhere else `None` means "off".

>>> config = with_settings(RunConfig(), ["lr=0.1", "method.name=alr", "training.milestones=60,120"])
>>> config.training.lr, config.method.name, config.training.milestones
(0.1, 'alr', (60.0, 120.0))
>>> from_dict(to_dict(config)) == config
True
"""

import copy
import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Literal, get_type_hints

from adaptive_labels.errors import did_you_mean
from adaptive_labels.lab.config.checks import ConfigError as ConfigError, Rule, Section, guess, parse, typed

_POSITIVE = Rule("a finite number above 0", lambda x: 0 < x < math.inf)
_NOT_NEGATIVE = Rule("a finite number of at least 0", lambda x: 0 <= x < math.inf)
_COUNT = Rule("a whole number of at least 0", lambda x: x >= 0)
_AT_LEAST_ONE = Rule("a whole number of at least 1", lambda x: x >= 1)
_THREADS = Rule("a whole number from 1 to 10000", lambda x: 1 <= x <= 10_000)
_SEED = Rule("a whole number from 0 to 2**63 - 1", lambda x: 0 <= x < 2**63)
_FRACTION = Rule("a number from 0 to 1", lambda x: 0 <= x <= 1)
_SHARE = Rule("a number above 0 and at most 1", lambda x: 0 < x <= 1)
_BELOW_ONE = Rule("a number of at least 0 and below 1", lambda x: 0 <= x < 1)
_BETAS = Rule("two numbers of at least 0 and below 1", lambda x: all(0 <= beta < 1 for beta in x))
_INCREASING = Rule(
    "increasing finite numbers of epochs above 0",
    lambda x: all(0 < epoch < math.inf for epoch in x) and list(x) == sorted(set(x)),
)
_DEVICE = Rule("auto, cpu, mps, cuda or cuda:N", lambda x: re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", x) is not None)
_NAME = Rule("a name or a path, not an empty text", lambda x: x.strip() != "")


def _setting(
    default: Any, rule: Rule | None = None, *, chosen: bool = False, identity: bool | Callable[[Any], Any] = True
) -> Any:
    """A field with a rule.

    chosen: the data chooses it unless it is given.
    identity: whether it says which run this is, or what of it does. The machine, the places of files, logs and
        checkpoints say nothing: threads and devices round differently, but the experiment is the same.
    """
    return field(default=default, metadata={"rule": rule, "chosen": chosen, "identity": identity})


def _last_part(name: str | None) -> str | None:
    """Of a path the last part: a run is the same wherever its files are."""
    return name and (PurePath(name.replace("\\", "/")).name or name)


def _without_paths(options: dict[str, Any]) -> dict[str, Any]:
    """Options without the paths of files whose hashes stand beside them."""
    return {name: value for name, value in options.items() if not options.get(f"{name}_hash")}


@dataclass(frozen=True)
class DataConfig(Section, prefix="data."):
    """Which examples a run sees: a data set's name or a path, how to read it, how to split and disturb it.

    train_fraction: the share of each class that is kept in train, once validation and test are split off.
    drop_suspects, relabel: files of `alr suspects`: which examples are left out, or get the suggested labels.
    fingerprint: a hash of the content, filled in when the data is read, so that changed data is another run. How a
        table is read shows in its content.
    """

    name: str = _setting("towns", _NAME, identity=_last_part)
    data_dir: str | None = _setting(None, identity=False)
    split_seed: int = _setting(0, _SEED)
    train_fraction: float = _setting(1.0, _SHARE)
    text_column: str | None = _setting(None, identity=False)
    label_column: str | None = _setting(None, identity=False)
    image_size: int | None = _setting(None, _AT_LEAST_ONE)
    skip_unreadable: bool = _setting(False, identity=False)
    drop_unlabelled: bool = _setting(False, identity=False)
    min_per_class: int | None = _setting(None, _AT_LEAST_ONE, identity=False)
    label_noise: float = _setting(0.0, _FRACTION)
    noise_seed: int = _setting(0, _SEED)
    drop_suspects: str | None = _setting(None, _NAME, identity=False)
    relabel: str | None = _setting(None, _NAME, identity=False)
    fingerprint: str | None = _setting(None, chosen=True)


@dataclass(frozen=True)
class ModelConfig(Section, prefix="model."):
    """Which network: its registered name (chosen by the data unless given) and its own options.

    weights: a safetensors file that it starts from.
    weights_hash: of that file's content, filled in when it is read, so that other weights are another run.
    """

    name: str | None = _setting(None, _NAME, chosen=True, identity=_last_part)
    options: dict[str, Any] = field(default_factory=dict)
    weights: str | None = _setting(None, _NAME, identity=False)
    weights_hash: str | None = None


@dataclass(frozen=True)
class MethodConfig(Section, prefix="method."):
    """Which label regularisation: its registered name and its own options.

    An option that names a file or a folder does not say which run this is; its hash, in the option NAME_hash, does.
    """

    name: str = _setting("baseline", _NAME)
    options: dict[str, Any] = field(default_factory=dict, metadata={"identity": _without_paths})


@dataclass(frozen=True)
class TrainingConfig(Section, prefix="training."):
    """How a run is trained.

    batch_size: examples per optimizer step; accumulate: the pieces it is computed in, to save memory.
    warmup: epochs of linear warm-up (for one-cycle the epochs of the rise; 0 means 30% of the run).
    milestones, gamma: for schedule "step", the epochs at which the rate is multiplied by gamma.
    decay_biases: whether weight decay also acts on biases and normalisation weights.
    bias_lr: the rate of biases and normalisation weights as a multiple of lr; their weight decay does not change.
    flip, translate, cutout: how `augment` changes images in memory. A flip is drawn anew each time ("random"), or each
        image is mirrored in every other epoch ("alternating"). translate shifts by up to so many pixels and reflects
        the edge (none: by an eighth of the width, the edge filled with zeros). cutout blanks a square of that size.
    ema: decay of an average of the weights, which is then evaluated and kept.
    early_stop: epochs without a lower validation loss before the run stops.
    residual_lr, residual_weight_decay: the criterion's rate as a multiple of lr, and its weight decay.
    residual_schedule: whether the criterion's rate follows the network's schedule, or stays constant.
    channels_last: a layout in which convolutions are often faster (15 to 35% for the narrow networks on a CPU). It is
        off by default: torch 2.13 on a CPU aborts in it for images as small as 8×8.
    log: where the run is logged while it is trained.
    compile: run the networks through `torch.compile` in training steps. It rounds differently, so such a run has a
        name of its own, as with channels_last.
    sync_batchnorm: with several processes, batch normalisation by the whole batch instead of by each process's slice.
    checkpoint_seconds: a checkpoint is written when the last one is so old, at the end of an epoch or within one.
    """

    epochs: int | None = _setting(None, _AT_LEAST_ONE, chosen=True)
    batch_size: int | None = _setting(None, _AT_LEAST_ONE, chosen=True)
    optimizer: Literal["sgd", "adam", "adamw"] | None = _setting(None, chosen=True)
    lr: float | None = _setting(None, _POSITIVE, chosen=True)
    momentum: float = _setting(0.9, _BELOW_ONE)
    nesterov: bool = True
    betas: tuple[float, float] = _setting((0.9, 0.999), _BETAS)
    weight_decay: float | None = _setting(None, _NOT_NEGATIVE, chosen=True)
    decay_biases: bool = True
    schedule: Literal["constant", "step", "cosine", "one-cycle", "linear"] | None = _setting(None, chosen=True)
    warmup: float = _setting(0.0, _NOT_NEGATIVE)
    milestones: tuple[float, ...] = _setting((), _INCREASING)
    gamma: float = _setting(0.1, _POSITIVE)
    clip_norm: float | None = _setting(None, _POSITIVE)
    accumulate: int = _setting(1, _AT_LEAST_ONE)
    ema: float | None = _setting(None, _BELOW_ONE)
    precision: Literal["32", "bf16-mixed", "16-mixed"] = "32"
    device: str = _setting("auto", _DEVICE, identity=False)
    class_weights: Literal["none", "balanced"] = "none"
    early_stop: int | None = _setting(None, _AT_LEAST_ONE)
    augment: bool | None = _setting(None, chosen=True)
    channels_last: bool = False
    residual_lr: float | None = _setting(None, _POSITIVE, chosen=True)
    residual_weight_decay: float = _setting(0.0, _NOT_NEGATIVE)
    residual_schedule: Literal["network", "constant"] = "network"
    log: tuple[Literal["tensorboard", "mlflow", "wandb"], ...] = _setting((), identity=False)
    threads: int | None = _setting(None, _THREADS, identity=False)
    compile: bool = False
    bias_lr: float = _setting(1.0, _POSITIVE)
    flip: Literal["random", "alternating", "none"] = _setting("random")
    translate: int | None = _setting(None, _COUNT)
    cutout: int = _setting(0, _COUNT)
    sync_batchnorm: bool = False
    checkpoint_seconds: float = _setting(60.0, _NOT_NEGATIVE, identity=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule == "step" and not self.milestones:
            raise ConfigError(
                "training.schedule is 'step', which needs training.milestones: the epochs at which the rate falls"
            )
        if self.epochs is not None and self.warmup >= self.epochs:
            raise ConfigError(f"training.warmup is {self.warmup}: it must be below training.epochs ({self.epochs})")


@dataclass(frozen=True)
class RunConfig(Section):
    """One run, whole: data, model, method, training and the seed.

    plugin_hash: of the user's own code that registered its method or its networks, filled in when it is resolved, so
        that changed code is another run.
    """

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    method: MethodConfig = field(default_factory=MethodConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    seed: int = _setting(0, _SEED)
    plugin_hash: str | None = None


_SECTIONS = {name: kind for name, kind in get_type_hints(RunConfig).items() if dataclasses.is_dataclass(kind)}
# The type of every setting by its dotted key.
_TYPES = {
    "seed": int,
    "plugin_hash": str | None,
    **{f"{name}.{key}": kind for name, section in _SECTIONS.items() for key, kind in get_type_hints(section).items()},
}


def to_dict(config: Any) -> dict[str, Any]:
    """A configuration as dicts, lists, texts, numbers, booleans and None: what JSON can hold."""
    values: dict[str, Any] = {}
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            values[item.name] = to_dict(value)
        else:
            values[item.name] = list(value) if isinstance(value, tuple) else copy.deepcopy(value)
    return values


def from_dict(values: Mapping[str, Any]) -> RunConfig:
    """The run that `to_dict` described; what is left out has its default, what is unknown or mistyped is refused."""
    config: RunConfig = typed(values, RunConfig, "")
    return config


def changed(config: RunConfig, section: str, **values: Any) -> RunConfig:
    """The configuration with other values in one of its sections."""
    return dataclasses.replace(config, **{section: dataclasses.replace(getattr(config, section), **values)})


def unresolved(config: RunConfig) -> tuple[str, ...]:
    """The dotted keys still to be chosen by the data; empty for a configuration that can be trained."""
    return tuple(
        f"{section}.{item.name}"
        for section, kind in _SECTIONS.items()
        for item in dataclasses.fields(kind)
        if item.metadata.get("chosen") and getattr(getattr(config, section), item.name) is None
    )


def resolve(config: RunConfig, choices: Mapping[str, Any]) -> RunConfig:
    """Fill what is unresolved from `choices` (dotted keys); what the user gave stays, and milestones mean steps."""
    if config.training.milestones:
        choices = {**choices, "training.schedule": "step"}
    for key in unresolved(config):
        if choices.get(key) is None:
            raise ConfigError(f"{key} is not given, and there is no default for this data")
        section, name = key.split(".")
        config = changed(config, section, **{name: choices[key]})
    return config


def with_settings(config: RunConfig, settings: Iterable[str]) -> RunConfig:
    """The configuration with `key=value` texts applied, each read with the type of its field.

    A key is dotted (`training.lr`, `method.options.label_smoothing`); its last part alone (`lr`) will do where only
    one section has it. `none` is None where that is allowed, a tuple is written `60,120`, a quoted value is a text.
    """
    values = to_dict(config)
    for setting in settings:
        given, equals, text = setting.partition("=")
        if not equals or not given.strip():
            raise ConfigError(f"the setting {setting!r} is not of the form key=value")
        key = _full_key(given.strip())
        table, (*path, name) = values, key.split(".")
        for part in path:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ConfigError(f"the setting {key} leads into {part}, which is {table!r} and no table")
        table[name] = parse(text, _TYPES[key], key) if key in _TYPES else guess(text)
    return from_dict(values)


def _full_key(key: str) -> str:
    """The dotted key that `key` stands for."""
    if key.startswith(("model.options.", "method.options.")) and all(key.split(".")):
        return key
    matches = [known for known in _TYPES if key in (known, known.rpartition(".")[2])]
    if len(matches) > 1:
        raise ConfigError(f"the setting {key} could be {' or '.join(matches)}: give the whole key")
    if not matches:
        short = [known.rpartition(".")[2] for known in _TYPES]
        raise ConfigError(f"unknown setting {key}{did_you_mean(key, [*_TYPES, *short])}")
    return matches[0]

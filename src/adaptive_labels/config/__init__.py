"""A run as plain data: frozen dataclasses, strict about names, types and ranges.

`None` in a setting marked *chosen by the data* (epochs, rate, model, …) stands for "not given": the builder fills it
with `resolve` before training. Everywhere else `None` means "off".

>>> config = with_settings(RunConfig(), ["lr=0.1", "method.name=alr", "training.milestones=60,120"])
>>> config.training.lr, config.method.name, config.training.milestones
(0.1, 'alr', (60.0, 120.0))
>>> from_dict(to_dict(config)) == config
True
"""

import dataclasses
import itertools
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from adaptive_labels.config.checks import ConfigError, Rule, hints_of, refuse_unknown, validate
from adaptive_labels.config.shell import guess, parse
from adaptive_labels.errors import did_you_mean

__all__ = [
    "ConfigError",
    "DataConfig",
    "MethodConfig",
    "ModelConfig",
    "RunConfig",
    "TrainingConfig",
    "from_dict",
    "load_toml",
    "resolve",
    "to_dict",
    "unresolved",
    "with_settings",
]


_POSITIVE = Rule("a finite number above 0", lambda x: 0 < x < math.inf)
_NOT_NEGATIVE = Rule("a finite number of at least 0", lambda x: 0 <= x < math.inf)
_COUNT = Rule("a whole number of at least 0", lambda x: x >= 0)
_AT_LEAST_ONE = Rule("a whole number of at least 1", lambda x: x >= 1)
_SEED = Rule("a whole number from 0 to 2**63 - 1", lambda x: 0 <= x < 2**63)
_FRACTION = Rule("a number from 0 to 1", lambda x: 0 <= x <= 1)
_SHARE = Rule("a number above 0 and at most 1", lambda x: 0 < x <= 1)
_BELOW_ONE = Rule("a number of at least 0 and below 1", lambda x: 0 <= x < 1)
_BETAS = Rule("two numbers of at least 0 and below 1", lambda x: all(0 <= beta < 1 for beta in x))
_INCREASING = Rule(
    "increasing finite numbers of epochs above 0",
    lambda x: all(0 < a < math.inf for a in x) and all(a < b for a, b in itertools.pairwise(x)),
)
_DEVICE = Rule("auto, cpu, mps, cuda or cuda:N", lambda x: re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", x) is not None)
_NAME = Rule("a name or a path, not an empty text", lambda x: x.strip() != "")


def _setting(default: Any, rule: Rule | None = None) -> Any:
    return field(default=default, metadata={"rule": rule})


def _chosen(rule: Rule | None = None) -> Any:
    """A setting that the data chooses unless it is given."""
    return field(default=None, metadata={"rule": rule, "chosen": True})


def _later(rule: Rule | None = None, default: Any = None) -> Any:
    """A setting of a later version, off by default: while it is off it is left out of what a run is named by."""
    return field(default=default, metadata={"rule": rule, "later": True})


@dataclass(frozen=True)
class DataConfig:
    """Which examples a run sees: a data set's name or a path, how to read it, how to split and disturb it.

    train_fraction: the share of each class that is kept in train, once validation and test are split off.
    fingerprint: a hash of the content, filled in when the data is read, so that changed data is another run.
    """

    name: str = _setting("towns", _NAME)
    data_dir: str | None = None
    split_seed: int = _setting(0, _SEED)
    train_fraction: float = _setting(1.0, _SHARE)
    text_column: str | None = None
    label_column: str | None = None
    image_size: int | None = _setting(None, _AT_LEAST_ONE)
    skip_unreadable: bool = False
    label_noise: float = _setting(0.0, _FRACTION)
    noise_seed: int = _setting(0, _SEED)
    fingerprint: str | None = _chosen()

    def __post_init__(self) -> None:
        validate(self, "data.")


@dataclass(frozen=True)
class ModelConfig:
    """Which network: its registered name (chosen by the data unless given) and its own options.

    weights: a safetensors file that it starts from.
    weights_hash: of that file's content, filled in when it is read, so that other weights are another run.
    """

    name: str | None = _chosen(_NAME)
    options: dict[str, Any] = field(default_factory=dict)
    weights: str | None = _later(_NAME)
    weights_hash: str | None = _later()

    def __post_init__(self) -> None:
        validate(self, "model.")


@dataclass(frozen=True)
class MethodConfig:
    """Which label regularisation: its registered name and its own options."""

    name: str = _setting("baseline", _NAME)
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        validate(self, "method.")


@dataclass(frozen=True)
class TrainingConfig:
    """How a run is trained.

    epochs, batch_size, optimizer, lr, weight_decay, schedule, augment, residual_lr: chosen by the data unless given.
    batch_size: examples an optimizer step; accumulate: the pieces it is computed in, to save memory.
    warmup: epochs of linear warm-up (for one-cycle the epochs of the rise; 0 means 30% of the run).
    milestones, gamma: for schedule "step", the epochs at which the rate is multiplied by gamma.
    decay_biases: whether weight decay also acts on biases and normalisation weights.
    bias_lr: the rate of biases and normalisation weights as a multiple of lr; what decays them stays as it is.
    flip, translate, cutout: how `augment` changes images in memory. A flip is drawn anew each time ("random"), or each
        image is mirrored in every other epoch ("alternating"); translate shifts by up to so many pixels, the edge
        reflected (none: by an eighth of the width, the edge filled with zeros); cutout blanks a square of that size.
    ema: decay of an average of the weights, which is then what is evaluated and kept.
    early_stop: epochs without a lower validation loss before the run stops.
    residual_lr, residual_weight_decay: the criterion's rate as a multiple of lr, and its weight decay.
    channels_last: the layout in which convolutions are often faster (15 to 35% for the narrow networks on a CPU). Off
        unless asked for: torch 2.13 on a CPU aborts in it for images as small as 8×8.
    residual_schedule: whether the criterion's rate follows the network's schedule, or stays constant.
    compile: run the networks through `torch.compile` in training steps. It rounds otherwise, so that such a run has a
        name of its own, as with channels_last. (`device` and `threads` do not count: see `runs.identity`.)
    """

    epochs: int | None = _chosen(_AT_LEAST_ONE)
    batch_size: int | None = _chosen(_AT_LEAST_ONE)
    optimizer: Literal["sgd", "adam", "adamw"] | None = _chosen()
    lr: float | None = _chosen(_POSITIVE)
    momentum: float = _setting(0.9, _BELOW_ONE)
    nesterov: bool = True
    betas: tuple[float, float] = _setting((0.9, 0.999), _BETAS)
    weight_decay: float | None = _chosen(_NOT_NEGATIVE)
    decay_biases: bool = True
    schedule: Literal["constant", "step", "cosine", "one-cycle", "linear"] | None = _chosen()
    warmup: float = _setting(0.0, _NOT_NEGATIVE)
    milestones: tuple[float, ...] = _setting((), _INCREASING)
    gamma: float = _setting(0.1, _POSITIVE)
    clip_norm: float | None = _setting(None, _POSITIVE)
    accumulate: int = _setting(1, _AT_LEAST_ONE)
    ema: float | None = _setting(None, _BELOW_ONE)
    precision: Literal["32", "bf16-mixed", "16-mixed"] = "32"
    device: str = _setting("auto", _DEVICE)
    class_weights: Literal["none", "balanced"] = "none"
    early_stop: int | None = _setting(None, _AT_LEAST_ONE)
    augment: bool | None = _chosen()
    channels_last: bool = False
    residual_lr: float | None = _chosen(_POSITIVE)
    residual_weight_decay: float = _setting(0.0, _NOT_NEGATIVE)
    residual_schedule: Literal["network", "constant"] = "network"
    tensorboard: bool = False
    threads: int | None = _setting(None, _AT_LEAST_ONE)
    compile: bool = _later(default=False)
    bias_lr: float = _later(_POSITIVE, default=1.0)
    flip: Literal["random", "alternating", "none"] = _later(default="random")
    translate: int | None = _later(_COUNT)
    cutout: int = _later(_COUNT, default=0)

    def __post_init__(self) -> None:
        validate(self, "training.")
        if self.schedule == "step" and not self.milestones:
            raise ConfigError(
                "training.schedule is 'step', which needs training.milestones: the epochs at which the rate falls"
            )
        if self.epochs is not None and self.warmup >= self.epochs:
            raise ConfigError(f"training.warmup is {self.warmup}: it must be below training.epochs ({self.epochs})")


@dataclass(frozen=True)
class RunConfig:
    """One run, whole: data, model, method, training and the seed."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    method: MethodConfig = field(default_factory=MethodConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    seed: int = _setting(0, _SEED)

    def __post_init__(self) -> None:
        validate(self, "")


_SECTIONS: dict[str, type] = {
    "data": DataConfig,
    "model": ModelConfig,
    "method": MethodConfig,
    "training": TrainingConfig,
}


# ---------------------------------------------------------------------------------------------- plain data in and out


def to_dict(config: Any) -> dict[str, Any]:
    """A configuration as dicts, lists, texts, numbers, booleans and None: what JSON can hold."""
    return {
        item.name: _plain_out(getattr(config, item.name))
        for item in dataclasses.fields(config)
        if not (item.metadata.get("later") and getattr(config, item.name) == item.default)
    }


def from_dict(values: Mapping[str, Any]) -> RunConfig:
    """The run that `to_dict` described; what is left out has its default, what is unknown or mistyped is refused."""
    refuse_unknown(values, hints_of(RunConfig), "")
    given: dict[str, Any] = dict(values)
    for name, section in _SECTIONS.items():
        if name in given and not isinstance(given[name], section):
            given[name] = _section_from(section, given[name], name)
    return RunConfig(**given)


def load_toml(path: str | Path) -> RunConfig:
    """Read a run from a TOML file with the tables [data], [model], [method], [training] and the key seed."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration file {path} cannot be read: {error}") from error
    try:
        return from_dict(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the configuration file {path} is not valid TOML: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


# ------------------------------------------------------------------------------------------------ chosen by the data


def unresolved(config: RunConfig) -> tuple[str, ...]:
    """The dotted keys still to be chosen by the data; empty for a configuration that can be trained."""
    return tuple(
        f"{section}.{item.name}"
        for section, kind in _SECTIONS.items()
        for item in dataclasses.fields(kind)
        if item.metadata.get("chosen") and getattr(getattr(config, section), item.name) is None
    )


def resolve(config: RunConfig, choices: Mapping[str, Any]) -> RunConfig:
    """Fill what is unresolved from `choices` (dotted keys); what the user gave stays."""
    values = to_dict(config)
    for key in unresolved(config):
        if key not in choices or choices[key] is None:
            raise ConfigError(f"{key} is not given, and there is no default for this data")
        section, name = key.split(".")
        values[section][name] = choices[key]
    return from_dict(values)


def _plain_out(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_dict(value)
    if isinstance(value, list | tuple):
        return [_plain_out(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain_out(item) for name, item in value.items()}
    return value


def _section_from(section: type, values: Any, name: str) -> Any:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{name} is {values!r}: allowed is a table of settings")
    refuse_unknown(values, hints_of(section), f"{name}.")
    return section(**values)


# --------------------------------------------------------------------------------------------- settings from a shell


def with_settings(config: RunConfig, settings: Iterable[str]) -> RunConfig:
    """The configuration with `key=value` texts applied, each read with the type of its field.

    A key is dotted (`training.lr`, `method.options.label_smoothing`); its last part alone (`lr`) will do where only
    one section has it. `none` is None where that is allowed, a tuple is written `60,120`, a quoted value is a text.
    """
    values = to_dict(config)
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"the setting {setting!r} is not of the form key=value")
        section, name, *rest = _full_key(key.strip()).split(".", 2)
        target = values[section] if section else values
        if rest:
            target[name] = _with_option(target[name], rest[0], guess(text), key.strip())
        else:
            kind = hints_of(_SECTIONS[section] if section else RunConfig)[name]
            target[name] = parse(text, kind, _join(section, name))
    return from_dict(values)


def _with_option(options: Mapping[str, Any], path: str, value: Any, key: str) -> dict[str, Any]:
    """Options with one of them set; a dot in its name leads into a table among them."""
    name, dot, inner = path.partition(".")
    if not dot:
        return {**options, name: value}
    table = options.get(name, {})
    if not isinstance(table, Mapping) or not inner:
        raise ConfigError(f"the setting {key} leads into {name}, which is {table!r} and no table")
    return {**options, name: _with_option(table, inner, value, key)}


@cache
def _known_keys() -> tuple[str, ...]:
    """Every dotted key that holds a value."""
    nested = [f"{section}.{name}" for section, kind in _SECTIONS.items() for name in hints_of(kind)]
    return (*nested, "seed")


def _full_key(key: str) -> str:
    """The dotted key that `key` stands for, with a leading dot for one outside the sections."""
    for options in ("model.options", "method.options"):
        if key.startswith(options + ".") and key != options + ".":
            return key
    matches = [known for known in _known_keys() if known == key or known.rpartition(".")[2] == key]
    if len(matches) > 1:
        raise ConfigError(f"the setting {key} could be {' or '.join(matches)}: give the whole key")
    if not matches:
        short = [known.rpartition(".")[2] for known in _known_keys()]
        raise ConfigError(f"unknown setting {key}{did_you_mean(key, [*_known_keys(), *short])}")
    return matches[0] if "." in matches[0] else f".{matches[0]}"


def _join(section: str, name: str) -> str:
    return f"{section}.{name}" if section else name

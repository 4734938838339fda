"""The other networks that a method needs: a teacher's run, peers that learn along, or earlier generations.

All of it is read from the configuration, so the runs that must be finished first are known by name before anything is
trained, and two runs that need the same one share it. `resolve_networks` fills in what the user left open.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from adaptive_labels.errors import UserError
from adaptive_labels.lab.config import ConfigError, MethodConfig, ModelConfig, RunConfig
from adaptive_labels.lab.data import Dataset, encoder_options
from adaptive_labels.lab.files import file_hash, plain, read_json
from adaptive_labels.lab.models import find_model
from adaptive_labels.lab.runs import RunError, RunFolder
from adaptive_labels.losses.registry import METHODS, find_method
from adaptive_labels.plugins import in_session_only

DEFAULT_PEERS = 2
# In the original's first figure (AlexNet, 57.9, 60.0, 60.9, 61.2%) two generations bring most of what three do.
DEFAULT_GENERATIONS = 2
_OPTIONS = "method.options."
_TEACHER = f"{_OPTIONS}teacher"


def learns_from(config: RunConfig) -> str | None:
    """What the method learns from besides the labels: ``"teacher"``, ``"peers"``, ``"generations"`` or None."""
    return find_method(config.method.name).learns_from


def options_on_networks(method: str) -> tuple[str, ...]:
    """The options of a method that say which other networks there are; none if there is no such method."""
    return METHODS[method].network_options if method in METHODS else ()


def criterion_options(config: RunConfig) -> dict[str, Any]:
    """The method's options without those that say which networks there are."""
    other = (*find_method(config.method.name).network_options, "teacher_hash", "initial_labels_hash")
    return {name: value for name, value in config.method.options.items() if name not in other}


def resolve_networks(config: RunConfig) -> RunConfig:
    """Fill in what the user left open about other networks, and refuse wrong options."""
    source, options = learns_from(config), dict(config.method.options)
    if source == "teacher":
        options |= _resolved_teacher(config)
    elif source == "peers":
        others = _peer_models(options)
        for i, model in enumerate(others):
            _check_model(model, f"peer_models[{i}]")
        count = options["peers"] = options.get("peers", len(others) + 1 if others else DEFAULT_PEERS)
        _check(type(count) is int and count >= 2, count, "peers", "a whole number of at least 2")
        if others and count != len(others) + 1:
            raise ConfigError(
                f"{_OPTIONS}peers is {count}, but peer_models names {len(others)} besides the run's own network"
            )
    elif source == "generations":
        count = options.setdefault("generations", DEFAULT_GENERATIONS)
        _check(type(count) is int and count >= 1, count, "generations", "a whole number of at least 1")
    return with_method(config, config.method.name, options)


def _resolved_teacher(config: RunConfig) -> dict[str, Any]:
    options = config.method.options
    if "teacher" in options:
        _check_name(options["teacher"], "teacher")
        for other in ("teacher_model", "teacher_options"):
            if other in options:
                raise ConfigError(f"{_OPTIONS}{other} is of a teacher to be trained, but teacher names a finished run")
        return {}
    if "teacher_hash" in options:
        raise ConfigError(f"{_OPTIONS}teacher_hash is written down by the run itself; give teacher=FOLDER")
    name: Any = options.get("teacher_model", config.model.name)
    given = options.get("teacher_options", {})
    _check_model(name, "teacher_model")
    _check(isinstance(given, Mapping), given, "teacher_options", "a table of settings")
    teacher = _beside(config.model, name, given)
    for key in sorted(_reading(config.model)):
        if teacher.options.get(key) != config.model.options.get(key):
            raise ConfigError(
                f"{_OPTIONS}teacher_options.{key} is how inputs are read, which teacher and student share: set "
                f"model.options.{key} for both"
            )
    return {"teacher_model": teacher.name, "teacher_options": teacher.options}


def networks(config: RunConfig) -> tuple[ModelConfig, ...]:
    """The networks that a resolved configuration trains; the one that predicts first."""
    if learns_from(config) != "peers":
        return (config.model,)
    others = _peer_models(config.method.options) or [config.model.name] * (config.method.options["peers"] - 1)
    return (config.model, *(_beside(config.model, str(name), {}) for name in others))


def needed_run(config: RunConfig) -> RunConfig | None:
    """The run that must be finished before this resolved one can begin, or None.

    It has the same data, recipe and seed. A teacher that is given by its folder is finished already.
    """
    source, options = learns_from(config), config.method.options
    baseline = with_method(config, "baseline", {})
    if source == "generations":
        before = options["generations"] - 1
        again = with_method(config, config.method.name, {**options, "generations": before})
        return with_plugin_hash(again if before else baseline)
    if source == "teacher" and "teacher" not in options:
        teacher = ModelConfig(options["teacher_model"], options["teacher_options"])
        return with_plugin_hash(dataclasses.replace(baseline, model=teacher))
    return None


def needed_runs(config: RunConfig) -> tuple[RunConfig, ...]:
    """All runs that must be finished before this one can begin, in their order."""
    runs: list[RunConfig] = []
    while (needed := needed_run(runs[-1] if runs else config)) is not None:
        runs.append(needed)
    return tuple(reversed(runs))


def with_plugin_hash(config: RunConfig) -> RunConfig:
    """A resolved configuration with the hash of the user's own code behind its method and its networks, if any."""
    networks_of = [model.name for model in networks(config)] + [config.method.options.get("teacher_model")]
    sources = {name: find_model(name)[0].source_hash for name in networks_of if name is not None}
    sources[config.method.name] = find_method(config.method.name).source_hash
    for name, source in sources.items():
        if source == "":
            raise ConfigError(
                f"{name!r} is registered by code whose source cannot be read, so that a changed one would not be a new "
                "run: put it into a file and load that with --plugin FILE.py, or load_plugin"
            )
    hashes = sorted({source for source in sources.values() if source is not None})
    plugin_hash = hashlib.sha256("".join(hashes).encode()).hexdigest()[:16] if hashes else None
    return dataclasses.replace(config, plugin_hash=plugin_hash)


def check_reachable(configs: Iterable[RunConfig]) -> None:
    """Refuse code that was typed into this session, for runs in other processes, which do not have it."""
    for config in configs:
        method = find_method(config.method.name)
        for name, registered in (
            (method.name, method.registered),
            *((model.name, find_model(str(model.name))[0].build) for model in networks(config)),
        ):
            if in_session_only(registered):
                raise ConfigError(
                    f"{name!r} is registered in this session alone, and other processes do not know it: use workers=1, "
                    "or put it into a file and call load_plugin(FILE)"
                )


def teacher_model(config: RunConfig) -> ModelConfig | None:
    """The network that a resolved configuration learns from, or None."""
    if (given := given_teacher(config)) is not None:
        return RunFolder(given).config.model
    needed = needed_run(config)
    return None if needed is None else needed.model


def open_teacher(config: RunConfig, folder: Path) -> RunFolder:
    """The finished run in ``folder``, which a configuration learns from; a ConfigError if it is not what it was."""
    if given_teacher(config) is None:
        return _finished_teacher(folder, f"{config.method.name} learns from another run: ")
    run = _finished_teacher(folder, f"{_TEACHER}: ")
    _teacher_hash(run, config)
    return run


def describe_networks(config: RunConfig) -> str | None:
    """What a resolved configuration needs besides one network, in a sentence; None if nothing."""
    source, options = learns_from(config), config.method.options
    if source is None:
        return None
    if source == "peers":
        words = f"{options['peers']} networks learn together, at {options['peers']} times the cost"
    elif source == "generations":
        words = f"the last of {options['generations']} generations after the baseline; those before it are runs of "
        words += "their own, trained first"
    elif "teacher" in options:
        words = f"the teacher is {Path(options['teacher']).name}"
    else:
        same = ModelConfig(options["teacher_model"], options["teacher_options"]) == config.model
        whom = "a network like the student" if same else f"a {options['teacher_model']}"
        words = f"the teacher, {whom}, is a run of its own, trained first with plain labels"
    return f"{config.method.name}: {words}."


def check_teacher(config: RunConfig, dataset: Dataset, encoder: Mapping[str, Any]) -> RunConfig:
    """Check that a teacher given by its folder knows this data, and write down the hash of its weights.

    ``encoder`` is how the student reads its inputs, as plain data: a teacher must read them the same way.
    """
    path = given_teacher(config)
    if path is None:
        return config
    run = _finished_teacher(path, f"{_TEACHER}: ")
    try:
        stored, here = (
            {"kind": one["kind"], **one["settings"]} for one in (read_json(run.checked("encoder.json")), plain(encoder))
        )
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{_TEACHER}: {run.path / 'encoder.json'} does not say how inputs are read") from error
    differing = sorted(key for key in {*stored, *here} if stored.get(key) != here.get(key))
    problem = None
    if run.config.data.fingerprint != dataset.fingerprint:
        problem = (
            f"was trained on other data or another split than {dataset.name} is here, so that it may have seen what "
            "the student is tested on; train a teacher on the same data"
        )
    elif differing:
        problem = (
            f"reads its inputs in another way than the student ({', '.join(differing)}); give both the same "
            "model.options for it"
        )
    if problem is not None:
        raise ConfigError(f"{_TEACHER}: {run.path} {problem}")
    options = {**config.method.options, "teacher_hash": _teacher_hash(run, config)}
    return with_method(config, config.method.name, options)


def finished_run(path: Path, purpose: str) -> RunFolder:
    """The run in a folder; a `RunError` if it is not finished, or diverged and so has nothing for this purpose."""
    run = RunFolder(path)
    result = run.result
    if result is None:
        raise RunError(f"{path} is not finished; run its command again to go on")
    if result["status"] != "finished":
        raise RunError(f"{path} has nothing to {purpose}: {result['reason']}")
    for split in ("validation", "test"):
        if not isinstance(result["metrics"].get(split, {}).get("top1"), float | int):
            raise RunError(f"{path / 'result.json'} has no {split} top1, as every finished run has")
    return run


def with_method(config: RunConfig, name: str, options: Mapping[str, Any]) -> RunConfig:
    return dataclasses.replace(config, method=MethodConfig(name, dict(options)))


def given_teacher(config: RunConfig) -> Path | None:
    options = config.method.options
    return Path(options["teacher"]) if learns_from(config) == "teacher" and "teacher" in options else None


def _finished_teacher(path: Path, prefix: str) -> RunFolder:
    try:
        if path.is_dir():
            return finished_run(path, "teach")
    except RunError as error:
        raise ConfigError(f"{prefix}{error}") from error
    raise ConfigError(f"{prefix}there is no folder {path}")


def _teacher_hash(run: RunFolder, config: RunConfig) -> str:
    """The hash of a teacher's weights; a ConfigError if the configuration was made with others."""
    weights_hash = file_hash(run.checked("model.safetensors"))
    if config.method.options.get("teacher_hash", weights_hash) != weights_hash:
        raise ConfigError(f"{_TEACHER}: {run.path} has changed: its weights are not those that teacher_hash says")
    return weights_hash


def _beside(model: ModelConfig, name: str, options: Mapping[str, Any]) -> ModelConfig:
    """A further network that reads the same inputs; one that differs in its width alone has all other options, too."""
    assert model.name is not None
    shared = dict(model.options)
    if name != model.name:
        entry, width = find_model(name)
        common = _reading(model) if entry is not find_model(model.name)[0] else shared.keys()
        lost = () if width is None else ("width",)  # as an option it would win over the name's
        shared = {key: value for key, value in shared.items() if key in common and key not in lost}
    return ModelConfig(name, {**shared, **options})


def _reading(model: ModelConfig) -> frozenset[str]:
    assert model.name is not None
    return encoder_options(find_model(model.name)[0].reads_with(model.options))


def _peer_models(options: Mapping[str, Any]) -> list[Any]:
    models = options.get("peer_models") or []
    _check(isinstance(models, list), models, "peer_models", "a list of models' names")
    return list(models)


def _check(holds: bool, value: Any, option: str, allowed: str) -> None:
    if not holds:
        raise ConfigError(f"{_OPTIONS}{option} is {value!r}: allowed is {allowed}")


def _check_name(value: Any, option: str) -> None:
    _check(isinstance(value, str) and value.strip() != "", value, option, "a name")


def _check_model(name: Any, option: str) -> None:
    _check_name(name, option)
    try:
        find_model(name)
    except UserError as error:
        raise ConfigError(f"{_OPTIONS}{option}: {error}") from error

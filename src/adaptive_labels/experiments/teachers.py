"""The other networks that a method needs: a teacher's run, networks that learn along, or the generation before.

All of it is read from the configuration, so that a run that must be finished first is known by name before anything
is trained, and two runs that need the same one share it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaptive_labels.config import ConfigError, MethodConfig, ModelConfig, RunConfig, from_dict, to_dict
from adaptive_labels.data import Dataset, encoder_options
from adaptive_labels.losses.registry import METHODS, find_method
from adaptive_labels.models import find_model
from adaptive_labels.models.weights import file_hash
from adaptive_labels.runs import RunError, RunFolder, find_run, run_id

DEFAULT_PEERS = 2
# In the original's first figure (AlexNet, 57.9, 60.0, 60.9, 61.2%) two generations bring most of what three do.
DEFAULT_GENERATIONS = 2
_TEACHER = "method.options.teacher"


def guide_of(config: RunConfig) -> str | None:
    """What the method follows beside the labels: ``"teacher"``, ``"peers"``, ``"generations"`` or None."""
    return find_method(config.method.name).guide


def network_options(method: str) -> tuple[str, ...]:
    """The options of a method that say which other networks there are; none if there is no such method."""
    return METHODS[method].network_options if method in METHODS else ()


def criterion_options(config: RunConfig) -> dict[str, Any]:
    """The method's options without those that say which networks there are."""
    other = (*find_method(config.method.name).network_options, "teacher_hash", "initial_labels_hash")
    return {name: value for name, value in config.method.options.items() if name not in other}


def settle(config: RunConfig) -> RunConfig:
    """The configuration with all said about other networks that the user left open; wrong options are refused."""
    guide, options = guide_of(config), dict(config.method.options)
    if guide == "teacher":
        options |= _settled_teacher(config)
    elif guide == "peers":
        others = [_named(model, f"method.options.peer_models[{i}]") for i, model in enumerate(_peer_models(options))]
        count = _whole(options.get("peers", len(others) + 1 if others else DEFAULT_PEERS), "peers", 2)
        if others and count != len(others) + 1:
            raise ConfigError(
                f"method.options.peers is {count}, but peer_models names {len(others)} beside the run's own network"
            )
        options["peers"] = count
    elif guide == "generations":
        options["generations"] = _whole(options.get("generations", DEFAULT_GENERATIONS), "generations", 1)
    else:
        return config
    return _with_method(config, config.method.name, options)


def networks(config: RunConfig) -> tuple[ModelConfig, ...]:
    """The networks that are trained, of a settled configuration; the one that predicts first."""
    if guide_of(config) != "peers":
        return (config.model,)
    others = _peer_models(config.method.options) or [config.model.name] * (config.method.options["peers"] - 1)
    return (config.model, *(_beside(config.model, str(name), {}) for name in others))


def needed_run(config: RunConfig) -> RunConfig | None:
    """The run that must be finished before this settled one can begin, or None.

    It has the same data, recipe and seed. A teacher that is given by its folder is finished already.
    """
    guide, options = guide_of(config), config.method.options
    if guide == "teacher" and "teacher" not in options:
        model = ModelConfig(options["teacher_model"], options["teacher_options"])
        return dataclasses.replace(_with_method(config, "baseline", {}), model=model)
    if guide == "generations":
        before = options["generations"] - 1
        if before == 0:
            return _with_method(config, "baseline", {})
        return _with_method(config, config.method.name, {**options, "generations": before})
    return None


def needed_runs(config: RunConfig) -> tuple[RunConfig, ...]:
    """All runs that must be finished before this one can begin, in their order."""
    needed = needed_run(config)
    return () if needed is None else (*needed_runs(needed), needed)


def teacher_model(config: RunConfig) -> ModelConfig | None:
    """The network that a settled configuration learns from, or None."""
    if "teacher" in config.method.options and guide_of(config) == "teacher":
        return from_dict(RunFolder(config.method.options["teacher"]).config).model
    needed = needed_run(config)
    return None if needed is None else needed.model


def teacher_run(config: RunConfig, out: Path) -> RunFolder | None:
    """The finished run that a settled configuration learns from, or None if it learns from none."""
    if guide_of(config) not in ("teacher", "generations"):
        return None
    needed = needed_run(config)
    if needed is None:
        run = _finished(Path(config.method.options["teacher"]), f"{_TEACHER}: ")
        _refuse_other_weights(run, config)
        return run
    return _finished(find_run(out, to_dict(needed)), f"{config.method.name} learns from another run: ")


def describe(config: RunConfig) -> str | None:
    """What a settled configuration needs beside one network, in a sentence; None if nothing."""
    guide, options = guide_of(config), config.method.options
    if guide == "teacher":
        if "teacher" in options:
            return f"{config.method.name}: the teacher is {options['teacher_run']}."
        same = ModelConfig(options["teacher_model"], options["teacher_options"]) == config.model
        whom = "a network like the student" if same else f"a {options['teacher_model']}"
        return f"{config.method.name}: the teacher, {whom}, is a run of its own, trained first with plain labels."
    if guide == "peers":
        return (
            f"{config.method.name}: {options['peers']} networks learn together, at {options['peers']} times the cost."
        )
    if guide == "generations":
        return (
            f"{config.method.name}: the last of {options['generations']} generations after the baseline; those before "
            "it are runs of their own, trained first."
        )
    return None


def check_teacher(config: RunConfig, dataset: Dataset, encoder: Mapping[str, Any]) -> RunConfig:
    """See that a teacher given by its folder knows this data, and write down which run it is.

    Args:
        config: settled.
        dataset: what the student will see.
        encoder: how the student reads its inputs, as plain data: a teacher must read them the same way.
    """
    if guide_of(config) != "teacher" or "teacher" not in config.method.options:
        return config
    run = _finished(Path(config.method.options["teacher"]), f"{_TEACHER}: ")
    predictions = run.load_predictions()
    classes = () if predictions is None else predictions.classes or ()
    if tuple(classes) != tuple(dataset.classes):
        raise ConfigError(
            f"{_TEACHER}: {run.path} knows other classes ({_few(classes)}) than {dataset.name} has "
            f"({_few(dataset.classes)})"
        )
    if run.config["data"].get("fingerprint") != dataset.fingerprint:
        raise ConfigError(
            f"{_TEACHER}: {run.path} was trained on other data or another split than {dataset.name} is here, so that "
            "it may have seen what the student is tested on; train a teacher on the same data"
        )
    stored = _flat(json.loads((run.path / "encoder.json").read_text(encoding="utf-8")))
    here = _flat(json.loads(json.dumps(dict(encoder))))
    differing = sorted(key for key in {*stored, *here} if stored.get(key) != here.get(key))
    if differing:
        raise ConfigError(
            f"{_TEACHER}: {run.path} reads its inputs in another way than the student ({', '.join(differing)}); give "
            "both the same model.options for it"
        )
    found = {"teacher_run": run_id(run.config), "teacher_hash": _refuse_other_weights(run, config)}
    return _with_method(config, config.method.name, {**config.method.options, **found})


def _refuse_other_weights(run: RunFolder, config: RunConfig) -> str:
    """The hash of a teacher's weights; a ConfigError if the configuration was made with others."""
    found = file_hash(run.path / "model.safetensors")
    if config.method.options.get("teacher_hash", found) != found:
        raise ConfigError(f"{_TEACHER}: {run.path} has changed: its weights are not those that teacher_hash says")
    return found


def _settled_teacher(config: RunConfig) -> dict[str, Any]:
    options = config.method.options
    if "teacher" in options:
        _named(options["teacher"], _TEACHER)
        for other in ("teacher_model", "teacher_options"):
            if other in options:
                raise ConfigError(
                    f"method.options.{other} is of a teacher to be trained, but teacher names a finished run"
                )
        return {}
    for own in ("teacher_run", "teacher_hash"):
        if own in options:
            raise ConfigError(f"method.options.{own} is written down by the run itself; give teacher=FOLDER")
    name = _named(options.get("teacher_model", config.model.name), "method.options.teacher_model")
    given = options.get("teacher_options", {})
    if not isinstance(given, Mapping):
        raise ConfigError(f"method.options.teacher_options is {given!r}: allowed is a table of settings")
    beside = _beside(config.model, name, given)
    changed = [
        key for key in sorted(_reading(config.model)) if beside.options.get(key) != config.model.options.get(key)
    ]
    if changed:
        raise ConfigError(
            f"method.options.teacher_options.{changed[0]} is how inputs are read, which teacher and student share: set "
            f"model.options.{changed[0]} for both"
        )
    return {"teacher_model": beside.name, "teacher_options": beside.options}


def _beside(model: ModelConfig, name: str, options: Mapping[str, Any]) -> ModelConfig:
    """A further network that reads the same inputs: of the same kind unless another is named."""
    shared = {key: value for key, value in model.options.items() if name == model.name or key in _reading(model)}
    return ModelConfig(name, {**shared, **options})


def _reading(model: ModelConfig) -> frozenset[str]:
    """The options that say how inputs are read."""
    assert model.name is not None
    return encoder_options(find_model(model.name)[0].reads)


def _flat(encoder: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": encoder["kind"], **encoder["settings"]}


def _peer_models(options: Mapping[str, Any]) -> list[Any]:
    models = options.get("peer_models") or []
    if not isinstance(models, list):
        raise ConfigError(f"method.options.peer_models is {models!r}: allowed is a list of models' names")
    return models


def _named(value: Any, key: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{key} is {value!r}: allowed is a name")
    return value


def _whole(value: Any, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"method.options.{name} is {value!r}: allowed is a whole number of at least {least}")
    return value


def _with_method(config: RunConfig, name: str, options: Mapping[str, Any]) -> RunConfig:
    return dataclasses.replace(config, method=MethodConfig(name, dict(options)))


def _finished(path: Path, prefix: str) -> RunFolder:
    if not path.is_dir():
        raise ConfigError(f"{prefix}there is no folder {path}")
    try:
        run = RunFolder(path)
        result = run.result
    except RunError as error:
        raise ConfigError(f"{prefix}{error}") from error
    if result is None:
        raise ConfigError(f"{prefix}{path} is not finished; run its command again to go on")
    if result["status"] != "finished":
        raise ConfigError(f"{prefix}{path} has nothing to teach: {result['reason']}")
    return run


def _few(names: Any) -> str:
    names = list(names)
    shown = ", ".join(map(str, names[:3])) + (", …" if len(names) > 3 else "")
    return f"{len(names)}: {shown}" if names else "none are kept"

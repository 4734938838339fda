"""The name of a run: readable, and different for every configuration."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from adaptive_labels.files import RunError, plain

_DATA_SUFFIXES = {".csv", ".tsv", ".json", ".jsonl", ".parquet", ".txt", ".gz"}
_LONGEST_PART = 40


@dataclass(frozen=True)
class RunNames:
    """What a configuration says about which run it is; ``epochs`` is None where it says nothing."""

    dataset: str
    model: str
    method: str
    seed: int
    epochs: int | None


def names_of(config: Mapping[str, Any]) -> RunNames:
    """Find data set, model, method, seed and epochs in a configuration.

    Each of the first three is a text, or a section with a ``name``; the data set's key is ``data`` or ``dataset``, and
    ``epochs`` stands at the top or in the section ``training``.
    """
    found = {key: _name(config, *keys) for key, keys in _NAME_KEYS.items()}
    for key, name in found.items():
        if name is None:
            raise RunError(f"The configuration has no '{key}'; a run is named by dataset, model, method and seed.")
    seed = config.get("seed")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise RunError(f"seed is {seed!r}; it must be a whole number.")
    training = config.get("training")
    epochs = training.get("epochs") if isinstance(training, Mapping) else config.get("epochs")
    return RunNames(
        dataset=str(found["dataset"]),
        model=str(found["model"]),
        method=str(found["method"]),
        seed=seed,
        epochs=epochs if isinstance(epochs, int) else None,
    )


def run_id(config: Mapping[str, Any]) -> str:
    """Name a run ``<dataset>-<model>-<method>-s<seed>-<8 hex digits>``.

    The digits are the start of the SHA-256 of the whole configuration as canonical JSON, so that any changed value is
    a new run; the order of the keys does not matter. Where a teacher's folder lies is left out: which run it is stands
    beside it. A data set given by its path is named by its last part.

    >>> run_id({"data": {"name": "data/My reviews.csv"}, "model": "fasttext", "method": "alr", "seed": 0})
    'My-reviews-fasttext-alr-s0-5f765ebf'
    """
    names = names_of(config)
    canonical = json.dumps(plain(without_places(config), keep_non_finite=True), sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(canonical.encode("ascii")).hexdigest()[:8]
    parts = [_slug(getattr(names, key), key) for key in _NAME_KEYS]
    return "-".join([*parts, f"s{names.seed}", digest])


def without_places(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without the paths that only say where something lies that is identified in another way."""
    method = config.get("method")
    options = method.get("options") if isinstance(method, Mapping) else None
    if not isinstance(method, Mapping) or not isinstance(options, Mapping) or "teacher_run" not in options:
        return dict(config)
    kept = {name: value for name, value in options.items() if name != "teacher"}
    return {**config, "method": {**method, "options": kept}}


_NAME_KEYS = {"dataset": ("data", "dataset"), "model": ("model",), "method": ("method",)}


def _name(config: Mapping[str, Any], *keys: str) -> str | None:
    for key in keys:
        value = config.get(key)
        if isinstance(value, Mapping):
            value = value.get("name")
        if isinstance(value, str):
            return value
    return None


def _slug(text: str, otherwise: str) -> str:
    name = PurePath(text.replace("\\", "/"))
    while name.suffix.lower() in _DATA_SUFFIXES:
        name = name.with_suffix("")
    # Only characters that every file system and shell takes unquoted; the digest keeps apart what this merges.
    slug = re.sub(r"[^A-Za-z0-9.+_]+", "-", name.name).strip("-.")
    return slug[:_LONGEST_PART].rstrip("-.") or otherwise

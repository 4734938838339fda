"""Which run a configuration is: its fields say whether and how they count (see `config`)."""

import dataclasses
import re
from pathlib import Path, PurePath
from typing import Any

from adaptive_labels.lab.config import RunConfig
from adaptive_labels.lab.files import plain
from adaptive_labels.lab.runs.integrity import digest

_DATA_SUFFIXES = {".csv", ".tsv", ".json", ".jsonl", ".parquet", ".txt", ".gz"}
_LONGEST_PART = 40


def run_id(config: RunConfig) -> str:
    """Name a run ``<dataset>-<model>-<method>-s<seed>-<8 hex digits>``; the digits are a hash of all that counts.

    >>> from adaptive_labels.lab.config import DataConfig, ModelConfig
    >>> run_id(RunConfig(DataConfig("data/My reviews.csv"), ModelConfig("fasttext")))[:-8]
    'My-reviews-fasttext-baseline-s0-'
    """
    parts = [_slug(config.data.name, "dataset"), _slug(str(config.model.name), "model")]
    parts += [_slug(config.method.name, "method"), f"s{config.seed}"]
    return "-".join([*parts, digest(identity_settings(config))[:8]])


def identity_settings(config: Any) -> dict[str, Any]:
    """The settings that decide a run's result, as plain data: two configurations that agree in these are one run."""
    settings: dict[str, Any] = {}
    for item in dataclasses.fields(config):
        value, counts = getattr(config, item.name), item.metadata.get("identity", True)
        if dataclasses.is_dataclass(value):
            settings[item.name] = identity_settings(value)
        elif counts:
            settings[item.name] = plain(counts(value) if callable(counts) else value)
    return settings


def recipe_hash(config: RunConfig) -> str:
    """A hash of how a run was made: all that counts but its seed and the content and name of its data."""
    settings = identity_settings(config)
    del settings["seed"], settings["data"]["name"], settings["data"]["fingerprint"]
    return digest(settings)[:16]


def run_path(out: str | Path, config: RunConfig) -> Path:
    """The folder of a configuration's run under ``out``, whether it exists or not."""
    return Path(out) / run_id(config)


def _slug(text: str, otherwise: str) -> str:
    name = PurePath(text.replace("\\", "/"))
    while name.suffix.lower() in _DATA_SUFFIXES:
        name = name.with_suffix("")
    # Only characters that every file system and shell takes unquoted; the hash keeps apart what this merges.
    slug = re.sub(r"[^A-Za-z0-9.+_]+", "-", name.name).strip("-.")
    return slug[:_LONGEST_PART].rstrip("-.") or otherwise

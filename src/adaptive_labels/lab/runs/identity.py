"""Which run a configuration is: only this module decides which settings count.

Data counts by its content (`data.fingerprint`) and its short name, a file by the hash stored beside its path
(`weights` and `weights_hash`). The machine, the places of files, logs and checkpoints do not count.
"""

import glob
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from adaptive_labels.lab.files import RunError, plain, read_json
from adaptive_labels.lab.runs.integrity import digest

_DATA_SUFFIXES = {".csv", ".tsv", ".json", ".jsonl", ".parquet", ".txt", ".gz"}
_LONGEST_PART = 40
# Threads and devices round differently, but the experiment is the same. How a table is read shows in its content.
_NOT_COUNTED = {
    "data": ("data_dir", "text_column", "label_column", "skip_unreadable", "drop_unlabelled", "min_per_class"),
    "training": ("device", "threads", "tensorboard", "checkpoint_seconds", "log"),
}


class RunNames(NamedTuple):
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
    names = []
    for key in ("dataset", "model", "method"):
        value = config.get("data", config.get(key)) if key == "dataset" else config.get(key)
        name = value.get("name") if isinstance(value, Mapping) else value
        if not isinstance(name, str):
            raise RunError(f"The configuration has no '{key}'; a run is named by dataset, model, method and seed.")
        names.append(name)
    seed = config.get("seed")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise RunError(f"seed is {seed!r}; it must be a whole number.")
    training = config.get("training")
    epochs = training.get("epochs") if isinstance(training, Mapping) else config.get("epochs")
    return RunNames(names[0], names[1], names[2], seed, epochs if isinstance(epochs, int) else None)


def run_id(config: Mapping[str, Any]) -> str:
    """Name a run ``<dataset>-<model>-<method>-s<seed>-<8 hex digits>``; the digits are a hash of all that counts.

    >>> run_id({"data": {"name": "data/My reviews.csv"}, "model": "fasttext", "method": "alr", "seed": 0})
    'My-reviews-fasttext-alr-s0-292e02a2'
    """
    names = names_of(config)
    parts = [_slug(names.dataset, "dataset"), _slug(names.model, "model"), _slug(names.method, "method")]
    return "-".join([*parts, f"s{names.seed}", digest(counted(config))[:8]])


def counted(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide a run's result, as plain data: two configurations that agree in these are one run.

    >>> counted({"data": {"name": "./own/reviews.csv", "data_dir": "/data"}, "training": {"threads": 2, "lr": 0.1}})
    {'data': {'name': 'reviews.csv'}, 'training': {'lr': 0.1}}
    """
    kept: dict[str, Any] = plain(config, keep_non_finite=True)
    for section, keys in _NOT_COUNTED.items():
        if isinstance(kept.get(section), dict):
            kept[section] = {key: value for key, value in kept[section].items() if key not in keys}
    for key in ("data", "dataset"):
        if isinstance(kept.get(key), dict) and isinstance(kept[key].get("name"), str):
            kept[key]["name"] = _last_part(kept[key]["name"])
        elif isinstance(kept.get(key), str):
            kept[key] = _last_part(kept[key])
    if isinstance(kept.get("model"), dict):
        kept["model"] = _by_content(kept["model"])
    if isinstance(kept.get("method"), dict) and isinstance(kept["method"].get("options"), dict):
        kept["method"]["options"] = _by_content(kept["method"]["options"])
    return kept


def recipe_hash(config: Mapping[str, Any]) -> str:
    """A hash of how a run was made: all that counts but its seed and the content and name of its data.

    Nulls are left out, so that a record, which keeps none, has the hash of its run.
    """
    kept = {key: value for key, value in counted(config).items() if key not in ("seed", "dataset")}
    data = kept.get("data")
    kept["data"] = {k: v for k, v in data.items() if k not in ("name", "fingerprint")} if isinstance(data, dict) else {}
    return digest(without_nulls(kept))[:16]


def find_run(out: str | Path, config: Mapping[str, Any]) -> Path:
    """The folder of a configuration's run under ``out``, whether it exists or not.

    An earlier version may have given the same run another hash: such a folder is found by its configuration.
    """
    path = Path(out) / run_id(config)
    if path.exists():
        return path
    for other in sorted(path.parent.glob(glob.escape(path.name[:-8]) + "?" * 8)):
        try:
            if counted(read_json(other / "config.json")) == counted(config):
                return other
        except (RunError, AttributeError):  # damaged, or no configuration: not this run
            continue
    return path


def _by_content(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without the paths of files whose hash stands beside them; nor which run a teacher with a hash is."""
    hashed = {name.removesuffix("_hash") for name, value in settings.items() if name.endswith("_hash") and value}
    if "teacher" in hashed:
        hashed.add("teacher_run")
    elif "teacher_run" in settings:  # of an earlier version, which knew a teacher by its run
        hashed.add("teacher")
    return {name: value for name, value in settings.items() if name not in hashed}


def without_nulls(values: dict[str, Any]) -> dict[str, Any]:
    """Settings without nulls, which say nothing that the defaults do not."""
    return {k: without_nulls(v) if isinstance(v, dict) else v for k, v in values.items() if v is not None}


def _last_part(name: str) -> str:
    return PurePath(name.replace("\\", "/")).name or name


def _slug(text: str, otherwise: str) -> str:
    name = PurePath(text.replace("\\", "/"))
    while name.suffix.lower() in _DATA_SUFFIXES:
        name = name.with_suffix("")
    # Only characters that every file system and shell takes unquoted; the hash keeps apart what this merges.
    slug = re.sub(r"[^A-Za-z0-9.+_]+", "-", name.name).strip("-.")
    return slug[:_LONGEST_PART].rstrip("-.") or otherwise

"""The name of a run: readable, and different for every configuration."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from .files import RunError, plain

_DATA_SUFFIXES = {".csv", ".tsv", ".json", ".jsonl", ".parquet", ".txt", ".gz"}
_LONGEST_PART = 40


def run_id(config: Mapping[str, Any]) -> str:
    """Name a run ``<dataset>-<model>-<method>-s<seed>-<8 hex digits>``.

    The digits are the start of the SHA-256 of the whole configuration as canonical JSON, so that any changed value is
    a new run; the order of the keys does not matter. A data set given by its path is named by its last part.

    >>> run_id({"dataset": "data/My reviews.csv", "model": "fasttext", "method": "alr", "seed": 0})
    'My-reviews-fasttext-alr-s0-67a353bd'
    """
    for key in ("dataset", "model", "method", "seed"):
        if key not in config:
            raise RunError(f"The configuration has no '{key}'; a run is named by dataset, model, method and seed.")
    seed = config["seed"]
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise RunError(f"seed is {seed!r}; it must be a whole number.")
    canonical = json.dumps(plain(config, keep_non_finite=True), sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(canonical.encode("ascii")).hexdigest()[:8]
    names = [_slug(str(config[key]), key) for key in ("dataset", "model", "method")]
    return "-".join([*names, f"s{seed}", digest])


def _slug(text: str, otherwise: str) -> str:
    name = PurePath(text.replace("\\", "/"))
    while name.suffix.lower() in _DATA_SUFFIXES:
        name = name.with_suffix("")
    # Only characters that every file system and shell takes unquoted; the digest keeps apart what this merges.
    slug = re.sub(r"[^A-Za-z0-9.+_]+", "-", name.name).strip("-.")
    return slug[:_LONGEST_PART].rstrip("-.") or otherwise

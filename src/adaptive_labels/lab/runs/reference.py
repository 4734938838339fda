"""The reference of a comparison: what a plain classifier reaches on the same splits, in a file beside the runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaptive_labels.lab.config import DataConfig
from adaptive_labels.lab.files import RunError, plain, write_json
from adaptive_labels.lab.runs import integrity
from adaptive_labels.lab.runs.folder import RunFolder
from adaptive_labels.lab.runs.identity import identity_settings


def reference_path(out: str | Path, data: DataConfig, features: str | None = None) -> Path:
    """Where the reference for some data is; ``features`` names the encoder whose features it reads."""
    key = integrity.digest({"data": identity_settings(data), "features": features})[:12]
    return Path(out) / f"reference-{key}.json"


def write_reference(path: Path, reference: Mapping[str, Any]) -> None:
    write_json(path, integrity.seal(plain(reference), {}))


def read_reference(path: Path) -> dict[str, Any] | None:
    """A reference from its file; None if there is none, or not as it was written: it can be made again in seconds."""
    try:
        return integrity.read_sealed(path).content
    except RunError:
        return None


def reference_of(run: RunFolder) -> dict[str, Any] | None:
    """The reference beside a run, for the features that its network reads if there is one for them."""
    config = run.config
    paths = [reference_path(run.path.parent, config.data, name) for name in (config.model.name, None)]
    return next((found for found in map(read_reference, paths) if found is not None), None)

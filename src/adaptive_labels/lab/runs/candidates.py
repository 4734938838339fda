"""Which networks were tried on some data before any method was, in a file beside the runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaptive_labels.lab.config import RunConfig
from adaptive_labels.lab.files import RunError, plain, read_json, write_json
from adaptive_labels.lab.runs import integrity
from adaptive_labels.lab.runs.folder import RunFolder
from adaptive_labels.lab.runs.identity import identity_settings

CANDIDATES = "candidates"  # the folder beside the runs


def choice_path(out: Path, config: RunConfig) -> Path:
    """Where it stands why the network of a resolved configuration was chosen for its data."""
    key = integrity.digest({"data": identity_settings(config.data), "model": identity_settings(config.model)})
    return out / CANDIDATES / f"choice-{key[:12]}.json"


def write_choice(out: Path, config: RunConfig, choice: Mapping[str, Any]) -> None:
    """Keep a choice: ``tried`` has the model, run, validation top-1 and seconds of each candidate, the best first."""
    write_json(choice_path(out, config), plain(choice))


def read_choice(run: RunFolder) -> dict[str, Any] | None:
    """The choice of a run's network; None if there was none, or if its file cannot be read."""
    path = choice_path(run.path.parent, run.config)
    try:
        choice = read_json(path) if path.exists() else None
    except RunError:
        return None
    return choice if isinstance(choice, dict) else None

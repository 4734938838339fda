"""A run is a folder; finished runs never change. docs/runs.md says what each file holds."""

from adaptive_labels.files import RunError, write_bytes, write_json, write_npz
from adaptive_labels.runs.arrays import Predictions, ResidualLabels
from adaptive_labels.runs.catalogue import check, list_runs, remove
from adaptive_labels.runs.folder import RunFolder, RunRecorder
from adaptive_labels.runs.identity import RunNames, counted, find_run, names_of, recipe_hash, run_id
from adaptive_labels.runs.lock import RunLock

__all__ = [
    "Predictions",
    "ResidualLabels",
    "RunError",
    "RunFolder",
    "RunLock",
    "RunNames",
    "RunRecorder",
    "check",
    "counted",
    "find_run",
    "list_runs",
    "names_of",
    "recipe_hash",
    "remove",
    "run_id",
    "write_bytes",
    "write_json",
    "write_npz",
]

"""A run is a folder; finished runs never change. docs/runs.md says what each file holds."""

from adaptive_labels.files import RunError, write_bytes, write_json, write_npz
from adaptive_labels.runs.arrays import Predictions, ResidualLabels
from adaptive_labels.runs.catalogue import check, list_runs, remove, tidy
from adaptive_labels.runs.folder import RunFolder, RunRecorder
from adaptive_labels.runs.identity import RunNames, counted, find_run, names_of, recipe_hash, run_id
from adaptive_labels.runs.lock import LockedError, RunLock
from adaptive_labels.runs.reference import read_reference, reference_of, reference_path, write_reference

__all__ = [
    "LockedError",
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
    "read_reference",
    "recipe_hash",
    "reference_of",
    "reference_path",
    "remove",
    "run_id",
    "tidy",
    "write_bytes",
    "write_json",
    "write_npz",
    "write_reference",
]

"""A run is a folder; finished runs never change. docs/runs.md says what each file holds."""

from adaptive_labels.lab.files import (
    RunError as RunError,
    write_bytes as write_bytes,
    write_json as write_json,
    write_npz as write_npz,
)
from adaptive_labels.lab.runs.arrays import Predictions as Predictions, ResidualLabels as ResidualLabels
from adaptive_labels.lab.runs.candidates import (
    CANDIDATES as CANDIDATES,
    read_choice as read_choice,
    write_choice as write_choice,
)
from adaptive_labels.lab.runs.catalogue import (
    find_problems as find_problems,
    list_runs as list_runs,
    remove as remove,
    tidy as tidy,
)
from adaptive_labels.lab.runs.folder import RunFolder as RunFolder
from adaptive_labels.lab.runs.identity import (
    identity_settings as identity_settings,
    recipe_hash as recipe_hash,
    run_id as run_id,
    run_path as run_path,
)
from adaptive_labels.lab.runs.lock import LockedError as LockedError, RunLock as RunLock

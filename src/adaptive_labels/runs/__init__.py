"""A run is a folder; finished runs never change.

| file | content |
|---|---|
| ``config.json`` | the whole resolved configuration |
| ``environment.json`` | versions, hardware, command, date, commit |
| ``history.jsonl`` | a line an epoch |
| ``residual_labels.npz`` | residual labels at selected epochs |
| ``predictions.npz`` | logits and labels of test and validation |
| ``examples.json`` | a few test inputs that were taken for another class |
| ``checkpoint/`` | what resuming needs |
| ``model.safetensors`` | the final weights |
| ``result.json`` | written last: a folder without it is unfinished |
| ``lock.json`` | who is writing, while someone is |
"""

from .arrays import Predictions, ResidualLabels
from .catalogue import check, list_runs, remove
from .files import RunError, write_bytes, write_json, write_npz
from .folder import RunFolder
from .identity import RunNames, names_of, run_id
from .lock import RunLock
from .recorder import RunRecorder

__all__ = [
    "Predictions",
    "ResidualLabels",
    "RunError",
    "RunFolder",
    "RunLock",
    "RunNames",
    "RunRecorder",
    "check",
    "list_runs",
    "names_of",
    "remove",
    "run_id",
    "write_bytes",
    "write_json",
    "write_npz",
]

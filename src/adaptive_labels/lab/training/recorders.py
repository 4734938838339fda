"""Where a run's history goes: the interface that the loop needs, which keeps nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray[Any, Any]]


class Recorder:
    """Gets a run's history; `rewind` is called before anything is recorded. This one keeps nothing."""

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Keep the plain numbers of a finished epoch."""

    def residual_labels(self, epoch: int, matrix: np.ndarray[Any, np.dtype[np.float32]]) -> None:
        """Keep the criterion's class similarities (K, K) after an epoch."""

    def arrays(self) -> Arrays:
        """What a checkpoint must hold beside the history for `rewind` to bring back all that was kept."""
        return {}

    def rewind(self, history: Sequence[Mapping[str, Any]], arrays: Arrays) -> None:
        """Keep these epochs and no others: the run goes on after the last of them.

        `arrays` are what `arrays` gave at that time; empty where the checkpoint holds none.
        """

    def end(self, result: Mapping[str, Any]) -> None:
        """Take the result; nothing comes after it."""

"""Recorders of a run's history: the interface that the loop needs, and one that keeps nothing."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np


class Recorder(Protocol):
    """Where a run's history goes; `rewind` is called before anything is recorded."""

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Keep the plain numbers of a finished epoch."""
        ...

    def residual_labels(self, epoch: int, matrix: np.ndarray[Any, np.dtype[np.float32]]) -> None:
        """Keep the criterion's class similarities (K, K) after an epoch."""
        ...

    def arrays(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """What a checkpoint must hold beside the history for `rewind` to bring back all that was kept."""
        ...

    def rewind(self, history: Sequence[Mapping[str, Any]], arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Keep these epochs and no others: the run goes on after the last of them.

        `arrays` are what `arrays` gave at that time; empty where the checkpoint holds none.
        """
        ...


class SilentRecorder:
    """Keeps nothing."""

    def epoch(self, *given: Any, **named: Any) -> None:
        """Nothing."""

    residual_labels = rewind = end = epoch

    def arrays(self) -> dict[str, Any]:
        return {}

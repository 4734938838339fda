"""What a training loop tells epoch by epoch, kept in a run folder."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adaptive_labels.runs.folder import RunFolder


class RunRecorder:
    """Writes each epoch into ``run`` as it ends; a loop needs to know only these three methods.

    Args:
        run: the folder, unfinished.
        classes: the K class names, for the residual labels.
    """

    def __init__(self, run: RunFolder, classes: Sequence[str]) -> None:
        self.run = run
        self.classes = tuple(classes)

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Keep the plain numbers of a finished epoch."""
        self.run.append_history(record)

    def residual_labels(self, epoch: int, matrix: np.ndarray[Any, np.dtype[np.float32]]) -> None:
        """Keep the (K, K) residual labels after an epoch."""
        self.run.append_residual_labels(epoch, matrix, self.classes)

    def rewind(self, epoch: int) -> None:
        """Forget what was kept of later epochs: the run goes on after this one."""
        self.run.truncate_history(epoch)
        self.run.truncate_residual_labels(epoch)

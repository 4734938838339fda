"""Where a run's history goes: what the loop asks of a recorder, and one that writes for TensorBoard too."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from adaptive_labels.config import ConfigError


class Recorder(Protocol):
    """Where a run's history goes; `rewind` is called before anything is recorded."""

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Keep the plain numbers of a finished epoch."""
        ...

    def residual_labels(self, epoch: int, matrix: np.ndarray[Any, np.dtype[np.float32]]) -> None:
        """Keep the criterion's class similarities (K, K) after an epoch."""
        ...

    def rewind(self, epoch: int) -> None:
        """Forget what was kept of later epochs: the run goes on after this one."""
        ...


class TensorBoardRecorder:
    """Passes a run's history on to another recorder, and writes it as TensorBoard events into a folder too."""

    def __init__(self, recorder: Recorder, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                "training.tensorboard is true, but TensorBoard is not installed: "
                "pip install 'adaptive-labels[tensorboard]', or set it to false"
            ) from error
        self._recorder, self._folder = recorder, str(folder)
        self._make_writer: Any = SummaryWriter
        self._writer: Any = None

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Write every number of the record, the loss parts under `parts/`."""
        self._recorder.epoch(record)
        scalars = {name: value for name, value in record.items() if name not in ("epoch", "parts")}
        scalars |= {f"parts/{name}": value for name, value in record["parts"].items()}
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, record["epoch"])
        self._writer.flush()

    def residual_labels(self, epoch: int, matrix: np.ndarray[Any, np.dtype[np.float32]]) -> None:
        """Write the class similarities as a picture, the largest value white."""
        self._recorder.residual_labels(epoch, matrix)
        picture = matrix / max(float(matrix.max()), 1e-12)
        self._writer.add_image("residual labels", picture, epoch, dataformats="HW")
        self._writer.flush()

    def rewind(self, epoch: int) -> None:
        """Tell TensorBoard to hide what it has of later epochs."""
        self._recorder.rewind(epoch)
        self._writer = self._make_writer(self._folder, purge_step=epoch + 1)

"""ONNX: one file for onnxruntime and others."""

import importlib.util
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from adaptive_labels.errors import UserError
from adaptive_labels.lab.experiments.export.encode import Arrays
from adaptive_labels.lab.experiments.export.exported import Exported, Infer, Settings
from adaptive_labels.lab.words import joined

FILE = "model.onnx"


def check() -> None:
    """Refuse to begin without the packages that write and run ONNX."""
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"ONNX needs {joined(missing)}, not installed here: pip install 'adaptive-labels[export]'")


def write(exported: Exported, path: Path) -> None:
    """Write the graph with its weights, the classes' names among its metadata."""
    import torch

    with _quiet():
        written = torch.onnx.export(
            exported.program,
            input_names=list(exported.arrays),
            output_names=[exported.settings["output"]],
            dynamo=True,
            verbose=False,
        )
        assert written is not None
        written.model.metadata_props.update(exported.metadata)
        written.save(path, external_data=False)


def read(path: Path, settings: Settings) -> Infer:
    """The network in a file, on the processor."""
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise UserError(f"{path} needs onnxruntime: pip install onnxruntime") from error
    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # kinds of its own, for a damaged file
        raise UserError(f"{path} cannot be read by onnxruntime") from error

    def infer(arrays: Arrays) -> NDArray[Any]:
        output: NDArray[Any] = session.run(None, dict(arrays))[0]
        return output

    return infer


@contextmanager
def _quiet() -> Iterator[None]:
    """A context without what the exporter prints for its own developers."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        with warnings.catch_warnings(action="ignore"):
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)

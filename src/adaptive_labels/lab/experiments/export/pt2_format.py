"""pt2: a graph of torch's own operations, which torch runs without this package."""

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from adaptive_labels.errors import UserError
from adaptive_labels.lab.experiments.export.encode import Arrays
from adaptive_labels.lab.experiments.export.exported import Exported, Infer, Settings

FILE = "model.pt2"


def check() -> None:
    """Nothing is missing: torch is there."""


def write(exported: Exported, path: Path) -> None:
    """Write the graph with its weights, the classes' names in an extra file."""
    with warnings.catch_warnings(action="ignore"):  # of weights that are not on the processor, where all of them are
        torch.export.save(exported.program, path, extra_files={"metadata.json": json.dumps(exported.metadata)})


def read(path: Path, settings: Settings) -> Infer:
    """The network in a file."""
    try:
        with warnings.catch_warnings(action="ignore"):
            network = torch.export.load(path).module()
    except Exception as error:  # of zipfile, json and torch, for a damaged file
        raise UserError(f"{path} cannot be read by torch.export") from error

    def infer(arrays: Arrays) -> NDArray[Any]:
        with torch.no_grad():
            output: NDArray[Any] = network(*(torch.from_numpy(arrays[name]) for name in settings["inputs"])).numpy()
        return output

    return infer

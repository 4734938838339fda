"""What all formats share: the network, and the settings in an export's `config.json`."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.export import ExportedProgram

from adaptive_labels.lab.experiments.export.encode import Arrays
from adaptive_labels.lab.experiments.export.network import PortableNetwork, program_of

FORMAT, VERSION = "adaptive-labels export", 1
Settings = Mapping[str, Any]
Infer = Callable[[Arrays], NDArray[Any]]
"""What the network gives for encoded inputs: probabilities or logits (N, K), as the settings say."""


@dataclass(frozen=True)
class Exported:
    """A network to be written, with the ``settings`` of `config.json` and ``arrays`` to trace it with."""

    network: PortableNetwork
    settings: Settings
    kind: str  # how its inputs are read, as in `preprocessing.json`
    arrays: Arrays

    @cached_property
    def program(self) -> ExportedProgram:
        """The network as a graph, made once for all formats that hold one."""
        return program_of(self.network, self.kind, self.arrays)

    @property
    def metadata(self) -> dict[str, str]:
        """What a program with nothing but the graph's file must know."""
        own = {name: self.settings[name] for name in ("format", "format_version", "temperature", "output")}
        classes = json.dumps(list(self.settings["id2label"].values()), ensure_ascii=False)
        return {**{name: str(value) for name, value in own.items()}, "classes": classes}


def probabilities_from(output: NDArray[Any], settings: Settings) -> NDArray[np.float64]:
    """Probabilities (N, K) from what the network gives."""
    found = output.astype(np.float64)
    if settings["output"] == "probabilities":
        return found
    scaled = found / settings["temperature"]
    powers: NDArray[np.float64] = np.exp(scaled - scaled.max(1, keepdims=True))
    powers /= powers.sum(1, keepdims=True)
    return powers

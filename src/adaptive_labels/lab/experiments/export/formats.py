"""The formats of an export: ONNX for onnxruntime and others, pt2 for torch, safetensors for this package.

Each writes the network of an `Exported` into its file, and reads it as a function from arrays to the network's output.
"""

import importlib.util
import json
import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.export import ExportedProgram

from adaptive_labels.errors import UserError
from adaptive_labels.lab.experiments.export.encode import Arrays
from adaptive_labels.lab.experiments.export.network import Pixels, PortableNetwork, program_of
from adaptive_labels.lab.files import write_bytes
from adaptive_labels.lab.models import MODELS, create_model, find_model
from adaptive_labels.lab.models.features import EncoderAndHead
from adaptive_labels.lab.words import joined

FORMAT, VERSION = "adaptive-labels export", 1
Settings = Mapping[str, Any]
Infer = Callable[[Arrays], NDArray[Any]]
"""What the network gives for encoded inputs: probabilities or logits (N, K), as the settings say."""
_TYPES = {"F32": torch.float32, "F16": torch.float16, "I64": torch.int64}


@dataclass(frozen=True)
class Exported:
    """A network to be written, with the ``settings`` of `config.json` and ``arrays`` to trace it with."""

    network: PortableNetwork
    settings: Settings
    kind: str  # how its inputs are read, as in `preprocessing.json`
    arrays: Arrays
    most_tokens: int | None  # that the network reads of a text, if they are limited

    @cached_property
    def program(self) -> ExportedProgram:
        """The network as a graph, made once for all formats that hold one."""
        return program_of(self.network, self.kind, self.arrays, self.most_tokens)

    @property
    def metadata(self) -> dict[str, str]:
        """What a program with nothing but the graph's file must know."""
        own = {name: str(self.settings[name]) for name in ("format", "format_version", "temperature", "output")}
        return own | {"classes": json.dumps(list(self.settings["id2label"].values()), ensure_ascii=False)}


# --------------------------------------------------------------------------------------------------------------- ONNX


def check_onnx() -> None:
    """Refuse to begin without the packages that write and run ONNX."""
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"ONNX needs {joined(missing)}, not installed here: pip install 'adaptive-labels[export]'")


def write_onnx(exported: Exported, path: Path) -> None:
    """Write the graph with its weights, the classes' names among its metadata."""
    names, output = list(exported.arrays), [exported.settings["output"]]
    logging.disable(logging.WARNING)  # what the exporter prints is for its own developers
    try:
        with warnings.catch_warnings(action="ignore"):
            written = torch.onnx.export(
                exported.program, input_names=names, output_names=output, dynamo=True, verbose=False
            )
        assert written is not None
        written.model.metadata_props.update(exported.metadata)
        written.save(path, external_data=False)
    finally:
        logging.disable(logging.NOTSET)


def read_onnx(path: Path, settings: Settings) -> Infer:
    """The network in a file, on the processor."""
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise UserError(f"{path} needs onnxruntime: pip install onnxruntime") from error
    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # kinds of its own, for a damaged file
        raise UserError(f"{path} cannot be read by onnxruntime") from error
    return lambda arrays: session.run(None, dict(arrays))[0]


# ---------------------------------------------------------------------------------------------------------------- pt2


def write_pt2(exported: Exported, path: Path) -> None:
    """Write the graph with its weights, the classes' names in an extra file."""
    with warnings.catch_warnings(action="ignore"):  # of weights that are not on the processor, where all of them are
        torch.export.save(exported.program, path, extra_files={"metadata.json": json.dumps(exported.metadata)})


def read_pt2(path: Path, settings: Settings) -> Infer:
    """The network in a file."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return _by_torch(torch.export.load(path).module(), settings)
    except Exception as error:  # of zipfile, json and torch, for a damaged file
        raise UserError(f"{path} cannot be read by torch.export") from error


def _by_torch(network: nn.Module, settings: Settings) -> Infer:
    def infer(arrays: Arrays) -> NDArray[Any]:
        with torch.no_grad():
            output: NDArray[Any] = network(*(torch.from_numpy(arrays[name]) for name in settings["inputs"])).numpy()
        return output

    return infer


# -------------------------------------------------------------------------------------------------------- safetensors


def write_safetensors(exported: Exported, path: Path) -> None:
    """Write the weights, the classes' names among the metadata."""
    from safetensors.torch import save

    entry, _ = find_model(exported.settings["network"]["name"])
    if MODELS.get(entry.name) != entry or entry.source_hash is not None:
        raise UserError(f"{entry.name} is no network of adaptive-labels: export it as onnx or pt2")
    state = {name: tensor.detach().contiguous().clone() for name, tensor in exported.network.state_dict().items()}
    write_bytes(path, save(state, metadata=exported.metadata))


def read_safetensors(path: Path, settings: Settings) -> Infer:
    """The network of the settings with the weights in a file, by torch and numpy alone."""
    try:
        network = _build(settings)
        network.load_state_dict(_tensors(path))
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} does not hold the weights of the network in config.json") from error
    return _by_torch(network.eval().requires_grad_(False), settings)


def _build(settings: Settings) -> PortableNetwork:
    """The network without its weights."""
    from adaptive_labels.lab.models.pretrained.efficientnet_lite import EfficientNetLite0, features_of
    from adaptive_labels.lab.models.pretrained.minilm import MiniLM

    encoders: dict[str, Callable[[], nn.Module]] = {
        "minilm": MiniLM,
        "efficientnet-lite0": lambda: features_of(EfficientNetLite0()),
    }
    own = settings["network"]
    with torch.random.fork_rng(devices=[]):
        network = create_model(own["name"], len(settings["id2label"]), **own["options"])
        if own["encoder"] is not None:
            network = EncoderAndHead(encoders[own["encoder"]](), network)
    pixels = None if own["pixels"] is None else Pixels(own["pixels"])
    return PortableNetwork(network, 1.0, settings["output"] == "logits", pixels)


def _tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file: eight bytes say how long the JSON is that says where each of them is."""
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    tensors = {}
    for name, entry in json.loads(content[8:begin]).items():
        if name != "__metadata__":
            start, end = (begin + offset for offset in entry["data_offsets"])
            flat = torch.frombuffer(bytearray(content[start:end]), dtype=_TYPES[entry["dtype"]])
            tensors[name] = flat.reshape(entry["shape"])
    return tensors


class Format(NamedTuple):
    """A format: the name of its file, what writes and what reads it, and what refuses to begin without its packages."""

    file: str
    write: Callable[[Exported, Path], None]
    read: Callable[[Path, Settings], Infer]
    check: Callable[[], None] = lambda: None


FORMATS: Mapping[str, Format] = {
    "onnx": Format("model.onnx", write_onnx, read_onnx, check_onnx),
    "safetensors": Format("model.safetensors", write_safetensors, read_safetensors),
    "pt2": Format("model.pt2", write_pt2, read_pt2),
}

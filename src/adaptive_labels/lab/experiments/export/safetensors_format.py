"""safetensors: the weights alone; this package builds the network around them, with torch and numpy and no more."""

import json
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from adaptive_labels.errors import UserError
from adaptive_labels.lab.experiments.export.encode import Arrays
from adaptive_labels.lab.experiments.export.exported import Exported, Infer, Settings
from adaptive_labels.lab.experiments.export.network import Pixels, PortableNetwork
from adaptive_labels.lab.files import write_bytes
from adaptive_labels.lab.models import MODELS, create_model, find_model

FILE = "model.safetensors"
_TYPES = {"F32": torch.float32, "F16": torch.float16, "I64": torch.int64}


def check() -> None:
    """Nothing is missing: runs are kept in this format, too."""


def write(exported: Exported, path: Path) -> None:
    """Write the weights, the classes' names among the metadata."""
    from safetensors.torch import save

    entry, _ = find_model(exported.settings["network"]["name"])
    if MODELS.get(entry.name) != entry or entry.source_hash is not None:
        raise UserError(f"{entry.name} is no network of adaptive-labels: export it as onnx or pt2")
    state = {name: tensor.detach().contiguous().clone() for name, tensor in exported.network.state_dict().items()}
    write_bytes(path, save(state, metadata=exported.metadata))


def read(path: Path, settings: Settings) -> Infer:
    """The network of the settings with the weights in a file."""
    try:
        network = _build(settings)
        network.load_state_dict(_tensors(path))
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} does not hold the weights of the network in config.json") from error
    network.eval().requires_grad_(False)

    def infer(arrays: Arrays) -> NDArray[Any]:
        with torch.no_grad():
            output: NDArray[Any] = network(*(torch.from_numpy(arrays[name]) for name in settings["inputs"])).numpy()
        return output

    return infer


def _build(settings: Settings) -> PortableNetwork:
    """The network without its weights."""
    from adaptive_labels.lab.models.features import EncoderAndHead

    own = settings["network"]
    with torch.random.fork_rng(devices=[]):
        network = create_model(own["name"], len(settings["id2label"]), **own["options"])
        if own["encoder"] is not None:
            network = EncoderAndHead(_empty_encoders()[own["encoder"]](), network)
    pixels = None if own["pixels"] is None else Pixels(own["pixels"])
    return PortableNetwork(network, 1.0, settings["output"] == "logits", pixels)


def _empty_encoders() -> dict[str, Any]:
    """Encoders without weights, by what a network that reads their features is said to read."""
    from adaptive_labels.lab.models.pretrained.efficientnet_lite import EfficientNetLite0, features_of
    from adaptive_labels.lab.models.pretrained.minilm import MiniLM

    empty: dict[str, Any] = {"minilm": MiniLM, "efficientnet-lite0": lambda: features_of(EfficientNetLite0())}
    return empty


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

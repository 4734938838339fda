"""What resuming needs, in a folder: tensors in safetensors, the rest in plain JSON; no code runs when it is opened.

`state.json` names the tensor file it belongs to and is replaced in one step after that file is complete, so that a
process ended at any moment leaves the last whole checkpoint.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from adaptive_labels.errors import UserError
from adaptive_labels.files import RunError, write_bytes

FORMAT = 1
STATE_FILE = "state.json"


class CheckpointError(UserError):
    """A checkpoint that cannot be written, read or used; the sentence names its folder."""


class Checkpoint(NamedTuple):
    """A training run after so many whole epochs: tensors by name, and all else as JSON can hold it."""

    epoch: int
    tensors: Mapping[str, Tensor]
    plain: Mapping[str, Any]


def write_checkpoint(folder: Path, epoch: int, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
    """Put a checkpoint in the place of the one before it."""
    tensor_file = f"epoch-{epoch}.safetensors"
    state = {"format": FORMAT, "epoch": epoch, "tensors": tensor_file, "plain": plain}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / tensor_file, save(dict(_separate(tensors))))
        write_bytes(folder / STATE_FILE, json.dumps(state, allow_nan=False).encode())
        for old in folder.iterdir():  # also what a process that was killed had begun to write
            if old.name not in (tensor_file, STATE_FILE):
                old.unlink()
    except (OSError, RunError) as error:
        raise CheckpointError(f"the checkpoint of epoch {epoch} cannot be written to {folder}: {error}") from error


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """The checkpoint in a folder, or None if there is none."""
    if not (folder / STATE_FILE).exists():
        return None
    try:
        state = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
        if state["format"] != FORMAT:
            raise CheckpointError(
                f"the checkpoint in {folder} has format {state['format']}, this version reads format {FORMAT}"
            )
        return Checkpoint(state["epoch"], load_file(folder / state["tensors"]), state["plain"])
    except (OSError, SafetensorError, json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"the checkpoint in {folder} cannot be read ({type(error).__name__}: {error}): "
            "remove the folder to start again"
        ) from error


def kept_epochs(folder: Path) -> int:
    """After how many epochs the checkpoint in a folder was written; 0 if there is none that can be read."""
    try:
        return int(json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))["epoch"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _separate(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Tensors as safetensors wants them: contiguous, on the CPU, no memory shared (tied weights are written twice)."""
    seen: set[int] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        address = tensor.untyped_storage().data_ptr()
        yield name, tensor.clone() if address in seen else tensor
        seen.add(address)


def split_optimizer_state(members: Sequence[Mapping[Any, Mapping[str, Any]]]) -> tuple[dict[str, Tensor], list[Any]]:
    """The optimizers' states, each {parameter: {key: value}}, as named tensors and the plain values that are left."""
    tensors: dict[str, Tensor] = {}
    plain = [{str(parameter): dict(values) for parameter, values in member.items()} for member in members]
    for number, member in enumerate(plain):
        for parameter, values in member.items():
            for key in [key for key, value in values.items() if isinstance(value, Tensor)]:
                tensors[f"optimizer/{number}/{parameter}/{key}"] = values.pop(key)
    return tensors, plain


def join_optimizer_state(tensors: Mapping[str, Tensor], plain: list[Any]) -> list[dict[int, dict[str, Any]]]:
    """The inverse of `split_optimizer_state`; other tensors may be among them."""
    members = [{int(parameter): dict(values) for parameter, values in member.items()} for member in plain]
    for name, tensor in tensors.items():
        if name.startswith("optimizer/"):
            _, number, parameter, key = name.split("/", 3)
            members[int(number)][int(parameter)][key] = tensor
    return members

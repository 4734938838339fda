"""What resuming needs, in a folder: tensors in safetensors, the rest in plain JSON; no code runs when it is opened.

`state.json` names the tensor file it belongs to and is replaced in one step after that file is complete, so that a
process ended at any moment leaves the last whole checkpoint.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from adaptive_labels.errors import UserError
from adaptive_labels.files import RunError, write_bytes

__all__ = ["Checkpoint", "CheckpointError", "kept_epochs", "read_checkpoint", "write_checkpoint"]

FORMAT = 1
STATE_FILE = "state.json"


class CheckpointError(UserError):
    """A checkpoint that cannot be written, read or used; the sentence names its folder."""


@dataclass(frozen=True)
class Checkpoint:
    """A training run after a whole epoch.

    epoch: the number of finished epochs.
    tensors: `objective/…`, `average/…` and `optimizer/…` by name.
    plain: everything else, as JSON can hold it.
    """

    epoch: int
    tensors: Mapping[str, Tensor]
    plain: Mapping[str, Any] = field(default_factory=dict)


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Put a checkpoint in the place of the one before it."""
    tensor_file = f"epoch-{checkpoint.epoch}.safetensors"
    state = {"format": FORMAT, "epoch": checkpoint.epoch, "tensors": tensor_file, "plain": dict(checkpoint.plain)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / tensor_file, save(dict(_separate(checkpoint.tensors))))
        write_bytes(folder / STATE_FILE, json.dumps(state, allow_nan=False).encode())
        for old in folder.iterdir():  # also what a process that was killed had begun to write
            if old.name not in (tensor_file, STATE_FILE):
                old.unlink()
    except (OSError, RunError) as error:
        raise CheckpointError(
            f"the checkpoint of epoch {checkpoint.epoch} cannot be written to {folder}: {error}"
        ) from error


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """The checkpoint in a folder, or None if there is none."""
    try:
        state = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
        if state["format"] != FORMAT:
            raise CheckpointError(
                f"the checkpoint in {folder} has format {state['format']}, this version reads format {FORMAT}"
            )
        return Checkpoint(state["epoch"], load_file(folder / state["tensors"]), state["plain"])
    except FileNotFoundError as error:
        if not (folder / STATE_FILE).exists():
            return None
        raise _unreadable(folder, error) from error
    except (OSError, SafetensorError, json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise _unreadable(folder, error) from error


def kept_epochs(folder: Path) -> int:
    """How many epochs a folder's checkpoint is after, 0 without one; the folder itself is asked, whatever was meant."""
    try:
        return int(json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))["epoch"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _unreadable(folder: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint in {folder} cannot be read ({type(error).__name__}: {error}): remove the folder to start again"
    )


def _separate(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Tensors as safetensors wants them: contiguous, on the CPU, no memory shared (tied weights are written twice)."""
    seen: set[int] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        address = tensor.untyped_storage().data_ptr()
        yield name, tensor.clone() if address in seen else tensor
        seen.add(address)


def split_optimizer_state(state: Mapping[str, Any]) -> tuple[dict[str, Tensor], list[dict[str, dict[str, Any]]]]:
    """An `Optimizers.state_dict()` as named tensors and plain values."""
    tensors: dict[str, Tensor] = {}
    plain: list[dict[str, dict[str, Any]]] = []
    for number, member in enumerate(state["members"]):
        plain.append({})
        for parameter, values in member.items():
            rest = plain[-1].setdefault(str(parameter), {})
            for key, value in values.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer/{number}/{parameter}/{key}"] = value
                else:
                    rest[key] = value
    return tensors, plain


def join_optimizer_state(
    tensors: Mapping[str, Tensor], plain: list[dict[str, dict[str, Any]]]
) -> dict[str, list[dict[int, dict[str, Any]]]]:
    """The inverse of `split_optimizer_state`."""
    members: list[dict[int, dict[str, Any]]] = [
        {int(parameter): dict(rest) for parameter, rest in member.items()} for member in plain
    ]
    for name, tensor in tensors.items():
        if name.startswith("optimizer/"):
            _, number, parameter, key = name.split("/", 3)
            members[int(number)][int(parameter)][key] = tensor
    return {"members": members}

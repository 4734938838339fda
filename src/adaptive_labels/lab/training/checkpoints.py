"""Checkpoints: tensors in safetensors, the rest in plain JSON; no code runs when they are opened.

A checkpoint is `epoch-N.safetensors` and `epoch-N.json`, which is written last and holds the hash of the former and its
own (`runs.integrity`); within the next epoch it is `epoch-N-step-M`. The last two are kept, so that a process ended at
any moment and a damaged file leave one.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from adaptive_labels.errors import UserError
from adaptive_labels.lab.files import RunError, refuse_special, write_bytes
from adaptive_labels.lab.runs import integrity

KEPT = 2
DAMAGED = ".damaged"


class CheckpointError(UserError):
    """A checkpoint that cannot be written, read or used; the sentence names its folder."""


class Checkpoint(NamedTuple):
    """A training run after so many whole epochs: tensors by name, and all else as JSON can hold it."""

    epoch: int
    tensors: Mapping[str, Tensor]
    plain: Mapping[str, Any]

    @property
    def step(self) -> int:
        """How many steps of the next epoch are done, too."""
        within = self.plain.get("within")
        return int(within["step"]) if isinstance(within, dict) else 0


def write_checkpoint(
    folder: Path, epoch: int, tensors: Mapping[str, Tensor], plain: Mapping[str, Any], step: int = 0
) -> None:
    """Add a checkpoint after so many epochs, and steps of the next one, and remove all but the one before it."""
    name = f"epoch-{epoch}-step-{step}" if step else f"epoch-{epoch}"
    tensor_file = f"{name}.safetensors"
    content = json.loads(json.dumps({"epoch": epoch, "tensors": tensor_file, "plain": plain}, allow_nan=False))
    data = save(dict(_separate(tensors)))
    sealed = integrity.seal(content, {tensor_file: hashlib.sha256(data).hexdigest()})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / tensor_file, data)
        write_bytes(folder / f"{name}.json", json.dumps(sealed).encode())
        kept_names = {path.stem for path in integrity.checkpoint_manifests(folder)[:KEPT]}
        for old in folder.iterdir():  # also what a process that was killed had begun to write
            if old.stem not in kept_names and old.suffix != DAMAGED:
                old.unlink()
    except (OSError, RunError) as error:
        raise CheckpointError(
            f"the checkpoint of {_place(epoch, step)} cannot be written to {folder}: {error}"
        ) from error


def read_checkpoint(folder: Path, note: Callable[[str], None] = lambda words: None) -> Checkpoint | None:
    """The last whole checkpoint in a folder, or None if there is none.

    Damaged ones are set aside: their files get another name, and ``note`` is given a sentence about each.
    """
    problems, checkpoint = [], None
    for path in integrity.checkpoint_manifests(folder):
        try:
            checkpoint = _read(path)
            break
        except (RunError, OSError, SafetensorError, KeyError, TypeError) as error:
            problems.append(f"the checkpoint {path} cannot be used ({_reason(error)}): it was set aside")
            _set_aside(path)
    then = "starts again" if checkpoint is None else f"goes on after {_place(checkpoint.epoch, checkpoint.step)}"
    for problem in problems:
        note(f"{problem}, and the run {then}")
    return checkpoint


def kept_up_to(folder: Path) -> str | None:
    """Up to where the last checkpoint in a folder goes, in words; None if there is none that can be read."""
    last = next(iter(integrity.checkpoint_manifests(folder)), None)
    return None if last is None else _place(*integrity.checkpoint_place(last))


def _place(epoch: int, step: int) -> str:
    return f"step {step} of epoch {epoch + 1}" if step else f"epoch {epoch}"


def _read(path: Path) -> Checkpoint:
    content = integrity.verify_checkpoint(path)
    refuse_special(path.parent / content["tensors"])
    tensors = load_file(path.parent / content["tensors"])
    if not isinstance(content["plain"], dict):
        raise RunError(f"{path} holds no state of a run.")
    return Checkpoint(content["epoch"], tensors, content["plain"])


def _set_aside(path: Path) -> None:
    tensors = path.with_suffix(".safetensors")
    try:
        for file in (path, tensors):
            if file.exists():
                file.rename(file.with_name(file.name + DAMAGED))
    except OSError as error:
        raise CheckpointError(f"{path} is damaged and cannot be set aside: {error.strerror}") from error


def _reason(error: Exception) -> str:
    return str(error).rstrip(".") if isinstance(error, RunError) else f"{type(error).__name__}: {error}"


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

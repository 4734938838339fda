"""Check that files are unchanged since they were written; hashes of files are made and compared here only.

A *sealed* file is a JSON object that is written after the files it describes. Its key ``seal`` holds the SHA-256 of
each of those ``files``, and ``sha256``, that of the object's own other content.
"""

import functools
import hashlib
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from adaptive_labels.lab.files import RunError, file_hash, read_json

SEAL = "seal"
_CHECKPOINT = re.compile(r"epoch-([0-9]+)(?:-step-([0-9]+))?")
# A file changed this shortly before it was hashed may change again within one tick of the file system's clock.
_UNSETTLED_NANOSECONDS = 50_000_000


class DamagedError(RunError):
    """A file that is not what was written."""


class Sealed(NamedTuple):
    """A sealed file's own content, and the hashes it holds."""

    content: dict[str, Any]
    files: dict[str, str]


def seal(content: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    body = {**content, SEAL: {"files": dict(files)}}
    return {**content, SEAL: {**body[SEAL], "sha256": digest(body)}}


def read_sealed(path: Path) -> Sealed:
    """Read a sealed file; a `DamagedError` if it is not what was written."""
    content = read_object(path)
    seal_of = content.pop(SEAL, None)
    if not isinstance(seal_of, dict) or not isinstance(seal_of.get("files"), dict):
        raise DamagedError(f"{path} is damaged: it has no seal that can be read.")
    stored = seal_of.pop("sha256", None)
    if stored != digest({**content, SEAL: seal_of}):
        raise DamagedError(f"{path} is damaged: its content is not what was written.")
    return Sealed(content, seal_of["files"])


def read_object(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise RunError(f"{path} holds a {type(content).__name__}; it must hold a JSON object.")
    return content


def verify_file(path: Path, expected: str | None) -> None:
    """Raise a `DamagedError` unless a file has this hash; None stands for a file that was not written."""
    try:
        actual = _hash_once(path) if path.exists() else None
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error.strerror}.") from None
    if actual == expected:
        return
    if actual is None:
        raise DamagedError(f"{path} is missing, although the run is finished.")
    if expected is None:
        raise DamagedError(f"{path} was not written by the run: it came later.")
    raise DamagedError(f"{path} is damaged: its content is not what was written.")


def checkpoint_manifests(folder: Path) -> list[Path]:
    """The sealed files of the checkpoints in a folder, the latest first."""
    manifests = [path for path in folder.glob("epoch-*.json") if _CHECKPOINT.fullmatch(path.stem)]
    return sorted(manifests, key=checkpoint_place, reverse=True)


def checkpoint_place(manifest: Path) -> tuple[int, int]:
    """After how many epochs a checkpoint was written, and after how many steps of the next one."""
    match = _CHECKPOINT.fullmatch(manifest.stem)
    assert match is not None
    return int(match[1]), int(match[2] or 0)


def verify_checkpoint(manifest: Path) -> dict[str, Any]:
    """The content of a checkpoint's sealed file, once it and the files it speaks for are known to be whole."""
    content, files = read_sealed(manifest)
    for name, expected in files.items():
        if not (manifest.parent / name).exists():
            raise DamagedError(f"{manifest.parent / name} is missing.")
        verify_file(manifest.parent / name, expected)
    return content


def digest(values: Mapping[str, Any]) -> str:
    """SHA-256 of plain data, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def _hash_once(path: Path) -> str:
    """The hash of a file, which is read once per process unless it changes."""
    state = path.stat()
    if time.time_ns() - state.st_ctime_ns < _UNSETTLED_NANOSECONDS:
        return file_hash(path)
    return _hash_of_state(path.absolute(), state.st_ino, state.st_size, state.st_ctime_ns)


@functools.lru_cache(maxsize=8192)
def _hash_of_state(path: Path, *state: int) -> str:
    return file_hash(path)

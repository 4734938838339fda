"""Writing files so that a crash, a full disk or a second reader never sees half of one."""

import contextlib
import errno
import json
import math
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from adaptive_labels.errors import UserError


class RunError(UserError):
    """Something about a run folder that the user can put right, in one sentence."""


def plain(data: Any, *, keep_non_finite: bool = False, where: str = "") -> Any:
    """Turn ``data`` into what JSON can hold: dicts, lists, strings, numbers, booleans and None.

    Tuples become lists, numpy scalars and arrays become numbers and lists, paths become strings. NaN and infinity
    become None, because JSON has no word for them; ``keep_non_finite`` leaves them as they are.
    """
    if isinstance(data, np.ndarray | np.generic):
        data = data.tolist()
    if data is None or isinstance(data, bool | int | str):
        return data
    if isinstance(data, float):
        return data if keep_non_finite or math.isfinite(data) else None
    if isinstance(data, Path):
        return str(data)
    if isinstance(data, Mapping):
        for key in data:
            if not isinstance(key, str):
                raise RunError(f"The key {key!r} at {where or 'the top'} is not a string, as JSON wants.")
        return {
            key: plain(value, keep_non_finite=keep_non_finite, where=f"{where}.{key}".lstrip("."))
            for key, value in data.items()
        }
    if isinstance(data, set | frozenset):
        data = sorted(data)
    if isinstance(data, Sequence) and not isinstance(data, bytes | bytearray):
        return [plain(value, keep_non_finite=keep_non_finite, where=f"{where}[{i}]") for i, value in enumerate(data)]
    raise RunError(f"The value at {where or 'the top'} is a {type(data).__name__}, which JSON cannot hold.")


def json_bytes(data: Any, *, indent: int | None = None) -> bytes:
    """Encode ``data`` as UTF-8 JSON (see `plain` for what is converted)."""
    converted = plain(data)
    try:
        return json.dumps(converted, indent=indent, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except UnicodeEncodeError:
        # A file name that is not valid Unicode reaches us with lone surrogates, which only escapes can carry.
        return json.dumps(converted, indent=indent, allow_nan=False).encode("ascii")


def write_error(path: Path, error: OSError) -> RunError:
    """Say in one sentence why ``path`` could not be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        why = "the disk is full"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        why = "the folder may not be written to"
    else:
        why = error.strerror or str(error)
    return RunError(f"Cannot write {path}: {why}.")


def write_with(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write ``path`` atomically: ``fill`` is given a file to write to. An OSError becomes a `RunError`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        # Opened plainly rather than by tempfile, so that the user's umask decides who may read the run.
        with temporary.open("xb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise write_error(path, error) from error
        raise
    with contextlib.suppress(OSError):  # makes the rename survive a power cut, where the system offers that
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write ``data`` to ``path`` atomically: afterwards the file is either the old one or the new one, whole."""
    write_with(Path(path), lambda file: file.write(data))


def write_json(path: str | Path, data: Any) -> None:
    """Write ``data`` as indented JSON to ``path`` atomically; NaN and infinity become null."""
    write_bytes(path, json_bytes(data, indent=2) + b"\n")


def write_npz(path: str | Path, /, **arrays: Any) -> None:
    """Write named arrays to ``path`` atomically, as an ``.npz`` that opens without pickle."""
    converted: dict[str, Any] = {name: np.asarray(array) for name, array in arrays.items()}
    for name, array in converted.items():
        if array.dtype.hasobject:
            raise RunError(f"The array '{name}' for {path} holds Python objects; give it numbers or strings.")
    write_with(Path(path), lambda file: np.savez(file, **converted))


def read_json(path: str | Path) -> Any:
    """Read a JSON file; a missing or broken one is a `RunError` that names it."""
    try:
        return json.loads(Path(path).read_bytes())
    except FileNotFoundError:
        raise RunError(f"{path} does not exist.") from None
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error.strerror}.") from None
    except ValueError as error:
        raise RunError(f"{path} is not valid JSON: {error}.") from None


def read_npz(path: str | Path) -> dict[str, Any]:
    """Read every array of an ``.npz``; a missing or broken one is a `RunError` that names it."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise RunError(f"{path} does not exist.") from None
    except Exception as error:  # zipfile, zlib and numpy each raise their own kinds for a damaged file
        raise RunError(f"{path} cannot be read as an npz file: {error}.") from None

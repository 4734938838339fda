"""Write files atomically, so that a half-written file never appears; read ordinary files only."""

import contextlib
import errno
import functools
import glob
import hashlib
import io
import json
import math
import os
import platform
import secrets
import stat
import tomllib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from adaptive_labels.errors import UserError
from adaptive_labels.lab.limits import FILE_LIMITS, check_limit, limit_of

LARGEST_COMPRESSED = 2**28  # bytes of the arrays of a file
_SPECIAL = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
_NOT_REPLACED = {stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder", **_SPECIAL}


class RunError(UserError):
    """Something about a run folder that the user can put right, in one sentence."""


def plain(data: Any, *, where: str = "") -> Any:
    """Turn ``data`` into what JSON can hold: dicts, lists, strings, numbers, booleans and None.

    Tuples become lists, numpy scalars and arrays become numbers and lists, paths become strings. NaN and infinity
    become None, because JSON has no word for them.
    """
    if isinstance(data, np.ndarray | np.generic):
        data = data.tolist()
    if data is None or isinstance(data, bool | int | str):
        return data
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Path):
        return str(data)
    if isinstance(data, Mapping):
        for key in data:
            if not isinstance(key, str):
                raise RunError(f"The key {key!r} at {where or 'the top'} is not a string, as JSON wants.")
        return {key: plain(value, where=f"{where}.{key}".lstrip(".")) for key, value in data.items()}
    if isinstance(data, set | frozenset):
        data = sorted(data)
    if isinstance(data, Sequence) and not isinstance(data, bytes | bytearray):
        return [plain(value, where=f"{where}[{i}]") for i, value in enumerate(data)]
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


def check_replaceable(path: Path) -> None:
    """Refuse to write where something lies that is no ordinary file: a rename would put a file in its place."""
    try:
        kind = _NOT_REPLACED.get(stat.S_IFMT(path.lstat().st_mode))
    except FileNotFoundError:
        return
    except OSError as error:
        raise write_error(path, error) from error
    if kind is not None:
        raise RunError(f"Cannot write {path}: it is {kind}, which is not replaced; give the name of a file.")


def write_with(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write ``path`` atomically: ``fill`` is given a file to write to. An OSError becomes a `RunError`."""
    check_replaceable(path)
    _remove_abandoned(path)
    temporary = path.with_name(f".{path.name}.{_machine()}-{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        # Opened plainly rather than by tempfile, so that the user's umask decides who may read the run.
        with temporary.open("xb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        with contextlib.suppress(OSError):  # it is gone already if all went well
            temporary.unlink()
    with contextlib.suppress(OSError):  # makes the rename survive a power cut, where the system offers that
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of this file, left by processes that were ended while they wrote it."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.{_machine()}-*.tmp"):
        process = left.name.split("-")[-2]
        if process.isdecimal() and not _is_alive(int(process)):
            with contextlib.suppress(OSError):
                left.unlink()


@functools.cache
def _machine() -> str:
    """A name for where process numbers are unique: this machine, or this container on it."""
    with contextlib.suppress(OSError):
        return hashlib.sha256(f"{platform.node()} {Path('/proc/self/ns/pid').readlink()}".encode()).hexdigest()[:8]
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _is_alive(process: int) -> bool:
    """Whether a process of this machine is there; yes where that cannot be asked without harm."""
    try:
        if os.name == "posix":
            os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        pass
    return True


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write ``data`` to ``path`` atomically: afterwards the file is either the old one or the new one, whole."""
    write_with(Path(path), lambda file: file.write(data))


def write_files(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write texts by the names of their files into a folder, which is made if there are any; the files."""
    if texts:
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_bytes(folder / name, text.encode())
    return [folder / name for name in texts]


def write_json(path: str | Path, data: Any) -> None:
    """Write ``data`` as indented JSON to ``path`` atomically; NaN and infinity become null."""
    write_bytes(path, json_bytes(data, indent=2) + b"\n")


def write_npz(path: str | Path, /, **arrays: Any) -> None:
    """Write named arrays to ``path`` atomically, as an ``.npz`` that opens without pickle; compressed unless huge."""
    converted: dict[str, Any] = {name: np.asarray(array) for name, array in arrays.items()}
    for name, array in converted.items():
        if array.dtype.hasobject:
            raise RunError(f"The array '{name}' for {path} holds Python objects; give it numbers or strings.")
    # Of the logits of a million texts compression took off a fifth, in more time than their evaluation.
    huge = sum(array.nbytes for array in converted.values()) > LARGEST_COMPRESSED
    write_with(Path(path), lambda file: (np.savez if huge else np.savez_compressed)(file, **converted))


def file_hash(path: str | Path) -> str:
    """SHA-256 of a file's content, in hexadecimal; the file is read in pieces."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def expanded(path: str | Path) -> Path:
    """The path with ~ as the home folder; as it is if there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def refuse_special(path: str | Path, opened: int | None = None) -> None:
    """Raise an OSError if a path, or a file ``opened`` there, is a pipe, a device or a socket: these hold no data."""
    state = Path(path).stat() if opened is None else os.fstat(opened)
    kind = _SPECIAL.get(stat.S_IFMT(state.st_mode))
    if kind is not None:
        raise OSError(errno.EINVAL, f"it is {kind}, and only ordinary files are opened", str(path))


def open_regular(path: str | Path) -> io.BufferedReader:
    """Open an ordinary file to read it; an OSError for a pipe, a device or a socket, which is not opened."""
    refuse_special(path)
    # Another process might have put a pipe there since, at which a plain open would wait for ever.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = os.fdopen(os.open(path, flags), "rb")
    try:
        refuse_special(path, file.fileno())
    except OSError:
        file.close()
        raise
    return file


def read_bytes(path: str | Path) -> bytes:
    """All of an ordinary file, unless it has more bytes than the limit."""
    with open_regular(path) as file:
        check_limit("file", os.fstat(file.fileno()).st_size, path)
        return file.read()


def read_text(path: str | Path, encoding: str = "utf-8", errors: str = "strict") -> str:
    """All of an ordinary file as text."""
    return read_bytes(path).decode(encoding, errors).replace("\r\n", "\n").replace("\r", "\n")


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file; a ValueError or an OSError says what is wrong with it."""
    try:
        return tomllib.loads(read_text(path))
    except RecursionError:
        raise ValueError(too_deep()) from None


def check_members(path: str | Path, archive: zipfile.ZipFile) -> None:
    """Refuse a zip archive, read as a whole, with too many members or too much in them."""
    members = archive.infolist()
    check_limit("members", len(members), path)
    check_limit("file", sum(member.file_size for member in members), path)


def parse_json(data: str | bytes) -> Any:
    """The content of a JSON text; a ValueError if it is not valid, or nested deeper than the limit."""
    try:
        parsed = json.loads(data)
        if len(data) < 2 * limit_of("nesting") or _depth_is_fine(parsed):
            return parsed
    except RecursionError:
        pass
    raise ValueError(too_deep())


def too_deep() -> str:
    """The sentence on JSON or TOML that is nested deeper than the limit."""
    most, variable = limit_of("nesting"), FILE_LIMITS["nesting"].variable
    return f"it is nested more than {most} levels deep; the environment variable {variable} raises this limit"


def _depth_is_fine(parsed: Any) -> bool:
    level = [parsed]
    for _ in range(limit_of("nesting")):
        nested = [value for value in level if isinstance(value, dict | list)]
        level = [value for parent in nested for value in (parent.values() if isinstance(parent, dict) else parent)]
        if not level:
            return True
    return False


def read_json(path: str | Path) -> Any:
    """Read a JSON file; a missing or broken one is a `RunError` that names it."""
    try:
        return parse_json(read_bytes(path))
    except FileNotFoundError:
        raise RunError(f"{path} does not exist.") from None
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error.strerror}.") from None
    except UserError:  # of a limit
        raise
    except ValueError as error:
        raise RunError(f"{path} is not valid JSON: {error}.") from None


def read_npz(path: str | Path) -> dict[str, Any]:
    """Read every array of an ``.npz``; a missing or broken one is a `RunError` that names it."""
    try:
        with open_regular(path) as content, np.load(content, allow_pickle=False) as file:
            check_members(path, file.zip)
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise RunError(f"{path} does not exist.") from None
    except UserError:  # of a limit
        raise
    except Exception as error:  # zipfile, zlib and numpy each raise their own kinds for a damaged file
        raise RunError(f"{path} cannot be read as an npz file: {error}.") from None


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a file of JSON objects, without a last one that a crash tore; none if there is no file."""
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error.strerror}.") from None
    *lines, last = data.split(b"\n")
    if json_object(last) is not None:  # only the newline was lost
        lines.append(last)
    elif not last and lines and b"\0" in lines[-1]:
        lines.pop()  # blocks can reach the disk out of order: a newline after a hole
    return lines


def append_line(path: Path, line: bytes) -> None:
    """Add a JSON object to such a file, so that it survives a power cut. What a crash tore before is repaired."""
    whole = b"".join(earlier + b"\n" for earlier in whole_lines(path))
    try:
        if path.exists() and read_bytes(path) != whole:
            write_bytes(path, whole)
        with path.open("ab") as file:
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:  # half a line may be there: it is left out and repaired as one torn by a crash
        raise write_error(path, error) from error


def json_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object on a line, or None if it is something else."""
    try:
        parsed = parse_json(line)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None

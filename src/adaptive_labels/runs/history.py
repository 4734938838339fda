"""A run's history: one line of JSON per epoch, which survives a crash in the middle of a line."""

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaptive_labels.files import RunError, json_bytes, write_bytes, write_error


def read_history(path: Path) -> list[dict[str, Any]]:
    """Read every whole line; a torn last line, as a crash leaves it, is left out.

    A broken line anywhere else is not from a crash, and raises a `RunError` with its number.
    """
    return [_parse(path, number, line) for number, line in enumerate(_whole_lines(path), start=1)]


def append_history(path: Path, line: Mapping[str, Any]) -> None:
    """Add one epoch and see it onto the disk; what a crash tore before is repaired first.

    ``line["epoch"]`` must be a whole number, later than the last one in the file.
    """
    epoch = line.get("epoch")
    if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 1:
        raise RunError(f"A history line has epoch {epoch!r}; it must be a whole number from 1 on.")
    before = read_history(path)
    if before and before[-1]["epoch"] >= epoch:
        raise RunError(f"{path} already reaches epoch {before[-1]['epoch']}; epoch {epoch} cannot follow it.")
    whole = b"".join(line + b"\n" for line in _whole_lines(path))
    if path.exists() and whole != path.read_bytes():
        write_bytes(path, whole)
    _append(path, json_bytes(line) + b"\n")


def truncate_history(path: Path, epoch: int) -> None:
    """Drop every line after ``epoch``, so that a run resumed from a checkpoint there does not tell an epoch twice."""
    if path.exists():
        kept = [json_bytes(line) + b"\n" for line in read_history(path) if line["epoch"] <= epoch]
        write_bytes(path, b"".join(kept))


def _append(path: Path, data: bytes) -> None:
    size = path.stat().st_size if path.exists() else 0
    try:
        with path.open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with contextlib.suppress(OSError):
            os.truncate(path, size)
        raise write_error(path, error) from error


def _whole_lines(path: Path) -> list[bytes]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error.strerror}.") from None
    *lines, last = data.split(b"\n")
    if last and _is_object(last):  # only the newline was lost
        lines.append(last)
    elif not last and lines and not _is_object(lines[-1]):
        lines.pop()  # blocks can reach the disk out of order: a newline after a hole
    return lines


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    if not _is_object(line):
        raise RunError(f"{path}, line {number}, is not a JSON object.")
    parsed: dict[str, Any] = json.loads(line)
    if not isinstance(parsed.get("epoch"), int):
        raise RunError(f"{path}, line {number}, has no whole number as its 'epoch'.")
    return parsed

"""One run, as a folder."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from adaptive_labels.files import RunError, json_bytes, read_json, write_bytes, write_error, write_json
from adaptive_labels.runs import arrays
from adaptive_labels.runs.environment import describe_environment
from adaptive_labels.runs.identity import RunNames, counted, find_run, names_of
from adaptive_labels.runs.lock import RunLock

RESULT_KEYS = ("dataset", "model", "method", "seed", "epochs", "parameters", "metrics", "seconds")
STATUSES = ("finished", "diverged")


class RunFolder:
    """A run's files, read and written; once ``result.json`` is there, nothing in the folder changes any more.

    ``RunFolder(path)`` opens one that exists, `RunFolder.create` makes one or comes back to it. Nothing is read before
    it is asked for, so that a damaged folder can still be listed and checked.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / "config.json").is_file():
            raise RunError(f"{self.path} is not a run: it has no config.json.")

    @classmethod
    def create(cls, out: str | Path, config: Mapping[str, Any]) -> "RunFolder":
        """Make the folder for ``config`` under ``out``, or open the one an earlier call made."""
        path = find_run(out, config)
        _make_folder(path)
        if not (path / "config.json").exists():
            write_json(path / "config.json", config)
        run = cls(path)
        if counted(run.config) != counted(config):
            raise RunError(f"{path / 'config.json'} was changed: it is not the configuration the run is named by.")
        return run

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    @property
    def name(self) -> str:
        """The folder's own name, usually what `run_id` gave."""
        return self.path.name

    @property
    def config(self) -> dict[str, Any]:
        """The whole resolved configuration."""
        return self._object("config.json")

    @property
    def names(self) -> RunNames:
        """Data set, model, method, seed and epochs, out of the configuration."""
        return names_of(self.config)

    @property
    def environment(self) -> dict[str, Any] | None:
        """What `write_environment` recorded, or None."""
        return self._perhaps("environment.json")

    @property
    def examples(self) -> dict[str, Any] | None:
        """A few test inputs that were taken for another class (``examples.json``), or None."""
        return self._perhaps("examples.json")

    @property
    def finished(self) -> bool:
        """Whether ``result.json`` is there; true of a run that diverged as well."""
        return (self.path / "result.json").exists()

    @property
    def result(self) -> dict[str, Any] | None:
        """The content of ``result.json``, or None while the run is unfinished."""
        return self._perhaps("result.json")

    def lock(self) -> RunLock:
        """A lock to hold while writing: ``with run.lock(): ...``."""
        return RunLock(self.path)

    def history(self) -> list[dict[str, Any]]:
        """One dict per epoch; a last line torn by a crash is left out, any other broken line is a `RunError`."""
        path = self.path / "history.jsonl"
        found = []
        for number, line in enumerate(_whole_lines(path), start=1):
            record = _json_object(line)
            if record is None:
                raise RunError(f"{path}, line {number}, is not a JSON object.")
            if not isinstance(record.get("epoch"), int):
                raise RunError(f"{path}, line {number}, has no whole number as its 'epoch'.")
            found.append(record)
        return found

    def append_history(self, line: Mapping[str, Any]) -> None:
        """Add an epoch; its number must be later than the last one's. What a crash tore before is repaired."""
        path, epoch, before = self._writable("history.jsonl"), line.get("epoch"), self.history()
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 1:
            raise RunError(f"A history line has epoch {epoch!r}; it must be a whole number from 1 on.")
        if before and before[-1]["epoch"] >= epoch:
            raise RunError(f"{path} already reaches epoch {before[-1]['epoch']}; epoch {epoch} cannot follow it.")
        whole = _joined(_whole_lines(path))
        try:
            if path.exists() and path.read_bytes() != whole:
                write_bytes(path, whole)
            with path.open("ab") as file:
                file.write(_joined([json_bytes(line)]))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:  # half a line may be there: it is left out and repaired as one torn by a crash
            raise write_error(path, error) from error

    def rewind(self, epoch: int) -> None:
        """Forget the history and residual labels after ``epoch``, before the run goes on from there."""
        path = self._writable("history.jsonl")
        if path.exists():
            write_bytes(path, _joined([json_bytes(line) for line in self.history() if line["epoch"] <= epoch]))
        arrays.truncate_residual_labels(self._writable("residual_labels.npz"), epoch)

    def write_environment(self, command: str | Sequence[str]) -> None:
        """Record versions, hardware, command, date and commit; what cannot be found out is null."""
        self.write_json("environment.json", describe_environment(command))

    def write_json(self, name: str, data: Any) -> None:
        """Write a further JSON file into the folder, atomically."""
        write_json(self._writable(name), data)

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a further file into the folder, atomically (``"model.safetensors"``, ``"checkpoint/state.json"``)."""
        path = self._writable(name)
        _make_folder(path.parent)
        write_bytes(path, data)

    def save_residual_labels(self, epochs: ArrayLike, labels: ArrayLike, classes: Sequence[str]) -> None:
        """Add later epochs to ``residual_labels.npz``: (E,), (E, K, K) and K names."""
        arrays.save_residual_labels(self._writable("residual_labels.npz"), epochs, labels, classes)

    def load_residual_labels(self) -> arrays.ResidualLabels | None:
        """Read ``residual_labels.npz``, or None if the method has none."""
        path = self.path / "residual_labels.npz"
        return arrays.load_residual_labels(path) if path.exists() else None

    def save_predictions(self, **given: Any) -> None:
        """Write ``predictions.npz``: logits and labels by split (see `arrays.save_predictions` for the arguments)."""
        arrays.save_predictions(self._writable("predictions.npz"), **given)

    def load_predictions(self) -> arrays.Predictions | None:
        """Read ``predictions.npz``, or None if none were kept."""
        path = self.path / "predictions.npz"
        return arrays.load_predictions(path) if path.exists() else None

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write ``result.json``, after which nothing in the folder may change.

        ``status`` is ``"finished"`` unless given as ``"diverged"``, which needs a ``reason``.
        """
        missing = [key for key in RESULT_KEYS if key not in result]
        if missing:
            raise RunError(f"The result of {self.name} has no {', '.join(missing)}.")
        complete = {**result, "status": result.get("status", "finished"), "reason": result.get("reason")}
        if complete["status"] not in STATUSES:
            raise RunError(f"status is {complete['status']!r}; it must be one of {', '.join(STATUSES)}.")
        if complete["status"] == "diverged" and not complete["reason"]:
            raise RunError(f"The result of {self.name} is diverged and needs a reason.")
        self.write_json("result.json", complete)

    def _writable(self, name: str) -> Path:
        if self.finished:
            raise RunError(f"{self.path} is finished, and finished runs never change; {name} was not written.")
        return self.path / name

    def _perhaps(self, name: str) -> dict[str, Any] | None:
        return self._object(name) if (self.path / name).exists() else None

    def _object(self, name: str) -> dict[str, Any]:
        content = read_json(self.path / name)
        if not isinstance(content, dict):
            raise RunError(f"{self.path / name} holds a {type(content).__name__}; it must hold a JSON object.")
        return content


class RunRecorder:
    """Writes each epoch into ``run`` as it ends; ``classes`` are the K names for the residual labels."""

    def __init__(self, run: RunFolder, classes: Sequence[str]) -> None:
        self.run = run
        self.classes = classes

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Keep the plain numbers of a finished epoch."""
        self.run.append_history(record)

    def residual_labels(self, epoch: int, matrix: np.ndarray[Any, np.dtype[np.float32]]) -> None:
        """Keep the (K, K) residual labels after an epoch."""
        self.run.save_residual_labels([epoch], matrix[None], self.classes)

    def rewind(self, epoch: int) -> None:
        """Forget what was kept of later epochs: the run goes on after this one."""
        self.run.rewind(epoch)


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(path, error) from error


def _joined(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _whole_lines(path: Path) -> list[bytes]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error.strerror}.") from None
    *lines, last = data.split(b"\n")
    if _json_object(last) is not None:  # only the newline was lost
        lines.append(last)
    elif not last and lines and _json_object(lines[-1]) is None:
        lines.pop()  # blocks can reach the disk out of order: a newline after a hole
    return lines


def _json_object(line: bytes) -> dict[str, Any] | None:
    try:
        parsed = json.loads(line)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None

"""One run, as a folder."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from adaptive_labels.lab.config import ConfigError, RunConfig, from_dict, to_dict
from adaptive_labels.lab.files import (
    RunError,
    append_line,
    file_hash,
    json_bytes,
    json_object,
    plain,
    whole_lines,
    write_bytes,
    write_error,
    write_json,
    write_npz,
)
from adaptive_labels.lab.runs import arrays, integrity
from adaptive_labels.lab.runs.environment import describe_environment
from adaptive_labels.lab.runs.identity import identity_settings
from adaptive_labels.lab.runs.lock import RunLock

STATUSES = ("finished", "diverged")

_RESULT_TYPES: dict[str, type | tuple[type, ...]] = {
    "dataset": str,
    "model": str,
    "method": str,
    "seed": int,
    "epochs": int,
    "parameters": dict,
    "metrics": dict,
    "seconds": (int, float),
}


def result_problems(result: Mapping[str, Any]) -> list[str]:
    """What a result lacks, or has of the wrong kind."""
    problems, missing = [], [key for key in _RESULT_TYPES if key not in result]
    if missing:
        problems.append(f"has no {', '.join(missing)}")
    if result.get("status") not in STATUSES:
        problems.append(f"has the status {result.get('status')!r}, which is not one of {', '.join(STATUSES)}")
    for key, kind in {**_RESULT_TYPES, "reason": (str, type(None))}.items():
        if key in result and (not isinstance(result[key], kind) or isinstance(result[key], bool)):
            problems.append(f"has a {type(result[key]).__name__} as its {key}")
    if isinstance(metrics := result.get("metrics"), dict) and not all(isinstance(m, dict) for m in metrics.values()):
        problems.append("has metrics that are not of splits")
    return problems


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
    def create(cls, path: str | Path, config: RunConfig) -> "RunFolder":
        """Make the folder of a run, or open the one an earlier call made; ``path`` is what `run_path` gave."""
        path = Path(path)
        _make_folder(path)
        if not (path / "config.json").exists():
            write_json(path / "config.json", to_dict(config))
        run = cls(path)
        if identity_settings(run.config) != identity_settings(config):
            raise RunError(f"{path / 'config.json'} was changed: it is not the configuration the run is named by.")
        return run

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    @property
    def name(self) -> str:
        """The folder's own name, usually what `run_id` gave."""
        return self.path.name

    @property
    def config(self) -> RunConfig:
        """The whole resolved configuration; also of a run whose result is damaged, so that it can be named."""
        hashes = None
        with contextlib.suppress(RunError):
            hashes = self.hashes
        path = self._verified("config.json", hashes)
        try:
            return from_dict(integrity.read_object(path))
        except ConfigError as error:
            raise RunError(f"{path} is not the configuration of a run: {error}.") from error

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
        """The content of ``result.json`` without its seal, or None while the run is unfinished."""
        if not self.finished:
            return None
        result = self._sealed().content
        problems = result_problems(result)
        if problems:
            raise RunError(f"{self.path / 'result.json'} {' and '.join(problems)}.")
        return result

    @property
    def hashes(self) -> dict[str, str] | None:
        """The SHA-256 of each file; None while the run is unfinished."""
        return self._sealed().files if self.finished else None

    def checked(self, name: str) -> Path:
        """The path of a file of the run, which is what was written: otherwise a `RunError` names it."""
        return self._verified(name, self.hashes)

    def lock(self) -> RunLock:
        return RunLock(self.path)

    def history(self) -> list[dict[str, Any]]:
        """One dict per epoch; a last line torn by a crash is left out, any other broken line is a `RunError`."""
        path = self.checked("history.jsonl")
        records = []
        for number, line in enumerate(whole_lines(path), start=1):
            record = json_object(line)
            if record is None:
                raise RunError(f"{path}, line {number}, is not a JSON object.")
            if not isinstance(record.get("epoch"), int):
                raise RunError(f"{path}, line {number}, has no whole number as its 'epoch'.")
            records.append(record)
        return records

    def append_history(self, line: Mapping[str, Any]) -> None:
        """Add an epoch; its number must be later than the last one's. What a crash tore before is repaired."""
        path, epoch, before = self._writable("history.jsonl"), line["epoch"], self.history()
        if before and before[-1]["epoch"] >= epoch:
            raise RunError(f"{path} already reaches epoch {before[-1]['epoch']}; epoch {epoch} cannot follow it.")
        append_line(path, json_bytes(line))

    def rewind(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Keep the history and residual labels of these epochs only, before the run goes on after the last of them."""
        path, lines = self._writable("history.jsonl"), b"".join(json_bytes(line) + b"\n" for line in history)
        if lines or path.exists():
            write_bytes(path, lines)
        arrays.truncate_residual_labels(self.path / "residual_labels.npz", len(history))

    def write_environment(self, command: str | Sequence[str], processes: int = 1) -> None:
        """Record versions, hardware, processes, command, date and commit; what cannot be found out is null."""
        self.write_json("environment.json", {**describe_environment(command), "processes": processes})

    def write_json(self, name: str, data: Any) -> None:
        write_json(self._writable(name), data)

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a further file into the folder, atomically (``"model.safetensors"``, ``"checkpoint/state.json"``)."""
        path = self._writable(name)
        _make_folder(path.parent)
        write_bytes(path, data)

    def write_npz(self, name: str, /, **given: Any) -> None:
        write_npz(self._writable(name), **given)

    def save_residual_labels(self, epochs: ArrayLike, labels: ArrayLike, classes: Sequence[str]) -> None:
        """Add later epochs to ``residual_labels.npz``: (E,), (E, K, K) and K names."""
        arrays.save_residual_labels(self._writable("residual_labels.npz"), epochs, labels, classes)

    def load_residual_labels(self) -> arrays.ResidualLabels | None:
        path = self.checked("residual_labels.npz")
        return arrays.load_residual_labels(path) if path.exists() else None

    def save_predictions(self, **given: Any) -> None:
        """Write ``predictions.npz``: logits and labels by split (see `arrays.save_predictions` for the arguments)."""
        arrays.save_predictions(self._writable("predictions.npz"), **given)

    def load_predictions(self) -> arrays.Predictions | None:
        path = self.checked("predictions.npz")
        return arrays.load_predictions(path) if path.exists() else None

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write ``result.json``, after which nothing in the folder may change.

        ``status`` is ``"finished"`` unless given as ``"diverged"``, which has a ``reason``.
        """
        complete = {"status": "finished", "reason": None, **result}
        assert not result_problems(complete), result_problems(complete)
        self._writable("result.json")
        written = sorted(path for path in self.path.iterdir() if path.is_file() and not path.name.startswith("."))
        try:
            hashes = {path.name: file_hash(path) for path in written}
        except OSError as error:
            raise RunError(f"Cannot read {error.filename}: {error.strerror}.") from error
        self.write_json("result.json", integrity.seal(plain(complete), hashes))

    def _writable(self, name: str) -> Path:
        if self.finished:
            raise RunError(f"{self.path} is finished, and finished runs never change; {name} was not written.")
        return self.path / name

    def _perhaps(self, name: str) -> dict[str, Any] | None:
        path = self.checked(name)
        return integrity.read_object(path) if path.exists() else None

    def _verified(self, name: str, hashes: Mapping[str, str] | None) -> Path:
        if hashes is not None:
            with self._advice():
                integrity.verify_file(self.path / name, hashes.get(name))
        return self.path / name

    def _sealed(self) -> integrity.Sealed:
        with self._advice():
            return integrity.read_sealed(self.path / "result.json")

    @contextlib.contextmanager
    def _advice(self) -> Iterator[None]:
        """A context in which the sentence on a damaged file also says what to do."""
        try:
            yield
        except integrity.DamagedError as error:
            words = f"Run its command again after `alr runs rm {self.path}`, or put the file back from a copy."
            raise integrity.DamagedError(f"{error} {words}") from None


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(path, error) from error

"""Many runs: find them, check them, remove them."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from adaptive_labels.files import RunError
from adaptive_labels.runs.folder import RESULT_KEYS, STATUSES, RunFolder


def list_runs(dirs: str | Path | Iterable[str | Path]) -> list[RunFolder]:
    """Every run in ``dirs``, each a run folder or a parent at any depth; sorted by path, none twice."""
    found: dict[Path, RunFolder] = {}
    for start in [dirs] if isinstance(dirs, str | Path) else dirs:
        if not Path(start).is_dir():
            raise RunError(f"{start} is not a folder.")
        for folder, subfolders, files in os.walk(start):
            if "config.json" in files:
                run = RunFolder(folder)
                found.setdefault(run.path.resolve(), run)
                subfolders.clear()  # nothing inside a run is another run
    return [found[path] for path in sorted(found)]


def check(run: RunFolder) -> list[str]:
    """Say what is wrong with a run, a sentence each; an empty list means that it is whole."""
    problems: list[str] = []

    def read(of: Callable[[], Any]) -> Any:
        try:
            return of()
        except RunError as error:
            problems.append(str(error))

    names, history, result = read(lambda: run.names), read(run.history), read(lambda: run.result)
    for of in (lambda: run.environment, run.load_residual_labels, run.load_predictions, lambda: run.examples):
        read(of)
    if not (run.path / "environment.json").exists():
        problems.append("environment.json is missing.")
    holder = run.lock().holder()
    if not run.finished:
        epochs = len(history or [])
        kept = (run.path / "checkpoint" / "state.json").exists()
        again = f"the same command {'goes on from its checkpoint' if kept else 'starts it again'}"
        state = f"it is being written by {holder}" if holder else again
        problems.append(f"unfinished after {epochs} {'epoch' if epochs == 1 else 'epochs'}: {state}.")
    elif result is not None:
        problems.extend(_result_problems(run, result, names and names.epochs, history))
    leftovers = sorted(path.name for path in run.path.glob(".*.tmp"))
    if leftovers and holder is None:
        problems.append(f"{', '.join(leftovers)}: left over from a crash, can be deleted.")
    return problems


def remove(run: RunFolder) -> None:
    """Delete a run and everything in its folder; one that is being written is left alone."""
    holder = run.lock().holder()
    if holder is not None:
        raise RunError(f"{run.path} is being written by {holder}; it was not removed.")
    if run.path.is_symlink():
        raise RunError(f"{run.path} is a link; remove the folder it points to.")
    try:
        # Without a result first: a removal that is cut short must not leave a folder that looks finished.
        (run.path / "result.json").unlink(missing_ok=True)
        shutil.rmtree(run.path)
    except OSError as error:
        raise RunError(f"Cannot remove {error.filename or run.path}: {error.strerror}.") from error


def _result_problems(
    run: RunFolder, result: dict[str, Any], epochs: int | None, history: list[dict[str, Any]] | None
) -> Iterator[str]:
    missing = [key for key in RESULT_KEYS if key not in result]
    if missing:
        yield f"result.json has no {', '.join(missing)}."
    status = result.get("status", "finished")
    if status not in STATUSES:
        yield f"result.json has the status {status!r}, which is not one of {', '.join(STATUSES)}."
    if status != "finished":
        return
    if not (run.path / "model.safetensors").exists():
        yield "model.safetensors is missing, although the run is finished."
    if epochs is not None and isinstance(result.get("epochs"), int):
        epochs = min(epochs, result["epochs"])  # a run may stop early on purpose, and then says so
    if history is not None and epochs is not None and len(history) < epochs:
        yield f"history.jsonl has {len(history)} epochs of {epochs}."

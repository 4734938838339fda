"""Many runs: find them, check them, remove them."""

import functools
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from adaptive_labels.errors import UserError
from adaptive_labels.lab.files import RunError
from adaptive_labels.lab.runs import integrity
from adaptive_labels.lab.runs.candidates import CANDIDATES
from adaptive_labels.lab.runs.folder import RunFolder
from adaptive_labels.lab.words import plural


def list_runs(dirs: str | Path | Iterable[str | Path]) -> list[RunFolder]:
    """Every run in ``dirs``, each a run folder or a parent at any depth; sorted by path, none twice.

    Networks that were tried before a comparison are in a folder of their own, and found only if that is given.
    """
    runs: dict[Path, RunFolder] = {}
    for start in [dirs] if isinstance(dirs, str | Path) else dirs:
        if not Path(start).is_dir():
            raise RunError(f"{start} is not a folder.")
        for folder, subfolders, files in os.walk(start):
            if "config.json" in files:
                run = RunFolder(folder)
                runs.setdefault(run.path.resolve(), run)
                subfolders.clear()  # nothing inside a run is another run
            if CANDIDATES in subfolders:
                subfolders.remove(CANDIDATES)
    return [runs[path] for path in sorted(runs)]


def find_problems(run: RunFolder) -> list[str]:
    """What is wrong with a run, one sentence per problem; an empty list means that every byte is what was written."""
    problems: list[str] = []

    def read(of: Callable[[], Any]) -> Any:
        try:
            return of()
        except UserError as error:
            problems.append(str(error).replace(f"{run.path}{os.sep}", ""))

    history, result = read(run.history), read(lambda: run.result)
    for name in ("config", "environment", "examples"):
        read(functools.partial(getattr, run, name))
    for of in (run.load_residual_labels, run.load_predictions):
        read(of)
    if not (run.path / "environment.json").exists():
        problems.append("environment.json is missing.")
    litter = left_over(run)
    if not run.finished:
        problems.append(_unfinished(run, len(history or [])))
        for manifest in integrity.checkpoint_manifests(run.path / "checkpoint"):
            read(functools.partial(integrity.verify_checkpoint, manifest))
    elif result is not None:
        epochs = result["epochs"]  # a run may stop early on purpose, and then says so
        if result["status"] == "finished" and history is not None and len(history) < epochs:
            problems.append(f"history.jsonl has {plural(len(history), 'epoch')} of {epochs}.")
        for name in sorted(run.hashes or {}):
            read(functools.partial(run.checked, name))
    if litter:
        listed = ", ".join(str(path.relative_to(run.path)) for path in litter)
        problems.append(f"{listed}: left over from a crash; `alr runs check --fix` removes it.")
    return list(dict.fromkeys(problems))


def left_over(run: RunFolder) -> list[Path]:
    """Files of no use that a killed process left behind; none are named while another process writes to the folder."""
    if run.lock().holder() is not None:
        return []
    return sorted([*run.path.glob(".*.tmp"), *run.path.glob("checkpoint" if run.finished else "checkpoint/.*.tmp")])


def tidy(run: RunFolder) -> list[Path]:
    """Remove what `left_over` finds, and return it; a run that is being written is left alone."""
    litter = left_over(run)
    if litter:
        with run.lock():
            for path in litter:
                try:
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                except OSError as error:
                    raise RunError(f"Cannot remove {path}: {error.strerror}.") from error
    return litter


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


def _unfinished(run: RunFolder, epochs: int) -> str:
    holder, checkpoints = run.lock().holder(), integrity.checkpoint_manifests(run.path / "checkpoint")
    again = f"the same command {'goes on from its checkpoint' if checkpoints else 'starts it again'}"
    state = f"it is being written by {holder}" if holder else again
    return f"unfinished after {plural(epochs, 'epoch')}: {state}."

"""Whether run folders can be written, said before any work is done for them."""

from __future__ import annotations

import os
from pathlib import Path


def check_output(out: Path) -> None:
    """Refuse a place where no folder can be made; nothing is written, so that a mistyped DATA leaves none behind."""
    existing = next(path for path in (out, *out.absolute().parents) if path.exists() or path.is_symlink())
    if not existing.is_dir():
        raise ValueError(f"out is {str(out)!r}, but {existing} is a file, not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(f"out is {str(out)!r}, but the folder {existing} may not be written to")


def open_output(out: Path) -> None:
    """Make the folder, and write to it once: a full disk is not known before."""
    from adaptive_labels.runs import write_json

    check_output(out)
    out.mkdir(parents=True, exist_ok=True)
    probe = out / ".writable.json"
    write_json(probe, {"why": "to know that there is room on the disk"})
    probe.unlink()

"""Whether run folders can be written, said before any work is done for them."""

from __future__ import annotations

import os
from pathlib import Path

from adaptive_labels.errors import UserError


def check_output(out: Path) -> None:
    """Refuse a place where no folder can be made; nothing is written, so that a mistyped DATA leaves none behind."""
    existing = next(path for path in (out, *out.absolute().parents) if path.exists() or path.is_symlink())
    if not existing.is_dir():
        raise UserError(f"out is {str(out)!r}, but {existing} is a file, not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"out is {str(out)!r}, but the folder {existing} may not be written to")


def open_output(out: Path) -> None:
    """Make the folder, and write to it once: a full disk is not known before."""
    from adaptive_labels.runs import RunError, write_bytes

    check_output(out)
    out.mkdir(parents=True, exist_ok=True)
    probe = out / ".probe"
    try:
        write_bytes(probe, b"Is there room on the disk?")
    except RunError as error:
        raise RunError(str(error).replace(str(probe), f"to {out}")) from error
    probe.unlink()

"""The environment of a run: versions, hardware, command, date and commit."""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from adaptive_labels.lab.machine import usable_cores


def describe_environment(command: str | Sequence[str]) -> dict[str, Any]:
    """Versions, hardware, command, date and commit; what cannot be found out is None, and nothing raises.

    torch's version is given only if torch has been imported already: asking for it would cost seconds.
    """
    torch = sys.modules.get("torch")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command if isinstance(command, str) else shlex.join(command),
        "versions": {
            "python": platform.python_version(),
            "adaptive-labels": _installed_version("adaptive-labels"),
            "numpy": _installed_version("numpy"),
            "torch": None if torch is None else str(torch.__version__),
        },
        "platform": platform.platform(),
        "cpu": {"model": _cpu_model(), "cores": os.cpu_count(), "usable_cores": usable_cores()},
        "commit": _commit(),
    }


def _installed_version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str | None:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model"):
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or None


def _commit() -> str | None:
    command = ["git", "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace").strip() or None

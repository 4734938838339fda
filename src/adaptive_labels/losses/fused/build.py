"""Compile the kernel with the machine's C compiler: about two seconds, only when asked for."""

import importlib.machinery
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from adaptive_labels.losses.fused.kernel import FOLDER, NAME, load

FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-fPIC")


def build(folder: Path = FOLDER, flags: Sequence[str] = ()) -> Path:
    """Compile ``alr.c`` into a library in ``folder``, with extra ``flags``; check that it loads, and return its path.

    OpenMP is compiled in but not linked: its symbols come from torch. If torch has none, the kernel uses one thread.
    """
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(compiler[0]) is None:
        raise ValueError(f"there is no C compiler {compiler[0]!r}: install one, or name it in the variable CC")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{folder}: no permission to write the kernel there")
    target = folder / (NAME + importlib.machinery.EXTENSION_SUFFIXES[0])
    problem = ""
    for threads in (["-fopenmp", *flags], ["-Wno-unknown-pragmas", *flags]):
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            library = Path(scratch) / target.name
            problem = _compile(compiler, threads, library)
            if not problem:
                try:
                    load(library)
                except OSError as error:
                    problem = str(error)
                    continue
                library.replace(target)
                return target
    raise ValueError(f"the kernel could not be built: {problem}")


def _compile(compiler: list[str], threads: list[str], library: Path) -> str:
    """Compile and link; return what went wrong, or nothing."""
    unit = library.with_suffix(".o")
    undefined = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    for command in (
        [*compiler, *FLAGS, *threads, "-c", str(FOLDER / "alr.c"), "-o", str(unit)],
        [*compiler, "-shared", str(unit), "-o", str(library), "-lm", *undefined],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"{shlex.join(command)}: {done.stderr.strip() or f'status {done.returncode}'}"
    return ""

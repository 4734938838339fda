"""The commands that are tortured, started without the seconds that an interpreter takes to import torch.

This process imports everything once; each command is a fork of it, which runs the command's own `main`. Before it does,
it may be armed: the n-th change of a file below its folder then fails, or ends it (`faults.c`).
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[1] / "cli")]
PRELOAD = "LD_PRELOAD"
TIMELESS = (
    "config.json",
    "encoder.json",
    "examples.json",
    "model.safetensors",
    "predictions.npz",
    "residual_labels.npz",
)
SMALL_TEXT = ["model.options.buckets=64", "model.options.dim=4", "model.options.hidden=0"]
TEXT = [
    "--model",
    "fasttext",
    "--set",
    "training.batch_size=64",
    *(word for one in SMALL_TEXT for word in ("--set", one)),
]
IMAGE = ["--model", "resnet32-w2", "--set", "training.batch_size=32"]
EVERY = [
    "--set",
    "training.checkpoint_seconds=0",
    "--set",
    "training.threads=1",
    "--set",
    "training.schedule=one-cycle",
]
METHODS = ["--methods", "baseline,alr", "--seeds", "1"]


@dataclass(frozen=True)
class Task:
    """A command, and whether it starts processes of its own."""

    name: str
    words: tuple[str, ...]
    workers: int = 1


@dataclass(frozen=True)
class Fault:
    """What happens at the n-th change: an errno, or below 0 a signal; `stays` if all later ones fail, too."""

    at: int
    what: int
    stays: bool = False


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit status (below 0 the signal), standard error, changes made, and which one was hit."""

    status: int
    err: str
    changes: int = 0
    hit: str = ""
    seconds: float = 0.0

    @property
    def traceback(self) -> bool:
        return "Traceback" in self.err


def make_data(folder: Path) -> dict[str, Task]:
    """Tiny texts and images, and the commands on them, by name."""
    from cli_parts import write_images, write_texts

    texts, images = str(write_texts(folder / "small.csv", 120)), str(write_images(folder / "colours", 12))
    train = {"text": ("train", texts, *TEXT), "image": ("train", images, *IMAGE)}
    pairs = {"text": ("compare", texts, *METHODS, *TEXT), "image": ("compare", images, *METHODS, *IMAGE)}
    found = []
    for kind in ("text", "image"):
        found.append(Task(f"train {kind}", (*train[kind], "--epochs", "4", *EVERY)))
        found.append(Task(f"compare {kind}", (*pairs[kind], "--epochs", "2", *EVERY)))
        found.append(Task(f"compare {kind}, 2 workers", (*pairs[kind], "--epochs", "2", *EVERY, "--workers", "2"), 2))
    found.append(Task("train text, 2 devices", (*train["text"], "--epochs", "4", *EVERY, "--devices", "2"), 2))
    return {task.name: task for task in found}


def build_faults() -> Path:
    """The library that makes changes of files fail."""
    library = Path(tempfile.gettempdir()) / f"alr-faults-{os.getuid()}-{os.getpid()}.so"
    source = Path(__file__).with_name("faults.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return library


def with_faults() -> None:
    """Start this script again with the library loaded before all others, unless it is."""
    if PRELOAD not in os.environ:
        settings = {PRELOAD: str(build_faults()), "OMP_NUM_THREADS": "1"}
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **settings})


def import_everything(folder: Path, tasks: dict[str, Task]) -> None:
    """Run commands in this process, so that it has imported all that they need: torch loads much at its first use."""
    import torch

    from adaptive_labels.__main__ import main

    torch.set_num_threads(1)
    folder.mkdir(parents=True)
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        for name in ("train text", "compare image"):
            sys.argv = ["alr", *tasks[name].words]
            with contextlib.suppress(SystemExit):
                main()


class Command:
    """A command under way, in a folder."""

    def __init__(self, words: tuple[str, ...], folder: Path, fault: Fault | None = None) -> None:
        self.folder, self.began = folder, time.monotonic()
        self.files = {name: folder.with_name(f"{folder.name}.{name}") for name in ("out", "err", "seen")}
        for file in self.files.values():
            file.unlink(missing_ok=True)
        self.pid = os.fork()
        if self.pid == 0:
            self._run(words, fault)

    def _run(self, words: tuple[str, ...], fault: Fault | None) -> None:
        status: Any = 1
        try:
            os.setsid()
            os.chdir(self.folder)
            for number, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(self.files[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
            from adaptive_labels.__main__ import main

            library = ctypes.CDLL(os.environ[PRELOAD])
            library.torture_last.restype = ctypes.c_char_p
            fault = fault or Fault(-1, 0)
            library.torture_arm(f"{self.folder}/".encode(), ctypes.c_long(fault.at), fault.what, int(fault.stays))
            # By its whole path, since that is how changes are recognised as the command's.
            sys.argv = ["alr", *words, "--out", str(self.folder / "runs")]
            try:
                main()
            except SystemExit as end:
                status = end.code or 0
            seen = {"changes": library.torture_seen(), "hit": library.torture_last().decode()}
            part = self.files["seen"].with_suffix(".part")  # a kill may come here, too
            part.write_text(json.dumps(seen))
            part.rename(self.files["seen"])
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status if isinstance(status, int) else 1)

    def send(self, number: int, group: bool) -> None:
        """Send a signal to the command, or to all its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number) if group else os.kill(self.pid, number)

    def poll(self) -> bool:
        """Whether it has ended."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait(self, seconds: float = 180) -> Ended:
        """Wait until it and all its processes have ended."""
        end = time.monotonic() + seconds
        while not self.poll():
            if time.monotonic() > end:
                self.send(signal.SIGKILL, group=True)
                os.waitpid(self.pid, 0)
                return Ended(-signal.SIGALRM, "it hangs")
            time.sleep(0.002)
        _, state = os.waitpid(self.pid, 0)
        taken = time.monotonic() - self.began
        while _session_lives(self.pid) and time.monotonic() < end:
            time.sleep(0.01)
        seen = json.loads(self.files["seen"].read_text()) if self.files["seen"].exists() else {}
        err = self.files["err"].read_text(errors="replace") if self.files["err"].exists() else ""
        return Ended(os.waitstatus_to_exitcode(state), err, **seen, seconds=taken)


def _session_lives(session: int) -> bool:
    """Whether a process of a session is there that has not ended."""
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] != "Z":
                    return True
    return False


def run(task: Task, folder: Path, fault: Fault | None = None) -> Ended:
    """A command from its start to its end."""
    folder.mkdir(parents=True, exist_ok=True)
    return Command(task.words, folder, fault).wait()


def content(folder: Path) -> dict[str, Any]:
    """All that finished runs hold but times and machines: two of the same configuration must agree in every bit."""
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("runs/*/result.json")):
        run, result = path.parent, json.loads(path.read_bytes())
        history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
        found[run.name] = {
            **{name: (run / name).read_bytes() for name in TIMELESS if (run / name).exists()},
            "result": {key: value for key, value in result.items() if key not in ("seconds", "seal")},
            "history": [{key: value for key, value in line.items() if key != "seconds"} for line in history],
        }
    return found


def litter(folder: Path) -> list[str]:
    """What no finished command leaves: temporary files, checkpoints of finished runs, locks."""
    patterns = ("runs/**/.*.tmp", "runs/*/checkpoint", "runs/*/.lock", "runs/.probe*", "runs/*/*.damaged")
    return sorted(str(path.relative_to(folder)) for pattern in patterns for path in folder.glob(pattern))

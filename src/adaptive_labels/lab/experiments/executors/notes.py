"""Messages from workers on any machine: one small file per job, in a folder shared with the comparison."""

import dataclasses
import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import adaptive_labels
from adaptive_labels.errors import UserError
from adaptive_labels.lab.experiments.executors import Event, Listener, looking
from adaptive_labels.lab.training.progress import Progress

NOTE_SECONDS = 1.0  # between two notes of a run, and between two looks at all of them


@dataclass
class Notes:
    """A listener that can be sent to another machine; what it hears becomes the job's note.

    A folder that is missing at a job's start is not shared. One that goes missing later says that nobody waits any
    more: the run is interrupted, as by Ctrl-C.
    """

    folder: str
    version: str
    waits: ClassVar[bool] = True  # until another process has finished with the run
    _next: float = 0.0

    def __call__(self, event: Event) -> None:
        """Note the event, if the last note is old enough."""
        now = time.monotonic()
        if event.kind == "start":
            self._check()
        elif now < self._next:
            return
        self._next = now + NOTE_SECONDS
        note = Path(self.folder) / f"{event.job}.json"
        unfinished = note.with_name(f".{event.job}-{socket.gethostname()}-{os.getpid()}")
        data = dataclasses.asdict(event.data) if event.kind == "progress" else event.data
        try:
            unfinished.write_text(json.dumps([event.job, event.kind, data]), encoding="utf-8")
            unfinished.replace(note)
        except FileNotFoundError:
            raise KeyboardInterrupt("nobody waits for this run any more") from None
        except OSError:  # a full disk or a slow server: the next note may do
            pass

    def _check(self) -> None:
        here = socket.gethostname()
        if not Path(self.folder).is_dir():
            out = Path(self.folder).parent
            raise UserError(f"{here} does not share {out} with the comparison: give --out on a shared file system")
        if adaptive_labels.__version__ != self.version:
            raise UserError(
                f"{here} has adaptive-labels {adaptive_labels.__version__}, and the comparison {self.version}: "
                "install the same on both"
            )


@contextmanager
def hear_notes(out: str, listener: Listener) -> Iterator[Notes]:
    """A context in which the listener hears what workers note in a folder of its own under ``out``."""
    Path(out).mkdir(parents=True, exist_ok=True)
    seen: dict[str, int] = {}

    def look() -> None:
        for note in Path(folder).glob("*.json"):
            with suppress(OSError, ValueError):  # it is read again at the next look
                written = note.stat().st_mtime_ns
                if seen.get(note.name) != written:
                    job, kind, data = json.loads(note.read_bytes())
                    listener(Event(job, kind, Progress(**data) if kind == "progress" else data))
                    seen[note.name] = written

    notes = tempfile.TemporaryDirectory(prefix=".notes-", dir=out, ignore_cleanup_errors=True)
    with notes as folder, looking(look, NOTE_SECONDS / 2):
        yield Notes(folder, adaptive_labels.__version__)

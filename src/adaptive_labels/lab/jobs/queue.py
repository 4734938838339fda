"""Do jobs with an executor: failures, lost workers, and progress, which is read from the runs' own histories."""

import concurrent.futures as futures
import json
import os
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from adaptive_labels.errors import Stopped, UserError
from adaptive_labels.lab.jobs import Do, Event, Job, JobExecutor, Listener, Outcome
from adaptive_labels.lab.runs import LockedError

LOOK_SECONDS = 0.5  # between two looks at the histories of the runs under way
WAIT_SECONDS = 2.0  # between two tries at a run that another process is writing


def run_jobs(jobs: Sequence[Job], do: Do, listener: Listener, executor: JobExecutor) -> list[Outcome]:
    """Do all jobs and say how each ended; one that fails does not stop the others.

    Where a worker dies (killed for its memory, say) and the executor can be restarted, the jobs that were under way are
    tried once more, one at a time; those that were not are done as before.
    """
    outcomes: dict[int, Outcome] = {}
    tried: set[int] = set()
    left = deque(range(len(jobs)))
    with _Watch(jobs, listener) as watch:
        while left:
            alone = left[0] in tried
            now = deque([left.popleft()]) if alone else left
            lost = _do_some(now, jobs, do, watch, executor, outcomes)
            can_retry = bool(lost) and executor.restart()
            for number in lost:
                if can_retry and number not in tried:
                    tried.add(number)
                    left.appendleft(number)
                else:
                    size = jobs[number].config.training.batch_size
                    memory = "out of memory" if size is None else f"out of memory (batch size {size})"
                    error = f"its process ended without a word: {memory}, or a crash in a library"
                    watch.end(number, Outcome(jobs[number], None, error), outcomes)
    return [outcomes[number] for number in sorted(outcomes)]


def _do_some(
    left: "deque[int]",
    jobs: Sequence[Job],
    do: Do,
    watch: "_Watch",
    executor: JobExecutor,
    outcomes: dict[int, Outcome],
) -> list[int]:
    """Do jobs in turn, as many at a time as the executor does, until a worker dies; those that are lost with it.

    No more are handed over than can be done at once, so that a death costs no job that was not under way.
    """
    running: dict[futures.Future[Outcome], int] = {}
    lost: list[int] = []
    try:
        while running or (left and not lost):
            while left and not lost and len(running) < executor.workers:
                number = left.popleft()
                watch.running.add(number)
                try:
                    running[executor.submit(_call, jobs[number], do)] = number
                except futures.BrokenExecutor:
                    lost.append(number)
            for call in futures.wait(running, return_when=futures.FIRST_COMPLETED).done:
                number = running.pop(call)
                outcome = _outcome(call, jobs[number])
                if outcome is None:
                    lost.append(number)
                else:
                    watch.end(number, outcome, outcomes)
    except BaseException:
        for call in running:
            call.cancel()
        raise
    return lost


def _outcome(done: "futures.Future[Outcome]", job: Job) -> Outcome | None:
    """How a job ended, also where its executor failed it; None if its worker died."""
    try:
        return done.result()
    except futures.BrokenExecutor:
        return None
    except futures.CancelledError:
        return Outcome(job, None, "its executor has given it up: is the scheduler gone?")
    except Exception as error:  # of the executor, since `_call` raises none
        return Outcome(job, None, _sentence(error))


def _call(job: Job, do: Do) -> Outcome:
    try:
        if job.shared is not None and not job.shared.is_dir():  # it may also be that nobody waits any more
            raise UserError(
                f"{socket.gethostname()} does not share {job.folder.parent} with the comparison: "
                "give --out on a shared file system"
            )
        while True:
            try:
                return Outcome(job, do(job))
            except LockedError:
                # A machine that was thought dead, or that an earlier command has asked, is at it: it may finish.
                if job.shared is None or not job.shared.is_dir():
                    raise
                time.sleep(WAIT_SECONDS)
    except Stopped as stop:
        if job.shared is None or job.shared.is_dir():
            raise
        return Outcome(job, None, str(stop))  # nobody reads this
    except Exception as error:
        if os.environ.get("ALR_DEBUG"):
            traceback.print_exc()
        return Outcome(job, None, _sentence(error))


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"


class _Watch:
    """Tells a listener how far the runs under way are, and how they ended; a thread looks at their histories."""

    def __init__(self, jobs: Sequence[Job], listener: Listener) -> None:
        self._jobs, self._listener = jobs, listener
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._seen: dict[int, tuple[int, int]] = {}
        self.running: set[int] = set()

    def __enter__(self) -> "_Watch":
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def end(self, number: int, outcome: Outcome, outcomes: dict[int, Outcome]) -> None:
        """Take note of an outcome; nothing is told of its job after that."""
        with self._lock:
            self.running.discard(number)
            outcomes[number] = outcome
            done = outcome.error is None
            self._listener(Event(number, "done" if done else "failed", outcome.path if done else outcome.error))

    def _look(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            for number in sorted(self.running.copy()):
                with suppress(OSError, ValueError):  # not there yet, or being written: the next look may do
                    self._tell(number)

    def _tell(self, number: int) -> None:
        job = self._jobs[number]
        history = job.folder / "history.jsonl"
        written = history.stat()
        if self._seen.get(number) == (written.st_size, written.st_mtime_ns):
            return
        lines = history.read_bytes().splitlines()
        record = json.loads(lines[-1]) if lines else {"epoch": 0}
        self._seen[number] = written.st_size, written.st_mtime_ns
        with self._lock:
            if number in self.running:
                self._listener(Event(number, "progress", {**record, "epochs": job.config.training.epochs}))

"""Jobs of a Slurm cluster, through submitit; or, to try them out, processes of this machine."""

import concurrent.futures as futures
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from adaptive_labels.errors import UserError
from adaptive_labels.lab.experiments.executors import register_executor
from adaptive_labels.lab.experiments.executors.child import Child, EndedError, Origin
from adaptive_labels.lab.experiments.executors.remote import RemoteExecutor

MOST_JOBS = 500  # in the queue at a time, unless --workers says how many
POLL_SECONDS = 1.0
ENDING_SECONDS = 120.0  # within which Slurm ends all processes of a job
QUEUE_SECONDS = 15.0  # between two looks at the whole queue


@register_executor("submitit")
class SubmititExecutor(RemoteExecutor):
    """Jobs in Slurm's queue. Their scripts and logs are kept in ``.submitit`` beside the runs.

    Args:
        workers: how many jobs are in the queue at a time; None for as many as there are runs, at most 500.
        partition, account, qos, constraint: as for sbatch.
        time: minutes of a job. A run that needs more is requeued, and goes on from its checkpoint.
        gpus, cpus, memory: of a job; the last in GB.
        requeues: how often a run may run out of time. There is no limit to how often it may be preempted.
        cluster: "local" starts processes of this machine instead.
    """

    def __init__(
        self,
        workers: int | None,
        *,
        partition: str | None = None,
        time: int = 60,
        gpus: int = 0,
        cpus: int | None = None,
        memory: int | None = None,
        account: str | None = None,
        qos: str | None = None,
        constraint: str | None = None,
        requeues: int = 100,
        cluster: Literal["slurm", "local"] = "slurm",
    ) -> None:
        super().__init__(workers or MOST_JOBS)
        try:
            import submitit
        except ImportError as error:
            raise UserError("the executor submitit needs its package: pip install 'adaptive-labels[sweeps]'") from error
        self._make: Callable[..., Any] = submitit.AutoExecutor
        self._cluster, self._requeues = cluster, requeues
        self._wishes = {
            "timeout_min": time,
            "gpus_per_node": gpus or None,
            "cpus_per_task": cpus,
            "mem_gb": memory,
            "slurm_partition": partition,
            "slurm_account": account,
            "slurm_qos": qos,
            "slurm_constraint": constraint,
            "slurm_additional_parameters": {"requeue": True},
            "name": "alr",
        }
        self._executor: Any = None
        self._stopped = threading.Event()
        self._submitting = threading.Lock()  # submitit's executors are not made for threads
        self._queue = _Queue()
        self.jobs: dict[str, Any] = {}

    def prepare(self, folder: Path) -> None:
        """Find Slurm. Whether a node shares the folder, each job says at its start: nobody waits for a job to ask."""
        logs = folder.absolute() / ".submitit"
        limit = {f"{self._cluster}_max_num_timeout": self._requeues}
        try:
            self._executor = self._make(logs, cluster=self._cluster, **limit)
        except RuntimeError as error:
            raise UserError(
                "the executor submitit finds no Slurm here: use a machine that has `sbatch` and `srun`, "
                "or --executor-option cluster=local"
            ) from error
        self._executor.update_parameters(**{name: wish for name, wish in self._wishes.items() if wish is not None})

    def call(self, origin: Origin, call: Callable[..., Any], *args: Any) -> Any:
        """Submit a call as a job of its own, and wait for it in the queue and at work."""
        assert self._executor is not None, "prepare() comes first"
        with self._submitting:
            try:
                job = self._executor.submit(ResumableCall(), origin, call, *args)
            except Exception as error:  # sbatch's reason stands in the last line
                reason = str(error).strip().splitlines()[-1]
                raise UserError(f"the job was not accepted: {reason}") from error
            self.jobs[job.job_id] = job
        without = f"the job {job.job_id} ended without a result; its log is {job.paths.stderr}"
        while not _has_result(job):
            if self._stopped.wait(POLL_SECONDS):
                raise futures.CancelledError
            if job.done() if self._cluster == "local" else self._queue.has_lost(job):
                break
        if not _has_result(job):
            raise UserError(without)
        try:
            answer = job.result()
        except Exception as error:
            raise UserError(without) from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stop(self) -> None:
        """Take all jobs out of the queue."""
        self._stopped.set()
        for job in self.jobs.values():
            if not _has_result(job):
                job.cancel(check=False)


def _has_result(job: Any) -> bool:
    found: bool = job.paths.result_pickle.exists()
    return found


class ResumableCall:
    """A call in a child process; when the job is about to end, the child ends first, and the job is queued again."""

    def __init__(self) -> None:
        self._child: Child | None = None

    def __call__(self, origin: Origin, call: Callable[..., Any], *args: Any) -> Any:
        """Do the call; an executor's error is returned, since submitit would make a text of it."""
        self._child = Child(origin)
        try:
            return self._child.call(call, *args)
        except EndedError as error:  # Slurm ends the whole job, or queues it again: this process is next
            time.sleep(ENDING_SECONDS)
            return error
        except (futures.BrokenExecutor, UserError) as error:
            return error

    def checkpoint(self, *given: Any) -> Any:
        """Called by submitit when time is up or another job needs the place."""
        from submitit.helpers import DelayedSubmission

        if self._child is not None:
            self._child.end()
        return DelayedSubmission(ResumableCall(), *given)


class _Queue:
    """Which jobs are in Slurm's queue. submitit would ask its accounting, which not every cluster has."""

    def __init__(self) -> None:
        self._lock, self._looked = threading.Lock(), 0.0
        self._waiting: set[str] | None = None
        self._missed: dict[str, float] = {}

    def has_lost(self, job: Any) -> bool:
        """Whether a job was neither waiting nor at work at two looks.

        At the first, it may be newer than the look, or have ended and its result not be seen yet.
        """
        with self._lock:
            if time.monotonic() > self._looked + QUEUE_SECONDS:
                command = ["squeue", "--noheader", "--user", str(os.getuid()), "--format", "%A"]
                asked = subprocess.run(command, capture_output=True, text=True, check=False)
                self._waiting = set(asked.stdout.split()) if asked.returncode == 0 else None
                self._looked = time.monotonic()
            if self._waiting is None or job.job_id in self._waiting:
                self._missed.pop(job.job_id, None)
                return False
            os.utime(job.paths.folder)  # makes NFS look again whether the result is there
            return self._missed.setdefault(job.job_id, self._looked) < self._looked

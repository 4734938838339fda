"""Jobs of a Slurm cluster, through submitit; or, to try them out, processes of this machine."""

import concurrent.futures as futures
import contextlib
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from adaptive_labels.errors import UserError
from adaptive_labels.lab.jobs import JobExecutor, register_executor

MOST_JOBS = 500  # in the queue at a time, unless --workers says how many
POLL_SECONDS = 1.0


@register_executor("submitit")
class SubmititExecutor(JobExecutor):
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
        try:
            import submitit
        except ImportError as error:
            raise UserError("the executor submitit needs its package: pip install 'adaptive-labels[sweeps]'") from error
        self.workers = workers or MOST_JOBS
        self._make: Callable[..., Any] = submitit.AutoExecutor
        self._cluster, self._requeues = cluster, requeues
        wishes = {
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
        self._wishes = {name: wish for name, wish in wishes.items() if wish is not None}
        self._queue: Any = None
        self._stopped = threading.Event()
        self.jobs: dict[futures.Future[Any], Any] = {}  # those under way

    def prepare(self, folder: Path) -> None:
        """Find Slurm. Whether a node shares the folder, each job says at its start: nobody waits for a job to ask."""
        limit = {f"{self._cluster}_max_num_timeout": self._requeues}
        try:
            self._queue = self._make(folder.absolute() / ".submitit", cluster=self._cluster, **limit)
        except RuntimeError as error:
            raise UserError(
                "the executor submitit finds no Slurm here: use a machine that has `sbatch` and `srun`, "
                "or --executor-option cluster=local"
            ) from error
        self._queue.update_parameters(**self._wishes)
        threading.Thread(target=self._wait, daemon=True).start()

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        """Submit a call as a job of its own."""
        assert self._queue is not None, "prepare() comes first"
        future: futures.Future[Any] = futures.Future()
        try:
            job = self._queue.submit(ResumableCall(), call, *args, **kwargs)
        except Exception as error:  # sbatch's reason stands in the last line
            reason = str(error).strip().splitlines()[-1]
            future.set_exception(UserError(f"the job was not accepted: {reason}"))
        else:
            self.jobs[future] = job
        return future

    def _wait(self) -> None:
        """Give the futures of all jobs that are done their results, again and again."""
        while not self._stopped.wait(POLL_SECONDS):
            for future, job in list(self.jobs.items()):
                if job.paths.result_pickle.exists() or job.done():
                    del self.jobs[future]
                    try:
                        future.set_result(job.result())
                    except Exception:
                        future.set_exception(
                            UserError(f"the job {job.job_id} ended without a result; its log is {job.paths.stderr}")
                        )

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopped.set()
        for job in self.jobs.values():  # there are some only if nobody waits for them
            with contextlib.suppress(OSError):
                job.cancel(check=False)


class ResumableCall:
    """A call that submitit queues again when its time is up or another job needs the place."""

    def __call__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Do the call. Slurm sends SIGTERM along with the signal that submitit acts on: it must not end the run."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return call(*args, **kwargs)

    def checkpoint(self, *args: Any, **kwargs: Any) -> Any:
        """Called by submitit at that moment; the run goes on from its last checkpoint."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, *args, **kwargs)

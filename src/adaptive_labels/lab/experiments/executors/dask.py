"""The workers of a Dask cluster."""

import concurrent.futures as futures
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import adaptive_labels
from adaptive_labels.errors import UserError
from adaptive_labels.lab.experiments.executors import register_executor
from adaptive_labels.lab.experiments.executors.child import Origin, in_child
from adaptive_labels.lab.experiments.executors.remote import RemoteExecutor

ANSWER_SECONDS = 60.0  # for a worker to say what it has
# What a worker's Python says of itself, in a process of its own as the runs will be: text, since a worker without this
# package cannot be sent a function of it.
_PROBE = """
import os, sys
words = []
try:
    import adaptive_labels
    words = [adaptive_labels.__version__, os.path.exists(sys.argv[1])]
    from adaptive_labels.__main__ import missing
    words += missing()
except ImportError:
    pass
print(*words)
"""
_ASK = "__import__('subprocess').run([__import__('sys').executable, '-c', {code!r}, {path!r}], capture_output=True)"


@register_executor("dask")
class DaskExecutor(RemoteExecutor):
    """The workers of the scheduler at an address, which is found within ``timeout`` seconds.

    A worker that is lost is the scheduler's to notice: it gives the call to another one. A call is done in a child of
    the worker's process, whose own threads go on to answer the scheduler.
    """

    def __init__(
        self, workers: int | None, *, scheduler: str | None = None, gpus: int = 0, timeout: float = 10.0
    ) -> None:
        if scheduler is None:
            raise UserError("the executor dask needs --scheduler ADDRESS, such as tcp://host:8786")
        try:
            import distributed
        except ImportError as error:
            raise UserError("the executor dask needs its package: pip install 'adaptive-labels[sweeps]'") from error
        self._lost = (distributed.KilledWorker, distributed.client.FutureCancelledError)
        self._gpus, self._scheduler = gpus, scheduler
        try:
            self._client = distributed.Client(scheduler, timeout=timeout, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise UserError(f"scheduler is {scheduler!r}: nothing answers there within {timeout:g} s") from error
        try:
            super().__init__(min(workers or sys.maxsize, self._count_slots()))
        except UserError:
            self._client.close()
            raise

    def _count_slots(self) -> int:
        """How many runs the workers can do at a time."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        if not workers:
            raise UserError(f"scheduler is {self._scheduler!r}: it has no workers; start some with `dask worker`")
        if not self._gpus:
            return sum(worker["nthreads"] for worker in workers)
        slots = sum(int(worker["resources"].get("GPU", 0)) // self._gpus for worker in workers)
        if not slots:
            raise UserError(
                f"executor-option gpus is {self._gpus}: no worker has so many; start them with "
                f"`dask worker --resources GPU={self._gpus}`"
            )
        return slots

    def prepare(self, folder: Path) -> None:
        """Ask every worker for its version of this package, and whether it sees a file in the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        token = folder.absolute() / f".shared-{secrets.token_hex(4)}"
        token.touch()
        try:
            answers = self._ask(_ASK.format(code=_PROBE, path=str(token)))
        finally:
            token.unlink(missing_ok=True)
        for worker, answer in answers.items():
            version, *rest = answer.stdout.decode().split() or ["none"]
            if version == "none" or rest[1:]:
                lacks = ", ".join(rest[1:]) or "adaptive-labels"
                raise UserError(f"the worker {worker} has no {lacks}: pip install 'adaptive-labels[lab]' there")
            if version != adaptive_labels.__version__:
                raise UserError(
                    f"the worker {worker} has adaptive-labels {version}, and here it is {adaptive_labels.__version__}: "
                    "install the same on both"
                )
            if rest[0] != "True":
                raise UserError(f"the worker {worker} does not see {folder}: give --out on a shared file system")

    def _ask(self, code: str) -> dict[str, Any]:
        """What Python code gives on each worker; without those that are busy, which each run asks at its start."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        asked = {name: self._client.submit(eval, code, workers=[name], pure=False, priority=1) for name in workers}
        end = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < end and not all(future.done() for future in asked.values()):
            time.sleep(0.1)
        return {name: future.result() for name, future in asked.items() if future.status == "finished"}

    def call(self, origin: Origin, call: Callable[..., Any], *args: Any) -> Any:
        """Do a call in a child process of a worker."""
        resources = {"GPU": self._gpus} if self._gpus else None
        try:
            future = self._client.submit(in_child, origin, call, *args, pure=False, resources=resources)
            return future.result()
        except self._lost as error:
            raise futures.BrokenExecutor(str(error)) from error

    def stop(self) -> None:
        """Leave the scheduler, which forgets all calls of a client that is gone."""
        self._client.close(timeout=5)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As any executor's; then leave the scheduler."""
        super().shutdown(wait, cancel_futures=cancel_futures)
        self.stop()

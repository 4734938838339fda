"""The workers of a Dask cluster."""

import secrets
import sys
from pathlib import Path

import adaptive_labels
from adaptive_labels.errors import UserError
from adaptive_labels.lab.jobs import JobExecutor, register_executor

# What a worker is asked: the version of this package, and whether it sees a file. It is text, since a worker without
# the package cannot be sent a function of it.
_PROBE = "(__import__('adaptive_labels').__version__, __import__('os').path.exists({path!r}))"


@register_executor("dask")
class DaskExecutor(JobExecutor):
    """The workers of the scheduler at an address, which is found within ``timeout`` seconds.

    A worker that is lost is the scheduler's to notice: it gives the run to another one.
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
        self._gpus, self._scheduler = gpus, scheduler
        try:
            self._client = distributed.Client(scheduler, timeout=timeout, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise UserError(f"scheduler is {scheduler!r}: nothing answers there within {timeout:g} s") from error
        try:
            self.workers = min(workers or sys.maxsize, self._count_slots())
        except UserError:
            self._client.close()
            raise
        super().__init__(self._client.get_executor(pure=False, resources={"GPU": gpus} if gpus else None))

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
            answers = self._client.run(eval, _PROBE.format(path=str(token)), on_error="return")
        finally:
            token.unlink(missing_ok=True)
        for worker, answer in answers.items():
            if isinstance(answer, Exception):
                raise UserError(f"the worker {worker} has no adaptive-labels: pip install 'adaptive-labels[lab]' there")
            version, sees = answer
            if version != adaptive_labels.__version__:
                raise UserError(
                    f"the worker {worker} has adaptive-labels {version}, and here it is {adaptive_labels.__version__}: "
                    "install the same on both"
                )
            if not sees:
                raise UserError(f"the worker {worker} does not see {folder}: give --out on a shared file system")

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As any executor's; then leave the scheduler."""
        self._executor.shutdown(wait=wait)
        self._client.close(timeout=5)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.shutdown(wait=kind is None)

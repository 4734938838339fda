"""The workers of a Dask cluster."""

import sys

from adaptive_labels.errors import UserError
from adaptive_labels.lab.jobs import JobExecutor, register_executor


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

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As any executor's; then leave the scheduler."""
        self._executor.shutdown(wait=wait)
        self._client.close(timeout=5)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.shutdown(wait=kind is None)

"""A criterion in timm's task-based training: ``CriterionTask(model, criterion)`` for ``timm.task.ClassificationTask``.

Written for timm 1.0.30, which needs torchvision. That was not available, so that the tests run against a stand-in with
the same interface where timm cannot be imported.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from adaptive_labels.adapters.module import check_criterion
from adaptive_labels.losses.base import Criterion

try:
    from timm.task import ClassificationTask
except ImportError as error:
    raise ImportError(f"{error}; pip install 'adaptive-labels[timm]'") from error


class CriterionTask(ClassificationTask):  # type: ignore[misc]
    """timm's classification with a criterion whose state is in the checkpoint.

    The micro-batches within ``no_sync()`` and the one after them are one step of the criterion. All that concerns the
    network (optimizer, DDP, EMA, compiling, layer decay, clipping) is timm's own.

    Args:
        model: the network.
        criterion: any that needs no teacher and no optimizer.
        **options: ``device``, ``dtype`` and ``verbose``, as for every task of timm.
    """

    criterion: Criterion

    def __init__(self, model: nn.Module, criterion: Criterion, **options: Any) -> None:
        if check_criterion(criterion).parameter_groups():
            raise ValueError(
                f"{type(criterion).__name__} has parameters, and timm's optimizer takes those of the network only: "
                "choose a method that trains none, for AdaptiveLabelLoss update='self'"
            )
        super().__init__(model, criterion, **options)
        self._step = ExitStack()
        self._in_step = False
        self._last_micro_batch = True

    def forward(self, input: Tensor, target: Tensor) -> dict[str, Tensor]:
        """The loss and the logits of a batch, as ``loss`` and ``output``."""
        found: dict[str, Tensor] = super().forward(input, target)
        if self._last_micro_batch:
            self._in_step = False
            self._step.close()
        return found

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """The context of a micro-batch that is not the last of its step."""
        if not self._in_step:
            self._in_step = True
            self._step.enter_context(self.criterion.accumulation())
        self._last_micro_batch = False
        try:
            with super().no_sync():
                yield
        finally:
            self._last_micro_batch = True

    def epoch_end(self) -> None:
        """Tell the criterion that an epoch of training is over; ``ols`` needs it."""
        self.criterion.epoch_end()

    def get_task_state(self, module: nn.Module | None = None, ema: bool = False) -> dict[str, Any]:
        """The criterion's state, for the checkpoint."""
        return {} if ema else {"criterion": self.criterion.state_dict()}

    def load_task_state(
        self, state: dict[str, Any] | None, strict: bool = True, module: nn.Module | None = None, ema: bool = False
    ) -> None:
        """Restore the criterion from a checkpoint."""
        if ema:
            return
        if state and "criterion" in state:
            self.criterion.load_state_dict(state["criterion"], strict=strict)
        elif strict:
            raise ValueError(
                "the checkpoint has no criterion in 'task_state': it was not written by CriterionTask. To start from "
                "its network, load it as an initial checkpoint instead of resuming"
            )

"""A criterion in timm's task-based training: ``CriterionTask(model, criterion)`` for ``timm.task.ClassificationTask``.

Written for timm 1.0.30, which needs torchvision. That was not available, so that the tests run against a stand-in with
the same interface where timm cannot be imported.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

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
        self._in_step = self._last_micro_batch = False

    def forward(self, input: Tensor, target: Tensor) -> dict[str, Tensor]:
        """The loss and the logits of a batch, as ``loss`` and ``output``."""
        if self._last_micro_batch:
            self._end_step()
        found: dict[str, Tensor] = super().forward(input, target)
        self._last_micro_batch = self._in_step
        return found

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """The context of a micro-batch that is not the last of its step."""
        if self._last_micro_batch:
            self._end_step()
        if not self._in_step:
            self._in_step = True
            self._step.enter_context(self.criterion.accumulation())
        with super().no_sync():
            yield
        self._last_micro_batch = False

    def _end_step(self) -> None:
        """The last micro-batch's backward pass is over, of which timm tells nobody, when something else is done."""
        self._in_step = self._last_micro_batch = False
        self._step.close()

    def train(self, mode: bool = True) -> Self:
        """As for any module; a step that was accumulated ends before."""
        if getattr(self, "_last_micro_batch", False):
            self._end_step()
        super().train(mode)
        return self

    def epoch_end(self) -> None:
        """Tell the criterion that an epoch of training is over; ``ols`` needs it."""
        self._end_step()
        self.criterion.epoch_end()

    def get_task_state(self, module: nn.Module | None = None, ema: bool = False) -> dict[str, Any]:
        """The criterion's state, for the checkpoint."""
        self._end_step()
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

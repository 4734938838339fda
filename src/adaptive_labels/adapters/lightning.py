"""A criterion in Lightning (``lightning`` or ``pytorch_lightning``): an attribute of the ``LightningModule``.

Checkpoints and DDP include it as a part of the module; ``Trainer(callbacks=CriterionCallback())`` tells it when steps
and epochs end.
"""

from contextlib import ExitStack
from typing import Any

from torch import nn

from adaptive_labels.adapters.module import check_optimized
from adaptive_labels.losses.base import Criterion

try:
    from lightning.pytorch import Callback
except ImportError:  # either package takes the callbacks of the other
    try:
        from pytorch_lightning import Callback
    except ImportError as error:
        raise ImportError("No module named 'lightning'; pip install 'adaptive-labels[lightning]'") from error


class CriterionCallback(Callback):  # type: ignore[misc]
    """Tells the criteria of a ``LightningModule`` when optimizer steps and epochs end, in resumed runs, too.

    With ``accumulate_grad_batches`` the micro-batches of one optimizer step count as one step of the criterion. ``fit``
    raises an error if a criterion has trained parameters that no optimizer has.
    """

    def __init__(self) -> None:
        self._criteria: list[Criterion] = []
        self._epochs_ended = 0
        self._step = ExitStack()
        self._in_step = False

    def setup(self, trainer: Any, pl_module: nn.Module, stage: str) -> None:
        """Count epochs from the trainer's current one; a checkpoint is loaded after this."""
        if stage == "fit":
            self._epochs_ended = trainer.current_epoch

    def state_dict(self) -> dict[str, Any]:
        """How many epochs have ended: a checkpoint of an epoch's last step is written before the epoch's end."""
        return {"epochs_ended": self._epochs_ended}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self._epochs_ended = state_dict["epochs_ended"]

    def on_fit_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """Find the criteria, and check that an optimizer has what they train."""
        self._criteria = [part for part in pl_module.modules() if isinstance(part, Criterion)]
        if not self._criteria:
            raise ValueError(f"{type(pl_module).__name__} has no criterion of adaptive_labels.losses among its modules")
        for criterion in self._criteria:
            check_optimized(criterion, [group for optimizer in trainer.optimizers for group in optimizer.param_groups])

    def on_train_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """End the epoch whose last step wrote the checkpoint, since Lightning continues with the next epoch."""
        if self._epochs_ended < trainer.current_epoch:
            self._end_epoch()

    def on_train_batch_start(self, *args: Any) -> None:
        """The first micro-batch opens a step."""
        if not self._in_step:
            self._in_step = True
            for criterion in self._criteria:
                self._step.enter_context(criterion.accumulation())

    def on_before_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """The last micro-batch is done."""
        self._in_step = False
        self._step.close()

    def on_train_epoch_end(self, trainer: Any, pl_module: nn.Module) -> None:
        """Tell the criteria that the epoch is over, unless a checkpoint says that they know."""
        if self._epochs_ended <= trainer.current_epoch:
            self._end_epoch()

    def _end_epoch(self) -> None:
        self._epochs_ended += 1
        for criterion in self._criteria:
            criterion.epoch_end()

    # However training ends, the step is closed.
    on_exception = teardown = on_before_optimizer_step

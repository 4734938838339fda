"""A criterion in Lightning (``lightning`` or ``pytorch_lightning``).

The criterion is a submodule of the ``LightningModule``, so that checkpoints and DDP include it. ``parameter_groups``
gives its parameters to the optimizer without weight decay, and ``CriterionCallback`` tells it when steps and epochs
end::

    class Classifier(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = …
            self.criterion = AdaptiveLabelLoss(K)

        def configure_optimizers(self):
            return torch.optim.AdamW(parameter_groups(self), lr=1e-3)

    L.Trainer(callbacks=CriterionCallback(), …).fit(Classifier(), loader)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from torch import nn

from adaptive_labels.losses.base import Criterion

if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    try:
        if sys.modules.get("pytorch_lightning") is not None:  # it is what the script uses
            from pytorch_lightning import Callback
        else:
            from lightning.pytorch import Callback
    except ImportError:
        try:
            from pytorch_lightning import Callback
        except ImportError as error:
            raise ImportError("No module named 'lightning'; pip install 'adaptive-labels[lightning]'") from error


def parameter_groups(module: nn.Module, lr: float | None = None) -> list[dict[str, Any]]:
    """Optimizer groups: the parameters of the network, and those of the criteria in ``module`` without weight decay.

    Args:
        module: a ``LightningModule`` with a criterion as a submodule.
        lr: the rate of the criterion's parameters; ``None`` is the optimizer's rate. For pretrained networks use 0.01:
            at their usual rates (2e-5), S would hardly move from its start.
    """
    criteria = _criteria_of(module)
    own = {id(parameter) for criterion in criteria.values() for parameter in criterion.parameters()}
    groups: list[dict[str, Any]] = [{"params": [p for p in module.parameters() if id(p) not in own]}]
    for criterion in criteria.values():
        groups += criterion.parameter_groups(lr=None if criterion.like_network else lr)
    return groups


class CriterionCallback(Callback):  # type: ignore[misc]
    """Tells the criteria of a ``LightningModule`` when steps and epochs end, and checks the optimizer.

    - It calls ``epoch_end`` exactly once at the end of each training epoch, also if the run was stopped and resumed.
    - With ``accumulate_grad_batches`` the micro-batches of one optimizer step count as one step: the weight on L_res
      changes once per step.
    - ``fit`` raises an error if no optimizer has the criterion's parameters, or if weight decay applies to them.

    Args:
        log_confusions: log the ``n`` largest residual labels at the end of each epoch, as ``confusion/A→B``.
        class_names: the names A and B in the log; class numbers by default.
    """

    def __init__(self, log_confusions: int = 0, class_names: Sequence[str] | None = None) -> None:
        self.log_confusions = log_confusions
        self.class_names = class_names
        self._criteria: dict[str, Criterion] = {}
        self._epochs_ended = 0
        self._step = ExitStack()

    def setup(self, trainer: Any, pl_module: nn.Module, stage: str) -> None:
        """Count epochs from the trainer's current one; a checkpoint is loaded after this."""
        if stage == "fit":
            self._epochs_ended = trainer.current_epoch

    def state_dict(self) -> dict[str, Any]:
        """The content of a checkpoint: how many epochs have ended.

        A checkpoint of an epoch's last step is written before the epoch's end.
        """
        return {"epochs_ended": self._epochs_ended}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self._epochs_ended = state_dict["epochs_ended"]

    def on_fit_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """Find the criteria. Check that an optimizer moves their parameters, and that it does not decay them."""
        self._criteria = _criteria_of(pl_module)
        groups = [group for optimizer in trainer.optimizers for group in optimizer.param_groups]
        group_of = {id(parameter): group for group in groups for parameter in group["params"]}
        for path, criterion in self._criteria.items():
            for name, parameter in criterion.named_parameters():
                if not parameter.requires_grad:
                    continue
                group = group_of.get(id(parameter))
                if group is None:
                    raise ValueError(
                        f"no optimizer has {path}.{name}, so it would never change: give parameter_groups(self) to the "
                        "optimizer in configure_optimizers"
                    )
                if group.get("weight_decay") and not criterion.like_network:
                    raise ValueError(
                        f"weight_decay={group['weight_decay']} would pull {path}.{name} back to uniform: give "
                        "parameter_groups(self) instead of self.parameters() to the optimizer"
                    )

    def on_train_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """End the epoch whose last step wrote the checkpoint, since Lightning continues with the next epoch."""
        if self._epochs_ended < trainer.current_epoch:
            self._end_epoch(trainer)

    def on_train_batch_start(self, trainer: Any, pl_module: nn.Module, batch: Any, batch_idx: int) -> None:
        """Open a step with its first micro-batch."""
        micro_batches = trainer.accumulate_grad_batches
        if batch_idx % micro_batches == 0:
            self._step.close()
            if micro_batches > 1:
                for criterion in self._criteria.values():
                    self._step.enter_context(criterion.accumulation())

    def on_train_epoch_end(self, trainer: Any, pl_module: nn.Module) -> None:
        """Tell the criteria that the epoch is over."""
        self._step.close()
        if self._epochs_ended <= trainer.current_epoch:
            self._end_epoch(trainer)

    def teardown(self, trainer: Any, pl_module: nn.Module, stage: Any) -> None:
        """Close the step, however training ended."""
        self._step.close()

    on_exception = teardown

    def _end_epoch(self, trainer: Any) -> None:
        self._epochs_ended += 1
        for path, criterion in self._criteria.items():
            criterion.epoch_end()
            most_confused = getattr(criterion, "most_confused", None)
            if self.log_confusions and most_confused is not None:
                prefix = "confusion" if len(self._criteria) == 1 else f"confusion/{path}"
                found = most_confused(self.log_confusions, self.class_names)
                values = {f"{prefix}/{one.label}→{one.taken_for}": one.probability for one in found}
                for logger in trainer.loggers:
                    logger.log_metrics(values, step=trainer.global_step)


def _criteria_of(module: nn.Module) -> dict[str, Criterion]:
    """The criteria in ``module``, by their path in it."""
    found = {f"self.{path}": part for path, part in module.named_modules() if isinstance(part, Criterion)}
    if not found:
        raise ValueError(
            f"{type(module).__name__} has no criterion of adaptive_labels.losses: set it as an attribute in __init__, "
            "as self.criterion = AdaptiveLabelLoss(…)"
        )
    return found
